"""Export of a sweep to experiment trackers: its runs and its answer become runs of wandb, MLflow or trackio.

The results folder is the project, and a configuration the group of its repeats. Metrics of epochs begin with `epoch/`:
those without it are the results of a run. A run keeps its id, and takes the place of an earlier one that has it.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dmls_ray.analysis.export.text_tables import answer_markdown
from dmls_ray.analysis.metrics import is_time
from dmls_ray.analysis.prices import machine_type
from dmls_ray.analysis.results import factors_of
from dmls_ray.analysis.summary import SweepSummary
from dmls_ray.analysis.trials.trial import describe_configuration
from dmls_ray.records.model import OF_A_FIELD, RESERVED, RunRecord, distinct_names


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """A run as trackers have it, before one of them is called."""

    id: str
    """Unique in the project."""
    name: str
    group: str = ""
    config: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, str]
    """What is known of the run that is no number. One that did not end ok, or did not start, has a `reason`."""
    metrics: dict[str, float] = field(default_factory=dict)
    """The results."""
    epochs: Sequence[dict[str, float]] = ()
    """Metrics of each epoch, of which the first is step 1."""
    text: str = ""
    """Markdown that describes it."""


def tracked_runs(reading: SweepSummary) -> Iterator[TrackedRun]:
    """The runs of a sweep, and then its answer."""
    for row in reading.table.rows:
        for record in row.records:
            yield _tracked_run(record, describe_configuration(row.factors))
    answer = reading.answer
    facts = {"headline": answer.headline, "undecided": answer.undecided}
    yield TrackedRun(id="answer", name="answer", facts=facts, text=answer_markdown(answer))


def _tracked_run(record: RunRecord, group: str) -> TrackedRun:
    factors = factors_of(record)
    heads = distinct_names(factors, RESERVED, OF_A_FIELD)
    config = {"trial_id": record.trial_id, "repeat": record.repeat, "run_seed": record.seed}
    config |= {heads[name]: value for name, value in factors.items()}
    facts = {"outcome": record.ending, "reason": record.reason, "started_at": record.started_at}
    return TrackedRun(
        id=record.run_id, name=f"{group} repeat={record.repeat}", group=group, config=config,
        facts=facts | {"machine": machine_type(record)}, metrics=_comparable(record, record.metrics),
        epochs=[_comparable(record, {"epoch": epoch.epoch} | epoch.metrics, "epoch/") for epoch in record.epochs],
    )  # fmt: skip


def _comparable(record: RunRecord, metrics: Mapping[str, float], prefix: str = "") -> dict[str, float]:
    """Metrics by name, without the times of runs that shared the machine."""
    return {prefix + name: number for name, number in metrics.items() if record.mode == "bench" or not is_time(name)}


def to_wandb(project: str, runs: Sequence[TrackedRun]) -> None:
    """Write runs to where variables such as WANDB_MODE and WANDB_DIR say; the notes of the last one are the answer."""
    import wandb

    # What wandb would find out is of the machine that exports, and not of that of the run.
    quiet = {"silent": True, "console": "off", "x_disable_stats": True, "x_disable_meta": True, "disable_git": True}
    for item in runs:
        named = {"id": item.id, "name": item.name, "group": item.group or None, "notes": item.text}
        run = wandb.init(project=project, config=item.config, settings=wandb.Settings(**quiet), **named)
        for step, metrics in enumerate(item.epochs, 1):
            run.log(metrics, step=step)
        run.summary.update(item.metrics | item.facts)
        run.finish(exit_code=1 if item.facts.get("reason") else 0)
        folder = Path(run.dir).parent
        # A server overwrites a run by its id. Offline, each export has a folder of its own.
        for other in {*folder.parent.glob(f"offline-run-????????_??????-{item.id}")} - {folder}:
            shutil.rmtree(other)


def to_mlflow(project: str, runs: Sequence[TrackedRun]) -> None:
    """Write runs to where MLFLOW_TRACKING_URI says; the description of the last one is the answer."""
    import mlflow
    from mlflow.entities import Metric, Param

    refused = re.compile(r"[^\w./ -]")  # characters of names
    client, experiment = mlflow.MlflowClient(), mlflow.set_experiment(project).experiment_id
    for item in runs:
        # By a tag, since MLflow gives each run an id of its own.
        earlier = client.search_runs([experiment], f"tags.run_id = '{item.id}'")
        tags = {"run_id": item.id, "group": item.group, "mlflow.note.content": item.text, **item.facts}
        run = client.create_run(experiment, tags=tags, run_name=item.name).info
        params = [Param(refused.sub("-", name), str(value)) for name, value in item.config.items()]
        metrics = []
        for step, numbers in enumerate([item.metrics, *item.epochs]):
            metrics += [
                Metric(refused.sub("-", name), number, run.start_time, step) for name, number in numbers.items()
            ]
        for first in range(0, max(len(params), len(metrics)), 100):  # MLflow takes no more parameters at once
            client.log_batch(run.run_id, metrics[first : first + 100], params[first : first + 100])
        client.set_terminated(run.run_id, "FAILED" if item.facts.get("reason") else "FINISHED")
        for other in earlier:
            client.delete_run(other.info.run_id)


def to_trackio(project: str, runs: Sequence[TrackedRun]) -> None:
    """Write runs to TRACKIO_DIR; the text of the last one is the answer.

    Raises:
        ValueError: the environment names another place, whose runs trackio cannot delete.
    """
    import trackio

    if remote := {"TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"} & os.environ.keys():
        raise ValueError(f"runs go to TRACKIO_DIR; unset {' and '.join(remote)}, and upload them by trackio sync.")
    quiet = {"embed": False, "auto_log_gpu": False, "auto_log_cpu": False}
    ids = {}
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        for item in runs:
            config = {"run_id": item.id, **item.config, **item.facts}
            run = trackio.init(project, item.name, item.group or None, config=config, **quiet)
            for step, metrics in enumerate(item.epochs, 1):
                run.log(metrics, step=step)
            run.log({**item.metrics, "text": trackio.Markdown(item.text)})
            trackio.finish()
            ids[item.id] = run.id
    for other in trackio.Api().runs(project):
        if (other.config or {}).get("run_id") in ids and other.id not in ids.values():
            other.delete()


TRACKERS = {"wandb": to_wandb, "mlflow": to_mlflow, "trackio": to_trackio}
"""Library, which is an extra of the same name -> what writes runs to a project of it."""
