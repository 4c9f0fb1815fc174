"""What a person sees while a sweep runs: a live view in a terminal, one plain line a run in a pipe or a job log."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dmls_ray.config.grid import Run
from dmls_ray.execution.view import PlainView, compared_metrics, describe_end
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import EpochEnded, RunEvent, RunStarted
from dmls_ray.util.quantities import duration
from dmls_ray.util.text import escape_control_chars


class LiveView(PlainView):
    """The latest runs, the one under way with its epoch and loss, and the time left."""

    _SHOWN = 8

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._latest: list[tuple[str, RunRecord]] = []
        self._under_way = ""
        self._open = ""
        self._live = Live(console=console, get_renderable=self.render, refresh_per_second=8, transient=True)

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def note(self, text: str) -> None:
        self._console.print(escape_control_chars(text), highlight=False, markup=False, emoji=False)

    def begin(
        self, pending: Sequence[Run], records: Sequence[RunRecord], varied: Sequence[str], *, total: int | None = None
    ) -> None:
        super().begin(pending, records, varied, total=total)
        self._under_way = "starting Ray and the ranks ..."
        self._live.start(refresh=True)

    def extend(self, more: Sequence[Run], reason: str) -> None:
        self._progress.extend(more)
        self._open = reason

    def event(self, run: Run, event: RunEvent) -> None:
        name = self._progress.name(run)
        if isinstance(event, RunStarted):
            self._under_way = name
            if event.attempt > 1:
                self._under_way += f", attempt {event.attempt}: {event.after}"
        elif isinstance(event, EpochEnded):
            self._under_way = f"{name}  {_describe_epoch(event, run.values.get('epochs'))}"

    def done(self, run: Run, record: RunRecord) -> None:
        self._progress.end(record)
        self._latest = [*self._latest, (self._progress.name(run), record)][-self._SHOWN :]
        self._under_way = ""

    def render(self) -> Group:
        """What the terminal shows now."""
        progress = self._progress
        lines = [_line(f"{name}  {describe_end(record)}", _style(record)) for name, record in self._latest]
        lines.append(_line(self._under_way, "cyan"))
        if self._open:
            lines.append(_line(self._open, "dim"))
        left = progress.left_s if progress.total else None
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            ProgressBar(total=max(progress.total, 1), completed=progress.ended, width=30),
            Text(f"{progress.ended}/{progress.total} runs"),
            Text(f"{duration(time.monotonic() - progress.began)} gone"),
            Text("" if left is None else f"about {duration(left)} left"),
        )
        return Group(*lines, bar)


def _describe_epoch(event: EpochEnded, epochs: int | None) -> str:
    epoch, metrics = event.epoch, event.epoch.metrics
    parts = [f"epoch {epoch.epoch}/{epochs}" if epochs else f"epoch {epoch.epoch}"]
    if "train_loss" in metrics:
        parts.append(f"loss {metrics['train_loss']:.4f}")
    if "test_accuracy" in metrics:
        parts.append(f"test accuracy {metrics['test_accuracy']:.3f}")
    return "  ".join([*parts, *compared_metrics(metrics)])


def _line(text: str, style: str) -> Text:
    """A line as it is: what looks like mark-up in a name is none."""
    return Text(escape_control_chars(text), style=style, no_wrap=True)


def _style(record: RunRecord) -> str:
    if record.outcome is Outcome.OK:
        return ""
    return "yellow" if record.outcome.is_answer() else "red"


def make_view(console: Console) -> PlainView:
    """The live view in a terminal, else plain lines."""
    return LiveView(console) if console.is_terminal and not console.is_dumb_terminal else PlainView(console)
