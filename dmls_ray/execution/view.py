"""What a sweep shows while it runs: a plain line for each run, and in a terminal one for the run under way."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from dmls_ray.analysis.metrics import label_of
from dmls_ray.analysis.trials.disturbances import other_cores
from dmls_ray.config.grid import Run
from dmls_ray.config.value_texts import duration
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import EpochEnded, RunEvent, RunProgressed, RunStarted
from dmls_ray.storage.progress import ProgressFile
from dmls_ray.util.interpreter import discard_output, write_out_unprintable
from dmls_ray.util.text import escape_control_chars
from dmls_ray.workloads.registry import is_compared, workload_of

LOGGER = logging.getLogger("dmls_ray")
_GAP = "  "
_SPINNER = 2
"""Characters before the line of the run under way."""
_METRICS_SHOWN = 3
"""Custom metrics that one line shows."""


class ProgressConsole(Console):
    """Where a sweep prints. A reader that leaves early (`| head`) does not end the sweep, whose results are files.

    Nor does a character that the output cannot show.

    Args:
        is_aside: whether it is standard error, since the result on standard output is for a program.
    """

    def __init__(self, *, is_aside: bool = False) -> None:
        write_out_unprintable(sys.stderr if is_aside else sys.stdout)
        super().__init__(stderr=is_aside)

    def on_broken_pipe(self) -> None:
        """Discard all further output; rich calls this where a write fails for want of a reader."""
        self.quiet = True
        discard_output(sys.stderr if self.stderr else sys.stdout)


_STARTING = "Starting Ray and the ranks ..."


class View:
    """Shows the events of a sweep: prints one line for each run that has ended, with the time left.

    Args:
        console: where to.
        is_live: whether another line below has the number of runs that have ended and the run under way. It is there
            from `begin` to the end of the view as a context manager.
    """

    def __init__(self, console: Console, *, is_live: bool = False) -> None:
        self._console, self._is_live = console, is_live
        self.status = console.status(_STARTING)
        self.total, self.ended = 0, 0
        """Number of runs to come, and how many of them have ended."""
        self._first_start: float | None = None
        """When the first run started."""
        self._varied: Sequence[str] = ()
        self._unmeasured: set[str] = set()
        """Trials of the runs to come of which no run has ended."""
        self.progress: ProgressFile | None = None
        """Shows other processes how far the runs are."""
        self.lanes: Callable[[], int] = lambda: 1
        """How many lanes there are. Of several, a run is shown with its own."""

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        self.status.stop()

    def note(self, text: str) -> None:
        """Show one line of information; or give it to the logger of this package, if a program handles that."""
        if LOGGER.handlers:
            LOGGER.info(text.strip())
            return
        self._console.print(escape_control_chars(text), highlight=False, markup=False, emoji=False, soft_wrap=True)

    def begin(
        self, total: int, varied: Sequence[str], *, starts: bool = True, unmeasured: Collection[str] = ()
    ) -> None:
        """Start with a number of runs to come.

        Args:
            total: their number.
            varied: the fields that vary, which name them.
            starts: whether their ranks start now.
            unmeasured: trials of these runs of which no run has ended yet.
        """
        self._unmeasured = set(unmeasured)
        self.total, self._varied = total, varied
        self.ended, self._first_start = 0, None
        if self._is_live:
            self.status.start()
        elif starts:
            self.note(_STARTING)
        self._show_progress()

    def extend(self, more: int, reason: str) -> None:
        """Go on with a number of further runs, for this reason; empty: there is none to be shown."""
        self.total += more
        if reason:
            self.note(reason)

    def event(self, run: Run, event: RunEvent) -> None:
        """Show that a run has started, has ended an epoch, or goes on."""
        if isinstance(event, RunProgressed):
            self._show_progress(run.run_id, event.seconds_ago)
            return
        self._show_progress(run.run_id)
        parts = [f"{self.ended}/{self.total} runs", run.label(self._varied)]
        if isinstance(event, EpochEnded):
            parts += _describe_epoch(event, run.values.get("epochs"))
        under_way = escape_control_chars(_fitted(parts, self._console.width - _SPINNER))
        # What looks like mark-up in a name is none.
        self.status.update(Text(under_way, style="cyan", no_wrap=True))
        if isinstance(event, RunStarted):
            self._first_start = self._first_start or time.monotonic()
            if event.attempt > 1:
                self.note(f"{run.label(self._varied)}: {event.after}; attempt {event.attempt}")

    def done(self, run: Run, record: RunRecord) -> None:
        """Show that a run has ended."""
        self.ended += 1
        self._show_progress(run.run_id)
        width = len(str(self.total))
        self._unmeasured.discard(record.trial_id)
        left = 0.0
        if self._first_start is not None:
            # If the others take as long as those that have ended.
            left = (time.monotonic() - self._first_start) / self.ended * (self.total - self.ended)
        tail = f", about {duration(left)} left" if left else ""
        if left and self._unmeasured:
            tail += " if other settings take as long"
        place = ""
        if self.lanes() > 1 and record.attempts:
            place = f"lane {record.lane} machine {record.machine.get('host', '')}: "
        end = f"{run.label(self._varied)}: {describe_end(record)}{tail}"
        self.note(f"[{self.ended:{width}}/{self.total}] {place}{end}")

    def _show_progress(self, run_id: str = "", seconds_ago: float = 0.0) -> None:
        if self.progress is not None:
            self.progress.write(self.ended, self.total, run_id, seconds_ago)


def describe_end(record: RunRecord) -> str:
    """A run's end in a few words."""
    if record.outcome is not Outcome.OK:
        return f"{record.outcome.value}: {record.reason}" if record.reason else record.outcome.value
    metrics, is_alone = record.metrics, record.mode == "bench"
    parts = ["ok"]
    if record.is_stopped:
        parts = [f"stopped after epoch {metrics['stopped_epoch']}"]
    workload = workload_of(record.config)
    for rate in workload.throughput:
        if rate in metrics and is_alone:
            parts.append(f"{metrics[rate]:,.0f} {label_of(rate)}")
    if "test_accuracy" in metrics:
        parts.append(f"test accuracy {metrics['test_accuracy']:.3f}")
    parts += compared_metrics(metrics)
    if "total_s" in metrics and is_alone:
        parts.append(f"{metrics['total_s']:.2f} s")
    if is_alone and (cores := other_cores(record)):
        parts.append(f"other programs used {cores:.1f} cores")
    return ", ".join(parts)


def compared_metrics(metrics: Mapping[str, float]) -> list[str]:
    """The first metrics by which answers compare trials, as texts."""
    names = [name for name in metrics if is_compared(name)]
    return [f"{name} {metrics[name]:.4g}" for name in names[:_METRICS_SHOWN]]


def _fitted(parts: Sequence[str], width: int) -> str:
    """As many of the parts as a line takes, since the end of a number that is cut is another number."""
    while len(parts) > 1 and cell_len(_GAP.join(parts)) > width:
        parts = parts[:-1]
    return _GAP.join(parts)


def _describe_epoch(event: EpochEnded, epochs: int | None) -> list[str]:
    epoch, metrics = event.epoch, event.epoch.metrics
    parts = [f"epoch {epoch.epoch}/{epochs}" if epochs else f"epoch {epoch.epoch}"]
    if "train_loss" in metrics:
        parts.append(f"loss {metrics['train_loss']:.4f}")
    if "test_accuracy" in metrics:
        parts.append(f"test accuracy {metrics['test_accuracy']:.3f}")
    return [*parts, *compared_metrics(metrics)]
