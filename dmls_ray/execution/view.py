"""What a sweep shows while it runs: a plain line for each run, and in a terminal a bar with the run under way."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dmls_ray.config.grid import Run
from dmls_ray.config.value_texts import duration
from dmls_ray.records.model import Durations, RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import EpochEnded, RunEvent, RunStarted
from dmls_ray.util.interpreter import discard_output, write_out_unprintable
from dmls_ray.util.text import escape_control_chars
from dmls_ray.workloads.registry import is_compared

_UNKNOWN = ""
"""Stands for the trials that a searcher is still to propose."""

_METRICS_SHOWN = 3
"""Custom metrics that one line shows."""


_READER_HAS_LEFT = "The reader of the output has left: nothing more is printed, and the sweep goes on to its end."


class ProgressConsole(Console):
    """Where a sweep prints. A reader that leaves early (`| head`) does not end the sweep, whose results are files.

    Nor does a character that the output cannot show.
    """

    def __init__(self) -> None:
        write_out_unprintable(sys.stdout)
        super().__init__()

    def on_broken_pipe(self) -> None:
        """Discard all further output; rich calls this where a write fails for want of a reader."""
        self.quiet = True
        discard_output(sys.stdout)
        try:
            print(_READER_HAS_LEFT, file=sys.stderr, flush=True)
        except BrokenPipeError:  # 2>&1
            discard_output(sys.stderr)


class PlainView:
    """Shows the events of a sweep: prints one line for each run that has ended, with the time left."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self.total, self.ended = 0, 0
        """Number of runs to come, and how many of them have ended."""
        self.began = time.monotonic()
        self._varied: Sequence[str] = ()
        self._durations = Durations()
        self._left: Counter[str] = Counter()
        """Runs to come, by trial."""

    def __enter__(self) -> PlainView:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to take down."""

    def note(self, text: str) -> None:
        """Show one line of information."""
        self._console.print(escape_control_chars(text), highlight=False, markup=False, emoji=False, soft_wrap=True)

    def begin(
        self, pending: Sequence[Run], records: Sequence[RunRecord], varied: Sequence[str], *, total: int | None = None
    ) -> None:
        """Start with the runs to come, in their order.

        Args:
            pending: the runs; empty where a searcher chooses them one by one.
            records: the records in the results folder, from which the time left is estimated.
            varied: the fields by which runs are named.
            total: number of runs to come, where they are not known yet.
        """
        self.total, self.ended, self.began = 0, 0, time.monotonic()
        self._varied, self._durations, self._left = varied, Durations(records), Counter()
        self._count(pending)
        if total is not None:
            self.total = self._left[_UNKNOWN] = total

    def _count(self, more: Sequence[Run]) -> None:
        self.total += len(more)
        self._left.update(run.trial_id for run in more)

    def extend(self, more: Sequence[Run], reason: str) -> None:
        """Go on with further runs.

        Args:
            more: the runs, in their order.
            reason: why there are more.
        """
        self._count(more)
        self.note(reason)

    def event(self, run: Run, event: RunEvent) -> None:
        """Show that a run has started or ended an epoch."""
        if isinstance(event, RunStarted) and event.attempt > 1:
            self.note(f"{run.label(self._varied)}: {event.after}; attempt {event.attempt}")

    def done(self, run: Run, record: RunRecord) -> None:
        """Show that a run has ended."""
        self.ended += 1
        self._durations.add(record)
        self._left[record.trial_id if record.trial_id in self._left else _UNKNOWN] -= 1
        width = len(str(self.total))
        left = self._left_s
        tail = f", about {duration(left)} left" if left else ""
        self.note(f"[{self.ended:{width}}/{self.total}] {run.label(self._varied)}: {describe_end(record)}{tail}")

    @property
    def _left_s(self) -> float | None:
        """Seconds until the last run ends, from what the same or similar runs took; None before one is known."""
        total = 0.0
        for trial_id, count in self._left.items():
            seconds = self._durations.expected_s(trial_id)
            if count and seconds is None:
                return None
            total += count * (seconds or 0.0)
        return total


def describe_end(record: RunRecord) -> str:
    """A run's end in a few words."""
    if record.outcome is not Outcome.OK:
        return f"{record.outcome.value}: {record.reason}" if record.reason else record.outcome.value
    metrics, is_alone = record.metrics, record.mode != "search"
    parts = ["ok"]
    if record.is_stopped:
        parts = [f"stopped after epoch {metrics['stopped_epoch']}"]
    if "images_per_s" in metrics and is_alone:
        parts.append(f"{metrics['images_per_s']:,.0f} images/s")
    if "test_accuracy" in metrics:
        parts.append(f"test accuracy {metrics['test_accuracy']:.3f}")
    parts += compared_metrics(metrics)
    if "total_s" in metrics and is_alone:
        parts.append(f"{metrics['total_s']:.2f} s")
    return ", ".join(parts)


def compared_metrics(metrics: Mapping[str, float]) -> list[str]:
    """The first metrics by which answers compare trials, as texts."""
    names = [name for name in metrics if is_compared(name)]
    return [f"{name} {metrics[name]:.4g}" for name in names[:_METRICS_SHOWN]]


class LiveView(PlainView):
    """Below the lines of `PlainView`, the run under way with its epoch and loss, and how many runs have ended."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._under_way = "starting Ray and the ranks ..."
        self._live = Live(console=console, get_renderable=self.render, refresh_per_second=8, transient=True)

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def begin(
        self, pending: Sequence[Run], records: Sequence[RunRecord], varied: Sequence[str], *, total: int | None = None
    ) -> None:
        super().begin(pending, records, varied, total=total)
        self._live.start(refresh=True)

    def event(self, run: Run, event: RunEvent) -> None:
        super().event(run, event)
        self._under_way = run.label(self._varied)
        if isinstance(event, EpochEnded):
            self._under_way += f"  {_describe_epoch(event, run.values.get('epochs'))}"

    def render(self) -> Group:
        """What the terminal shows now, below the lines."""
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            ProgressBar(total=max(self.total, 1), completed=self.ended, width=30),
            f"{self.ended}/{self.total} runs",
            f"{duration(time.monotonic() - self.began)} gone",
        )
        # What looks like mark-up in a name is none.
        return Group(Text(escape_control_chars(self._under_way), style="cyan", no_wrap=True), bar)


def _describe_epoch(event: EpochEnded, epochs: int | None) -> str:
    epoch, metrics = event.epoch, event.epoch.metrics
    parts = [f"epoch {epoch.epoch}/{epochs}" if epochs else f"epoch {epoch.epoch}"]
    if "train_loss" in metrics:
        parts.append(f"loss {metrics['train_loss']:.4f}")
    if "test_accuracy" in metrics:
        parts.append(f"test accuracy {metrics['test_accuracy']:.3f}")
    return "  ".join([*parts, *compared_metrics(metrics)])


def make_view(console: Console) -> PlainView:
    """The live view in a terminal, else plain lines."""
    return LiveView(console) if console.is_terminal and not console.is_dumb_terminal else PlainView(console)
