"""Export to trackio: a run of trackio for each run, of one group; the answer is a run with a text."""

from __future__ import annotations

import os
from contextlib import redirect_stdout

import trackio
from trackio.utils import TRACKIO_DIR

from dmls_ray.analysis.export.tracked import TrackedSweep
from dmls_ray.util.errors import ConfigError

_REMOTE = ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")


def write(sweep: TrackedSweep) -> str:
    """Write the runs to TRACKIO_DIR, and delete those of earlier exports there; returns where that is.

    Raises:
        ConfigError: the environment names another place, whose earlier runs trackio cannot delete.
    """
    for name in _REMOTE:
        if name in os.environ:
            raise ConfigError(
                f"--to trackio writes to TRACKIO_DIR; unset {name}, and upload the project by trackio sync."
            )
    ids = set()
    with open(os.devnull, "w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        for item in sweep.runs:
            run = trackio.init(
                sweep.project, item.name, sweep.group, config={"id": item.id, **item.config, **item.facts},
                embed=False, auto_log_gpu=False, auto_log_cpu=False,
            )  # fmt: skip
            for step, metrics in item.epochs:
                run.log(dict(metrics), step=step)
            text = {"text": trackio.Markdown(item.text)} if item.text else {}
            run.log({**item.metrics, **text})
            run.finish()
            ids.add(run.id)
    written = {item.id for item in sweep.runs}
    for run in trackio.Api().runs(sweep.project):
        if run.id not in ids and (run.config or {}).get("id") in written:
            run.delete()
    return f"{TRACKIO_DIR}, project {sweep.project}"
