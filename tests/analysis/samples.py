"""Runs made by hand, whose table and answer can be worked out by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dmls_ray.analysis.findings.effects import Comparison
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.words_on_pairs import pair_label, place_text
from dmls_ray.execution.planning import make_plan
from dmls_ray.records.aggregate import take_epochs, take_results
from dmls_ray.records.model import RUN_FIELDS, EpochRecord, RankRecord, RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import RankResult, RunResult
from dmls_ray.workloads.user_function.schema import user_function_schema

MACHINE = {"host": "lab", "cpu": "Some CPU", "cores": 2, "gpus": []}


def row_of(comparison: Comparison) -> tuple[str, str]:
    """The label and the place of a row of an answer."""
    pair = comparison[0].pair
    return pair_label(pair), place_text(pair)


def results(
    axes: dict[str, Any],
    rate: Any,
    *,
    repeats: int = 3,
    accuracy: Any = lambda values, repeat: 0.9,
    variants: Any = ({},),
) -> Results:
    """One record a run of the grid; `rate` and `accuracy` are called with the configuration's values and the repeat."""
    records = []
    for run in make_plan(axes, variants=variants, repeats=repeats).runs:
        record = record_of(run, versions={"python": "3.11", "torch": "2", "ray": "2.60"})
        speed = rate(run.values, run.repeat)
        if speed is None:
            record.outcome, record.reason = Outcome.OOM, "8 GiB asked for"
        else:
            record.metrics["train_samples"], record.metrics["test_samples"] = 1000, 1_000_000_000
            first = {"train_s": 1000 / speed, "images": 1000, "test_accuracy": 0.1, "ended_s": 1000 / speed}
            learned = {"train_accuracy": 0.95, "test_accuracy": accuracy(run.values, run.repeat)}
            second = first | learned | {"ended_s": 2000 / speed}
            epochs = [EpochRecord(epoch=1, metrics=first), EpochRecord(epoch=2, metrics=second)]
            take_epochs(record, epochs)
            record.metrics |= {"total_s": 2000 / speed, "tensor_mem_mib": 100.0 + run.values["batch_per_rank"]}
            record.ranks = [
                RankRecord(
                    rank=rank,
                    machine="lab",
                    metrics={"total_s": 1.0},
                    epochs=[EpochRecord(epoch=1, metrics={"train_loss": 0.5})],
                )
                for rank in range(run.values["world_size"])
            ]
        records.append(record)
    return Results(Path("results/sample"), records)


def along(name: str, levels: Mapping[Any, tuple[float, float]], **axes: Any) -> Results:
    """Runs along a field, of which each value has a rate and an accuracy."""
    return results(
        {"batch_per_rank": 16, name: list(levels), **axes},
        lambda values, repeat: levels[values[name]][0],
        accuracy=lambda values, repeat: levels[values[name]][1],
    )


def set_value(record: RunRecord, name: str, value: Any) -> None:
    """Change a field or a metric of a record; a metric that is None was not measured."""
    if name in RUN_FIELDS:
        setattr(record, name, value)
    elif value is None:
        record.metrics.pop(name, None)
    else:
        record.metrics[name] = value


def with_memory_kinds(runs: Results) -> Results:
    """The runs with 20 MiB of parameters, as much of gradients, 60 of optimizer state, and the batch's activations."""
    for record in runs.records:
        if "tensor_mem_mib" in record.metrics:
            record.metrics["parameter_mem_mib"] = record.metrics["gradient_mem_mib"] = 20.0
            record.metrics["optimizer_mem_mib"], record.metrics["other_mem_mib"] = 60.0, 0.0
            record.metrics["activation_mem_mib"] = record.metrics["tensor_mem_mib"] - 100.0
    return runs


def own_results(axes: dict[str, Any], tell: Any, *, repeats: int = 3, **changes: Any) -> Results:
    """Runs of a training function of one's own; `tell` gives, of a configuration and a repeat, seconds and measures."""
    records = []
    for run in make_plan(axes, repeats=repeats, schema=user_function_schema(_train, axes)).runs:
        record = record_of(run, **changes)
        record.metrics["total_s"], measures = tell(run.values, run.repeat)
        run = RunResult(reported=measures)
        take_results(record, [RankResult(rank=0, metrics={"total_s": record.metrics["total_s"]}, run=run)])
        records.append(record)
    return Results(Path("somewhere"), records)


def script_results(axes: dict[str, Any], tell: Any, *, repeats: int = 3) -> Results:
    """Runs of a script; `tell` gives, of a configuration and a repeat, metrics, facts and fields of its record."""
    records = []
    for run in make_plan(axes, repeats=repeats, schema=user_function_schema(_train, axes)).runs:
        record = record_of(run)
        config = {name: value for name, value in record.config.items() if name in (*axes, "world_size")}
        record.config = {"workload": "script", "script": "train.py", "steps": "auto", **config}
        record.metrics |= {"total_s": 1.0, "steps_made": 50, "counted_steps": 45, "step_ms_mean": 10.0}
        record.was_ended = True
        for name, value in tell(run.values, run.repeat).items():
            if isinstance(value, str) and name not in RUN_FIELDS:
                record.facts[name] = value
            else:
                set_value(record, name, value)
        records.append(record)
    return Results(Path("somewhere"), records)


def record_of(run: Any, **changes: Any) -> RunRecord:
    """The record of a planned run that ended ok."""
    return RunRecord(
        run_id=run.run_id, trial_id=run.trial_id, repeat=run.repeat, order=run.order, order_seed=0, seed=run.seed,
        outcome=Outcome.OK, config=dict(run.values), machine=MACHINE, started_at="2026-01-02T03:04:05", **changes,
    )  # fmt: skip


def in_sessions(runs: Results, session_of: Any) -> Results:
    """The same runs, each in the session that is told of its configuration and repeat."""
    for record in runs.records:
        record.session = session_of(record.config, record.repeat)
    return runs


def _train(config: dict[str, Any], rank: Any, emit: Any) -> None: ...
