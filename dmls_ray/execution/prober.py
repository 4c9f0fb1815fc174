"""`Prober`: small sweeps of one search, one after the other, on ranks that stay."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dmls_ray.analysis.results import Results
from dmls_ray.cluster.held_group import HeldGroup
from dmls_ray.config.axes import Axes
from dmls_ray.config.grid import Plan
from dmls_ray.config.options import Options
from dmls_ray.execution.planning import plan_sweep
from dmls_ray.execution.run_plan import run_plan
from dmls_ray.execution.supervisor import Heartbeat
from dmls_ray.execution.view import View
from dmls_ray.workloads.base import Workload


@dataclass(frozen=True, kw_only=True)
class Prober:
    """What the small sweeps of a search share."""

    workload: Workload
    options: Options
    """How runs are made, and where the results go."""
    view: View
    """Shows the progress."""
    heartbeat: Heartbeat
    """Reports to the supervisor of this process."""
    held: HeldGroup
    """Keeps the ranks from one sweep to the next."""

    def measure(
        self, axes: Axes, options: Options, variants: Sequence[Mapping[str, Any]] = ({},)
    ) -> tuple[Results, Plan]:
        """Run a small sweep; returns what the folder has of its runs, and its plan."""
        plan, _ = plan_sweep(axes, options, self.workload, variants=variants)
        # A folder with the changes of several sweeps has no common baseline; its report compares field by field.
        ran = dataclasses.replace(plan, changed=())
        return run_plan(ran, options, self.view, heartbeat=self.heartbeat, held=self.held), plan
