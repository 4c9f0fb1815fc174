"""Export to MLflow: an experiment, in which each run is a run of MLflow, and the answer the description of another."""

from __future__ import annotations

import re

from mlflow import MlflowClient
from mlflow.entities import Metric, Param

from dmls_ray.analysis.export.tracked import TrackedRun, TrackedSweep

_ID = "dmls_ray.run_id"
"""Tag with the id of a run, since MLflow gives each run an id of its own."""
_BATCH = 100
"""Entries of a request: MLflow takes so many parameters at once."""


def write(sweep: TrackedSweep) -> str:
    """Write the runs to where MLFLOW_TRACKING_URI says, and delete those of earlier exports; returns where that is."""
    client = MlflowClient()
    experiment = client.get_experiment_by_name(sweep.project)
    place = experiment.experiment_id if experiment else client.create_experiment(sweep.project)
    for item in sweep.runs:
        earlier = client.search_runs([place], f"tags.`{_ID}` = '{item.id}'")
        _write_run(client, place, sweep.group, item)
        for run in earlier:
            client.delete_run(run.info.run_id)
    return f"{client.tracking_uri}, experiment {sweep.project}"


def _write_run(client: MlflowClient, experiment: str, group: str, item: TrackedRun) -> None:
    tags = {_ID: item.id, "sweep": group, "mlflow.note.content": item.text, **item.facts}
    start, end = round(item.started_at * 1e3), round(item.ended_at * 1e3)
    run_id = client.create_run(experiment, start, tags, item.name).info.run_id
    entries: list[Metric | Param] = [Param(_key(name), str(value)) for name, value in item.config.items()]
    for step, metrics in [*item.epochs, (0, item.metrics)]:
        entries += [Metric(_key(name), number, end, step) for name, number in metrics.items()]
    for first in range(0, len(entries), _BATCH):
        batch = entries[first : first + _BATCH]
        of_type = {kind: [entry for entry in batch if isinstance(entry, kind)] for kind in (Metric, Param)}
        client.log_batch(run_id, metrics=of_type[Metric], params=of_type[Param])
    client.set_terminated(run_id, "FINISHED" if item.is_ok else "FAILED", end)


def _key(name: str) -> str:
    """A name of the characters that MLflow takes."""
    return re.sub(r"[^\w./ -]", "-", name)
