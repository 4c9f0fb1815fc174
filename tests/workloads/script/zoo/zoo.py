"""Runs of the scripts of the zoo: what each says of itself, and what is stated of it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Literal

from dmls_ray.records.aggregate import take_results
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.workloads.script.config import ScriptConfig
from dmls_ray.workloads.script.flags import ScriptFlag
from tests.workloads.script.conftest import Runner

FOLDER = Path(__file__).parent
SCRIPTS = sorted(path.stem for path in FOLDER.glob("*.py") if "\nfrom truth import" in path.read_text(encoding="utf-8"))
STEPS = 31
"""Steps after which a run is ended: scripts end themselves before."""


def ranks_of(name: str) -> int:
    """The ranks of a script: two, if its first line says so."""
    first = (FOLDER / f"{name}.py").read_text(encoding="utf-8").splitlines()[0]
    return 2 if "two ranks" in first.lower() else 1


def shape_of(name: str) -> str:
    """What a script shows, as its first line says it."""
    return (FOLDER / f"{name}.py").read_text(encoding="utf-8").splitlines()[0].strip('"').rstrip(".")


@dataclass(frozen=True)
class Numbers:
    """Numbers of the steps that count: of a truth, or as they are stated."""

    samples_per_step: float | None
    samples_per_s: float | None
    step_ms: float | None


@dataclass(frozen=True)
class Seen:
    """A script with its truth, and the record of its run."""

    record: RunRecord
    truth: Numbers

    @property
    def stated(self) -> Numbers:
        """What is stated of it."""
        metrics = self.record.metrics
        return Numbers(metrics.get("samples_per_step"), metrics.get("samples_per_s"), metrics.get("step_ms_mean"))


def run_zoo(run: Runner, name: str, evaluation: Literal["auto", "test", "training"] = "auto") -> Seen:
    """Run a script of the zoo."""
    world_size = ranks_of(name)
    told = run.folder / "truth"
    results = run.run(
        ScriptConfig(
            script=str(FOLDER / f"{name}.py"), world_size=world_size, steps=STEPS, seed_flag="none",
            threads_per_rank=1, evaluation=evaluation, values={"ZOO_TRUTH": str(told)},
            flags={"ZOO_TRUTH": ScriptFlag("ZOO_TRUTH", "variable")},
        )
    )  # fmt: skip
    record = RunRecord(
        run_id="zoo-0", trial_id="zoo", repeat=0, order=0, order_seed=0, seed=0, outcome=Outcome.OK,
        config={"world_size": world_size},
    )  # fmt: skip
    for result in results:
        assert result.outcome is Outcome.OK, result.reason + "\n" + run.log
    take_results(record, results)
    assert "observer_fault" not in record.facts, record.facts["observer_fault"]
    # Each rank ends its warm-up where its own steps have settled.
    truths = [truth_of(Path(f"{told}{result.rank}"), result.run.metrics["counted_steps"]) for result in results]
    return Seen(record, together(truths))


def truth_of(path: Path, counted: int) -> tuple[Numbers, bool]:
    """What a rank says of its last steps, and whether it shares its samples with all others."""
    told = json.loads(path.read_text(encoding="utf-8"))
    ended_s, samples = told["ended_s"], told["samples"]
    seconds = ended_s[-1] - ended_s[-counted - 1] - sum(told["tests_s"][-counted:])
    of_steps = samples[-counted:]
    return Numbers(fmean(of_steps), sum(of_steps) / seconds, seconds * 1e3 / counted), told["shared"]


def together(truths: list[tuple[Numbers, bool]]) -> Numbers:
    """The truth of all ranks."""
    ranks = [numbers for numbers, _ in truths]
    share = len(ranks) if truths[0][1] else 1
    return Numbers(
        sum(rank.samples_per_step or 0 for rank in ranks) / share,
        sum(rank.samples_per_s or 0 for rank in ranks) / share,
        max(rank.step_ms or 0 for rank in ranks),
    )
