"""What a person sees while a sweep runs: a plain line a run, and in a terminal a bar with the run under way."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dmls_ray.config.grid import Run
from dmls_ray.execution.view import PlainView, compared_metrics
from dmls_ray.records.model import RunRecord
from dmls_ray.records.run_events import EpochEnded, RunEvent
from dmls_ray.util.quantities import duration
from dmls_ray.util.text import escape_control_chars


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
