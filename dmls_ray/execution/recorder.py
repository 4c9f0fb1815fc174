"""`Recorder`: from the events of a run to its record; and the entry of a call of a sweep in sweep.json."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dmls_ray.analysis.stats.looks import FIRST_LOOK
from dmls_ray.config.grid import Plan, Run
from dmls_ray.config.identity import Identity, join_identities
from dmls_ray.config.options import Options
from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.execution.planning import search_minimizes
from dmls_ray.records.aggregate import take_epochs, take_results
from dmls_ray.records.epoch_and_rank import EpochRecord
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.provenance import (
    describe_checkout,
    describe_environment,
    describe_git,
    describe_machine,
    describe_versions,
    load_average,
    machine_text,
)
from dmls_ray.records.run_events import RunFinished, RunStarted
from dmls_ray.util.source_digest import file_of_user_module
from dmls_ray.workloads.base import Workload


@dataclass
class Recorder:
    """Makes the records of one call of a sweep."""

    plan: Plan
    options: Options
    workload: Workload
    session: str
    """When the call began: names it in its records."""
    oversubscribes: Callable[[RuntimeConfig], bool] = lambda config: False
    """Whether a configuration has more threads than the cluster has cores."""
    _started: dict[str, tuple[str, float | None]] = field(init=False, default_factory=dict)
    """Start (UTC) and load average of each run that is under way."""
    _epochs: dict[str, list[EpochRecord]] = field(init=False, default_factory=dict)
    _configs: dict[str, dict[str, Any]] = field(init=False, default_factory=dict)
    """By trial: one object for all of its records."""
    _last_end: float | None = field(init=False, default=None)

    def started(self, run: Run, event: RunStarted) -> RunRecord:
        """Note the start of a run, and return the record that it would have if it never ended."""
        self._started[run.run_id] = (_now(), load_average())
        self._epochs[run.run_id] = []
        self._last_end = self._last_end or time.monotonic()
        record = self._record(run, Outcome.KILLED, "")
        record.started_at, record.load_average = self._started[run.run_id]
        record.attempts = event.attempt
        return record

    def epoch_ended(self, run: Run, epoch: EpochRecord) -> None:
        """Keep an epoch, in case the run is cut short."""
        self._epochs[run.run_id].append(epoch)

    def finished(self, run: Run, event: RunFinished) -> RunRecord:
        """The record of a run that has ended."""
        record = self._record(run, event.verdict.outcome, event.verdict.reason)
        record.traceback = event.verdict.traceback
        record.attempts = event.attempts
        record.earlier_attempts = [asdict(attempt) for attempt in event.earlier]
        if run.run_id in self._started:
            # Else it was skipped.
            record.started_at, record.load_average = self._started.pop(run.run_id)
        take_results(record, event.results, self.workload.metrics)
        if event.machines:
            first, *others = event.machines
            record.machine = {**first, "beside": [machine_text(machine) for machine in others]} if others else first

        epochs = self._epochs.pop(run.run_id, [])
        if not record.epochs and epochs:
            # The run was cut short, or its ranks return no epochs.
            take_epochs(record, epochs, self.workload.metrics)

        now = time.monotonic()
        # Runs of a search overlap, so the time between two ends says nothing.
        metrics = record.metrics
        if self._last_end is not None and "total_s" in metrics and self.options.mode == "bench":
            overhead_s = now - self._last_end - metrics["total_s"] - metrics.get("instruments_s", 0.0)
            # On a busy machine this process may learn of the first start late; the others follow an end that it knows.
            if overhead_s >= 0:
                metrics["overhead_s"] = overhead_s
        self._last_end = now
        return record

    def skipped(self, run: Run) -> RunRecord:
        """The record of a run that is not feasible."""
        return self._record(run, Outcome.SKIPPED, run.skip)

    def _record(self, run: Run, outcome: Outcome, reason: str) -> RunRecord:
        oversubscribed = run.config is not None and outcome is not Outcome.SKIPPED and self.oversubscribes(run.config)
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
            config=self._configs.setdefault(run.trial_id, dict(run.values)),
            sweep=self.options.name,
            session=self.session,
            isolation=self.options.isolation,
            mode=self.options.mode,
            proposed=dict(run.proposed),
            oversubscribed=oversubscribed,
            started_at=_now(),
            code=dict(run.identity.code),
            data=dict(run.identity.data),
            machine=describe_machine(),
            versions=describe_versions(),
            git=describe_git(),
        )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def describe_session(plan: Plan, options: Options, proposable: Iterable[Run] = ()) -> dict[str, Any]:
    """One call of a sweep, as sweep.json records it.

    Args:
        plan: its runs.
        options: how they are run.
        proposable: runs with the code and data of those that a searcher may propose.
    """
    identity = join_identities(run.identity for run in (*plan.runs, *proposable))
    return {
        # The words of the command line; none in a notebook.
        "command": [] if "ipykernel" in sys.modules else ["python", *sys.argv],
        "name": options.name,
        "question": options.question,
        "axis": options.axis,
        "axes": {name: list(values) for name, values in plan.axes.items()},
        "changed": list(plan.changed),
        "repeats": plan.repeats if options.until is None else min(FIRST_LOOK, plan.repeats),
        **({} if options.until is None else {"until": options.until.describe()}),
        **({} if options.mode == "search" else {"trials": list(dict.fromkeys(run.trial_id for run in plan.runs))}),
        "order_seed": plan.order_seed,
        "isolation": options.isolation,
        "mode": options.mode,
        **({"metric": options.metric, "minimizes": search_minimizes(options)} if options.mode == "search" else {}),
        **({"code": dict(identity.code)} if identity.code else {}),
        **({"data": dict(identity.data)} if identity.data else {}),
        "machine": describe_machine(),
        "versions": describe_versions(),
        "git": describe_git(),
        "user_git": describe_checkout(_code_of_the_user(identity)),
        "environment": describe_environment(),
    }


def _code_of_the_user(identity: Identity) -> Path:
    """The file of the first module that is the user's; without one the script, and in a notebook the working folder."""
    files = filter(None, map(file_of_user_module, identity.modules))
    script = getattr(sys.modules["__main__"], "__file__", None)
    return next(files, None) or Path(script or os.getcwd())
