"""Export to Weights & Biases: a run of wandb for each run, of one group; the answer is the notes of a run of its own."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import wandb

from dmls_ray.analysis.export.tracked import TrackedSweep


def write(sweep: TrackedSweep) -> str:
    """Write the runs to where the environment says, as WANDB_MODE and WANDB_DIR; returns where that is.

    A run with the id of an earlier one overwrites it, as wandb does without `resume`.
    """
    # What wandb would find out belongs to the machine that exports, and not to the run.
    quiet = wandb.Settings(
        silent=True, console="off", disable_git=True, disable_code=True, x_disable_stats=True, x_disable_meta=True
    )
    where = ""
    for item in sweep.runs:
        run = wandb.init(
            project=sweep.project, group=sweep.group, id=item.id, name=item.name, notes=item.text,
            config=dict(item.config), settings=quiet,
        )  # fmt: skip
        for step, metrics in item.epochs:
            run.log(dict(metrics), step=step)
        run.summary.update({**item.metrics, **item.facts})
        run.finish(exit_code=0 if item.is_ok else 1)
        where = run.project_url or _replace_offline(Path(run.dir).parent, item.id)
    return where


def _replace_offline(folder: Path, run_id: str) -> str:
    """Remove what earlier exports left of a run offline, and return the folder of all runs."""
    for other in folder.parent.iterdir():
        if other != folder and re.fullmatch(rf"offline-run-\d+_\d+-{re.escape(run_id)}", other.name):
            shutil.rmtree(other)
    return str(folder.parent)
