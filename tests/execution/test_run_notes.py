"""Values that are not recorded are noted once."""

from __future__ import annotations

from dmls_ray.execution.run_notes import RunNotes
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome


def run(run_id: str, not_recorded: str = "") -> RunRecord:
    return RunRecord(
        run_id=run_id, trial_id="a", repeat=0, order=0, order_seed=0, seed=0, outcome=Outcome.OK,
        not_recorded=not_recorded,
    )  # fmt: skip


def test_equal_values_that_are_not_recorded_are_noted_once() -> None:
    notes = RunNotes()
    texts = ["end is of type datetime; give .isoformat()"] * 2 + ["", "places is of type set; give sorted() of it"]
    runs = [run(f"a-{number}", text) for number, text in enumerate(texts)]
    noted = [[*notes.of(record)] for record in runs]
    assert noted == [[f"Run a-0: not recorded: {texts[0]}."], [], [], [f"Run a-3: not recorded: {texts[3]}."]]
