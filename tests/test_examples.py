"""The examples with other libraries' trainers: their ranks train one model together."""

from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.records.run_events import EpochEnded, RankEvent
from dmls_ray.workloads.user_function.rank_run import run_user_function
from dmls_ray.workloads.user_function.schema import user_function_schema
from tests.conftest import PROJECT
from tests.new_processes import run_ranks

pytestmark = pytest.mark.slow  # these libraries load for seconds on each rank


@pytest.fixture(autouse=True)
def examples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(PROJECT / "examples")
    # The ranks are new processes.
    monkeypatch.setenv("PYTHONPATH", str(PROJECT / "examples"))


def run_example(name: str, world_size: int, **values: Any) -> tuple[list[Any], list[float]]:
    """The results of the ranks, and the test losses of the epochs that they emitted."""
    events: list[RankEvent] = []
    config = user_function_schema(f"{name}:train").make(world_size=world_size, device="cpu", **values)
    results = run_ranks(config, train=run_user_function, emit=events.append)
    assert [item.outcome for item in results] == ["ok"] * world_size, results[0].traceback
    return results, [event.epoch.test_loss or 0.0 for event in events if isinstance(event, EpochEnded)]


def test_hugging_face_trainer_splits_its_batches_among_the_ranks() -> None:
    pytest.importorskip("transformers", reason="needs pip install 'dmls_ray[examples]'")
    pytest.importorskip("accelerate", reason="needs pip install 'dmls_ray[examples]'")
    steps = {}
    for world_size in (1, 2):
        results, losses = run_example("hf_trainer", world_size, context=32, layers=1, batch_per_rank=128)
        steps[world_size] = results[0].run.metrics["steps"]
        assert len(losses) == 1
        assert losses[0] < 4.9, "less than chance"
    assert steps[2] == -(-steps[1] // 2)


def test_lightning_splits_its_batches_among_the_ranks() -> None:
    pytest.importorskip("lightning", reason="needs pip install 'dmls_ray[examples]'")
    steps = {}
    for world_size in (1, 2):
        results, losses = run_example("lightning_module", world_size, epochs=2)
        steps[world_size] = results[0].run.metrics["steps"]
        assert losses[1] < losses[0]
    assert (steps[1], steps[2]) == (2 * 45, 2 * 23)
