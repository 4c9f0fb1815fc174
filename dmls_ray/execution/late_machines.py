"""`LateMachines`: runs that were skipped for lack of machines, and fit on machines that have joined since."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from dmls_ray.cluster.resources import Resources, cluster_resources
from dmls_ray.config.grid import Plan, Run
from dmls_ray.execution.jobs import JobFactory
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome


@dataclass
class LateMachines:
    """Finds the runs to be tried again."""

    plan: Plan
    jobs: JobFactory
    session: str
    """The call of the sweep; runs that earlier calls skipped are not tried again."""
    lacked_ranks: set[str] = field(default_factory=set)
    """Runs that were skipped because too few ranks were left."""
    _tried: dict[str, frozenset[str]] = field(init=False, default_factory=dict)
    """Runs that were tried again, with the machines of that time."""

    def feasible_now(self, records: Iterable[RunRecord]) -> tuple[list[Run], Resources]:
        """The skipped runs that fit on the present machines, and the resources of these."""
        now = cluster_resources()
        if not self.jobs.resources.gpus:
            # The ranks of this sweep hold no GPUs, even if a machine with GPUs has joined.
            now = replace(now, machines=tuple(replace(machine, gpus=0) for machine in now.machines))
        by_id = {record.run_id: record for record in records}
        lacking = [run for run in self.plan.runs if self._lacked_machines(run, by_id.get(run.run_id))]
        jobs = replace(self.jobs, resources=now, holds_gpus=now.holds_gpus(self.plan.configs))
        judged = replace(self.plan, runs=tuple(replace(run, skip="") for run in lacking))
        judged = judged.skip_infeasible(jobs.infeasible_reason)

        # Once for the same machines: a second try would fail for the same reason.
        machines = frozenset(machine.node_id for machine in now.machines)
        again = [run for run in judged.runs if not run.skip and self._tried.get(run.run_id) != machines]
        self._tried |= {run.run_id: machines for run in again}
        return again, now

    def _lacked_machines(self, run: Run, record: RunRecord | None) -> bool:
        """Whether this call has skipped a run because it did not fit on the machines."""
        if record is None or record.outcome is not Outcome.SKIPPED or record.session != self.session:
            return False
        if run.config is None or run.config.launcher != "ray":
            return False
        return bool(self.jobs.infeasible_reason(run.config)) or run.run_id in self.lacked_ranks
