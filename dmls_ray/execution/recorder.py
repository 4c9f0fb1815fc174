"""`Recorder`: from the events of a run to its record; and the entry of a call of a sweep in sweep.json."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dmls_ray.analysis.metrics import is_time
from dmls_ray.analysis.stats.looks import FIRST_LOOK
from dmls_ray.config.grid import Plan, Run
from dmls_ray.config.identity import Identity, join_identities
from dmls_ray.config.options import Options
from dmls_ray.config.search_space import SearchSpace
from dmls_ray.execution.planning import minimizes
from dmls_ray.records import provenance
from dmls_ray.records.aggregate import take_epochs, take_results
from dmls_ray.records.model import FIRST_LANE, EpochRecord, RankRecord, RunRecord, seconds_of_run
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import RunFinished
from dmls_ray.util.digests import file_of_user_module
from dmls_ray.workloads.base import Workload
from dmls_ray.workloads.registry import workload_of


@dataclass
class Recorder:
    """Makes the records of one call of a sweep."""

    plan: Plan
    options: Options
    workload: Workload
    session: str
    """When the call began: names it in its records."""
    oversubscribes: Callable[[Any], bool] = lambda config: False
    """Whether a configuration has more threads than the cluster has cores."""
    ranks: int = 1
    """How many ranks serve the runs."""
    beside: str = ""
    """As of the records."""
    _begun: dict[str, RunRecord] = field(init=False, default_factory=dict)
    """By run that is under way: the record that it would have if it were cut short now."""
    _last_end: dict[int, float] = field(init=False, default_factory=dict)
    """Lane -> when its last run ended, or its first began."""

    def started(self, run: Run, lane: int) -> None:
        """Note the start of an attempt at a run on a lane."""
        self._begun[run.run_id] = self._record(run, Outcome.KILLED, "")
        if lane not in self._last_end:
            self._last_end[lane] = time.monotonic()

    def epoch_ended(self, run: Run, epoch: EpochRecord) -> RunRecord:
        """Keep an epoch, in case the run is cut short; returns the record of the run so far."""
        record = self._begun[run.run_id]
        record.epochs.append(epoch)
        return record

    def finished(self, run: Run, event: RunFinished) -> RunRecord:
        """The record of a run that has ended."""
        record = self._record(run, event.verdict.outcome, event.verdict.reason)
        record.traceback = event.verdict.traceback
        record.attempts = event.attempts
        record.lane = event.lane or FIRST_LANE
        record.beside = self.beside
        record.earlier_attempts = list(map(asdict, event.earlier))
        # A skipped run was not begun.
        begun = self._begun.pop(run.run_id, record)
        record.started_at = begun.started_at
        take_results(record, event.results, self.workload.metrics)
        record.metrics |= begun.metrics
        if event.machines:
            first, *others = event.machines
            record.machine = dict(first)
            if others:
                record.machine["beside"] = [provenance.machine_text(machine) for machine in others]

        if not record.epochs:
            # The run was cut short, or its ranks return no epochs.
            take_epochs(record, begun.epochs, self.workload.metrics)

        now = time.monotonic()
        # Runs that share the ranks overlap, so the time between two ends says nothing.
        metrics = record.metrics
        last_end = self._last_end.get(event.lane)
        if last_end is not None and "total_s" in metrics and self.options.is_timed:
            overhead_s = now - last_end - metrics["total_s"] - metrics.get("instruments_s", 0.0)
            # On a busy machine this process may learn of the first start late; the others follow an end that it knows.
            if overhead_s >= 0:
                metrics["overhead_s"] = overhead_s
        self._last_end[event.lane] = now
        if self.options.mode == "shared":
            record.share_of_time_s = seconds_of_run(record) * record.config.get("world_size", 1) / self.ranks
            leave_out_times(record)
        return record

    def skipped(self, run: Run) -> RunRecord:
        """The record of a run that is not feasible."""
        return self._record(run, Outcome.SKIPPED, run.skip)

    def _record(self, run: Run, outcome: Outcome, reason: str) -> RunRecord:
        oversubscribed = outcome is not Outcome.SKIPPED and self.oversubscribes(run.config)
        return RunRecord(
            run_id=run.run_id,
            trial_id=run.trial_id,
            workload=self.workload.name,
            repeat=run.repeat,
            order=run.order,
            order_seed=self.plan.order_seed,
            seed=run.seed,
            outcome=outcome,
            reason=reason,
            config={**self.plan.fixed, **run.values},
            sweep=self.options.name,
            session=self.session,
            mode=self.options.mode,
            proposed=dict(run.proposed),
            oversubscribed=oversubscribed,
            started_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
            code=dict(run.identity.code),
            data=dict(run.identity.data),
            machine=provenance.machine_facts(),
            versions=provenance.describe_versions(),
            git=provenance.describe_git(),
        )


def speed_of(record: RunRecord) -> float | None:
    """The throughput of a run, else runs per second; None if it did not end ok."""
    if record.outcome is not Outcome.OK:
        return None
    for name in workload_of(record.config).throughput:
        if record.metrics.get(name):
            return record.metrics[name]
    return 1 / record.metrics["total_s"]


def leave_out_times(record: RunRecord) -> None:
    """Remove the numbers that mean nothing where runs shared the machines: no table and no file has them then."""
    measured: list[RunRecord | RankRecord | EpochRecord] = [record, *record.ranks, *record.epochs]
    for rank in record.ranks:
        measured += rank.epochs
        rank.step_ms_quantiles = []
        rank.utilization = {}
    for part in measured:
        part.metrics = {name: value for name, value in part.metrics.items() if not is_time(name)}


def describe_session(plan: Plan, options: Options, space: SearchSpace | None = None) -> dict[str, Any]:
    """One call of a sweep, as sweep.json records it.

    Args:
        plan: its runs.
        options: how they are run.
        space: what a searcher proposes from, with its code and data.
    """
    proposable = space.run_of_each_choice() if space else []
    identity = join_identities(run.identity for run in (*plan.runs, *proposable))
    session: dict[str, Any] = {
        # The words of the command line; none in a notebook.
        "command": _command(),
        "name": options.name,
        "question": options.question,
        "axis": options.axis,
        "axes": {name: list(values) for name, values in plan.axes.items()},
        "changed": list(plan.changed),
        "repeats": plan.repeats,
        "order_seed": plan.order_seed,
        "mode": options.mode,
        "machine": provenance.machine_facts(),
        "versions": provenance.describe_versions(),
        "git": provenance.describe_git(),
        "user_git": provenance.describe_checkout(_code_of_the_user(identity)),
        "environment": provenance.describe_environment(),
    }
    if options.until is not None:
        session |= {"repeats": min(FIRST_LOOK, plan.repeats), "until": asdict(options.until)}
    if options.search or options.metric is not None:
        session |= {"metric": options.searched_metric, "minimizes": minimizes(options)}
    if not options.search:
        session["trials"] = list(dict.fromkeys(run.trial_id for run in plan.runs))
    if identity.code:
        session["code"] = dict(identity.code)
    if identity.data:
        session["data"] = dict(identity.data)
    return session


def _command() -> list[str]:
    if "ipykernel" in sys.modules:
        return []
    program = os.path.basename(sys.argv[0])
    return ["dmls-ray", *sys.argv[1:]] if program == "dmls-ray" else ["python", *sys.argv]


def _code_of_the_user(identity: Identity) -> Path:
    """The file of the first module that is the user's; without one the script, and in a notebook the working folder."""
    files = filter(None, map(file_of_user_module, identity.modules))
    script = Path(getattr(sys.modules["__main__"], "__file__", None) or os.getcwd())
    if Path(provenance.__file__).parents[1] in script.parents:
        script = Path.cwd()  # `python -m dmls_ray` is none of the user's
    return next(files, None) or script
