"""What a person sees while a sweep runs: a live view in a terminal, one plain line a run in a pipe or a job log."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from dmls_ray.config.grid import Run
from dmls_ray.execution.estimate import Durations
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.util.text import escape_control_chars

_UNKNOWN = ""
"""Stands for the trials that a searcher is still to propose."""

_OWN_SHOWN = 3
"""Measures of the user's own that a line has room for."""


class View(Protocol):
    """Is told what happens."""

    def __enter__(self) -> View: ...
    def __exit__(self, *_: object) -> None: ...
    def note(self, text: str) -> None:
        """Something to know, in a line."""

    def begin(
        self, pending: Sequence[Run], records: Sequence[RunRecord], varied: Sequence[str], *, total: int | None = None
    ) -> None:
        """These runs are to come, in this order, or so many unknown ones; those records are there already."""

    def event(self, run: Run, event: Mapping[str, Any]) -> None:
        """A run has started, or ended an epoch."""

    def done(self, run: Run, record: RunRecord) -> None:
        """A run has ended."""


class Progress:
    """How far a sweep is.

    Args:
        pending: the runs to come, in their order.
        records: all that is known: earlier runs of this folder, too.
        varied: the fields that tell runs apart.
        total: how many runs are to come, where nobody knows yet which.
    """

    def __init__(
        self,
        pending: Sequence[Run] = (),
        records: Sequence[RunRecord] = (),
        varied: Sequence[str] = (),
        *,
        total: int | None = None,
    ) -> None:
        self.total, self.ended = len(pending) if total is None else total, 0
        self.began = time.monotonic()
        self._varied = tuple(varied)
        self._durations = Durations(records)
        self._left = Counter(run.trial_id for run in pending)
        if total is not None:
            self._left[_UNKNOWN] = total

    def end(self, record: RunRecord) -> None:
        """A run has ended."""
        self.ended += 1
        self._durations.add(record)
        self._left[record.trial_id if record.trial_id in self._left else _UNKNOWN] -= 1

    @property
    def left_s(self) -> float | None:
        """Seconds until the last run ends, from what the same or similar runs took; None before one is known."""
        left = {trial_id: count for trial_id, count in self._left.items() if count}
        each = {trial_id: self._durations.expected_s(trial_id) for trial_id in left}
        if None in each.values():
            return None
        return sum((each[trial_id] or 0.0) * count for trial_id, count in left.items())

    def name(self, run: Run) -> str:
        """What to call a run."""
        return run.label(self._varied)


class PlainView:
    """One line a run."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress()

    def __enter__(self) -> PlainView:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to take down."""

    def note(self, text: str) -> None:
        self._line(text)

    def begin(
        self, pending: Sequence[Run], records: Sequence[RunRecord], varied: Sequence[str], *, total: int | None = None
    ) -> None:
        self._progress = Progress(pending, records, varied, total=total)

    def event(self, run: Run, event: Mapping[str, Any]) -> None:
        if event["kind"] == "start" and event["attempt"] > 1:
            self._line(f"{self._progress.name(run)}: a rank died; attempt {event['attempt']}")

    def done(self, run: Run, record: RunRecord) -> None:
        progress = self._progress
        progress.end(record)
        width = len(str(progress.total))
        left = progress.left_s
        tail = f", about {duration(left)} left" if left else ""
        self._line(f"[{progress.ended:{width}}/{progress.total}] {progress.name(run)}: {told(record)}{tail}")

    def _line(self, text: str) -> None:
        self._console.print(escape_control_chars(text), highlight=False, markup=False, emoji=False, soft_wrap=True)


class LiveView:
    """A table of the latest runs, the one under way with its epoch and loss, and the time left."""

    _SHOWN = 8

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress()
        self._latest: list[tuple[str, RunRecord]] = []
        self._under_way = ""
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

    def event(self, run: Run, event: Mapping[str, Any]) -> None:
        name = self._progress.name(run)
        if event["kind"] == "start":
            again = f", attempt {event['attempt']}: a rank died" if event["attempt"] > 1 else ""
            self._under_way = f"{name}{again}"
        elif event["kind"] == "epoch":
            epochs = run.values.get("epochs")
            self._under_way = f"{name}  epoch {event['epoch']}" + (f"/{epochs}" if epochs else "")
            if event.get("train_loss") is not None:
                self._under_way += f"  loss {event['train_loss']:.4f}"
            if event.get("test_accuracy") is not None:
                self._under_way += f"  test accuracy {event['test_accuracy']:.3f}"
            self._under_way += "".join(f"  {text}" for text in _own_measures(event.get("measures", {})))

    def done(self, run: Run, record: RunRecord) -> None:
        self._progress.end(record)
        self._latest = [*self._latest, (self._progress.name(run), record)][-self._SHOWN :]
        self._under_way = ""

    def render(self) -> Group:
        """What the terminal shows now."""
        progress = self._progress
        rows = Table(box=None, padding=(0, 2), show_header=bool(self._latest))
        own = any(record.measures for _, record in self._latest)
        for head in ("run", "outcome", *(("measures",) if own else ("images/s", "test acc.")), "s"):
            rows.add_column(head, justify="left" if head in ("run", "outcome") else "right", no_wrap=True)
        for name, record in self._latest:
            style = "" if record.outcome is Outcome.OK else "yellow" if record.outcome.is_answer() else "red"
            rows.add_row(
                Text(escape_control_chars(name), style=style),
                Text(record.outcome.value, style=style),
                *(
                    (escape_control_chars(", ".join(_own_measures(record.measures))),)
                    if own
                    else (_number(record.images_per_s, "{:,.0f}"), _number(record.test_accuracy, "{:.3f}"))
                ),
                _number(record.total_s, "{:.2f}"),
            )
        left = progress.left_s if progress.total else None
        bar = Table.grid(padding=(0, 1))
        bar.add_row(
            ProgressBar(total=max(progress.total, 1), completed=progress.ended, width=30),
            Text(f"{progress.ended}/{progress.total} runs"),
            Text(f"{duration(time.monotonic() - progress.began)} gone"),
            Text(f"about {duration(left)} left" if left is not None else ""),
        )
        return Group(rows, Text(escape_control_chars(self._under_way), style="cyan", no_wrap=True), bar)


def make_view(console: Console) -> View:
    """The live view in a terminal, else plain lines."""
    return LiveView(console) if console.is_terminal and not console.is_dumb_terminal else PlainView(console)


def told(record: RunRecord) -> str:
    """A run's end in a few words."""
    if record.outcome is not Outcome.OK:
        return f"{record.outcome.value}: {record.reason}" if record.reason else record.outcome.value
    form_of = {"images_per_s": "{:,.0f} images/s", "test_accuracy": "test accuracy {:.3f}"}
    values = {form: getattr(record, name) for name, form in form_of.items()}
    parts = [form.format(value) for form, value in values.items() if value is not None]
    seconds = [] if record.total_s is None else [f"{record.total_s:.2f} s"]
    if record.stopped_epoch:
        parts.append(f"stopped after epoch {record.stopped_epoch}")
    if record.mode == "search":
        seconds = []
        parts = [part for part in parts if not part.endswith("images/s")]
    return ", ".join(["ok", *parts, *_own_measures(record.measures), *seconds])


def _own_measures(measures: Mapping[str, Any]) -> list[str]:
    """The first numbers that a training function of the user's own told."""
    numbers = {name: value for name, value in measures.items() if isinstance(value, int | float)}
    return [f"{name} {value:.4g}" for name, value in list(numbers.items())[:_OWN_SHOWN]]


def duration(seconds: float) -> str:
    """Seconds as a person says them."""
    whole = round(seconds)
    if whole < 120:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60:02d} s" if whole < 7200 else f"{whole / 3600:.1f} h"


def _number(value: float | None, form: str) -> str:
    return "" if value is None else form.format(value)
