"""The entry of one call of a sweep in sweep.json."""

from __future__ import annotations

import sys
from typing import Any

from dmls_ray.config.grid import Plan
from dmls_ray.config.options import Options
from dmls_ray.execution.planning import search_minimizes
from dmls_ray.records.provenance import describe_git, describe_machine, describe_versions


def describe_session(plan: Plan, options: Options) -> dict[str, Any]:
    """One call of a sweep, as sweep.json records it."""
    return {
        "command": _command(),
        "name": options.name,
        "question": options.question,
        "axis": options.axis,
        "axes": {name: list(values) for name, values in plan.axes.items()},
        "changed": list(plan.changed),
        "repeats": plan.repeats,
        **({} if options.mode == "search" else {"trials": list(dict.fromkeys(run.trial_id for run in plan.runs))}),
        "order_seed": plan.order_seed,
        "isolation": options.isolation,
        "mode": options.mode,
        **({"metric": options.metric, "minimizes": search_minimizes(options)} if options.mode == "search" else {}),
        "machine": describe_machine(),
        "versions": describe_versions(),
        "git": describe_git(),
    }


def _command() -> list[str]:
    """The words of the command line; empty in a notebook."""
    return [] if "ipykernel" in sys.modules else ["python", *sys.argv]
