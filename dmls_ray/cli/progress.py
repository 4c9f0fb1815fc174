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
from dmls_ray.execution.view import PlainView, Progress, ProgressView, compared_metrics
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import EpochEnded, RunEvent, RunStarted
from dmls_ray.util.quantities import duration
from dmls_ray.util.text import escape_control_chars


class LiveView:
    """A table of the latest runs, the one under way with its epoch and loss, and the time left."""

    _SHOWN = 8

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress()
        self._latest: list[tuple[str, RunRecord]] = []
        self._under_way = ""
        self._open = ""
        self._live = Live(console=console, get_renderable=self.render, refresh_per_second=8, transient=True)

    def __enter__(self) -> LiveView:
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def note(self, text: str) -> None:
        self._console.print(escape_control_chars(text), highlight=False, markup=False, emoji=False)

    def begin(
        self, pending: Sequence[Run], records: Sequence[RunRecord], varied: Sequence[str], *, total: int | None = None
    ) -> None:
        self._progress = Progress(pending, records, varied, total=total)
        self._under_way = "starting Ray and the ranks ..."
        self._live.start(refresh=True)

    def extend(self, more: Sequence[Run], reason: str) -> None:
        self._progress.extend(more)
        self._open = reason

    def event(self, run: Run, event: RunEvent) -> None:
        name = self._progress.name(run)
        if isinstance(event, RunStarted):
            again = f", attempt {event.attempt}: {event.after}" if event.attempt > 1 else ""
            self._under_way = f"{name}{again}"
        elif isinstance(event, EpochEnded):
            epoch, epochs = event.epoch, run.values.get("epochs")
            self._under_way = f"{name}  epoch {epoch.epoch}" + (f"/{epochs}" if epochs else "")
            metrics = epoch.metrics
            if "train_loss" in metrics:
                self._under_way += f"  loss {metrics['train_loss']:.4f}"
            if "test_accuracy" in metrics:
                self._under_way += f"  test accuracy {metrics['test_accuracy']:.3f}"
            self._under_way += "".join(f"  {text}" for text in compared_metrics(metrics))

    def done(self, run: Run, record: RunRecord) -> None:
        self._progress.end(record)
        self._latest = [*self._latest, (self._progress.name(run), record)][-self._SHOWN :]
        self._under_way = ""

    def render(self) -> Group:
        """What the terminal shows now."""
        progress = self._progress
        rows = Table(box=None, padding=(0, 2), show_header=bool(self._latest))
        shown = [record for _, record in self._latest]
        columns = {
            "images/s": [_number(record.metrics.get("images_per_s"), "{:,.0f}") for record in shown],
            "test acc.": [_number(record.metrics.get("test_accuracy"), "{:.3f}") for record in shown],
            "metrics": [escape_control_chars(", ".join(compared_metrics(record.metrics))) for record in shown],
            "s": [_number(record.metrics.get("total_s"), "{:.2f}") for record in shown],
        }
        columns = {head: values for head, values in columns.items() if any(values)}
        for head in ("run", "outcome", *columns):
            rows.add_column(head, justify="left" if head in ("run", "outcome") else "right", no_wrap=True)
        for (name, record), *values in zip(self._latest, *columns.values(), strict=True):
            style = "" if record.outcome is Outcome.OK else "yellow" if record.outcome.is_answer() else "red"
            # Texts, since what looks like mark-up in a name is none.
            texts = [Text(escape_control_chars(name), style=style), Text(record.ending, style=style)]
            rows.add_row(*texts, *map(Text, values))
        left = progress.left_s if progress.total else None
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            ProgressBar(total=max(progress.total, 1), completed=progress.ended, width=30),
            Text(f"{progress.ended}/{progress.total} runs"),
            Text(f"{duration(time.monotonic() - progress.began)} gone"),
            Text(f"about {duration(left)} left" if left is not None else ""),
        )
        lines = [Text(escape_control_chars(self._under_way), style="cyan", no_wrap=True)]
        if self._open:
            lines.append(Text(escape_control_chars(self._open), style="dim"))
        return Group(rows, *lines, bar)


def make_view(console: Console) -> ProgressView:
    """The live view in a terminal, else plain lines."""
    return LiveView(console) if console.is_terminal and not console.is_dumb_terminal else PlainView(console)


def _number(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
