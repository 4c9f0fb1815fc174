from __future__ import annotations

import io
import itertools
import logging.handlers
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.text import Text

from dmls_ray.execution import view as view_module
from dmls_ray.execution.planning import make_plan
from dmls_ray.execution.view import View, describe_end
from dmls_ray.records.model import EpochRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import EpochEnded, RunStarted
from tests.records.test_model import record

PLAN = make_plan({"batch_per_rank": [16, 32], "epochs": 3}, repeats=1)
EPOCH = EpochEnded(epoch=EpochRecord(epoch=2, metrics={"train_loss": 0.25, "test_accuracy": 0.5}))


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time that passes by a second at each look."""
    monkeypatch.setattr(view_module, "time", SimpleNamespace(monotonic=itertools.count(1.0).__next__))


def watch(view: View) -> None:
    with view:
        view.begin(2, PLAN.varied)
        view.event(PLAN.runs[0], RunStarted(attempt=1))
        view.event(PLAN.runs[0], EPOCH)
        view.done(PLAN.runs[0], record(metrics={"images_per_s": 1234.0, "test_accuracy": 0.5, "total_s": 2.0}))
        view.event(PLAN.runs[1], RunStarted(attempt=1))
        view.event(PLAN.runs[1], RunStarted(attempt=2, after="no progress for 600 s (stall_timeout)"))
        view.done(PLAN.runs[1], record(outcome=Outcome.OOM, reason="8 GiB asked for"))


def test_a_pipe_gets_one_plain_line_a_run() -> None:
    out = io.StringIO()
    watch(View(Console(file=out, width=60)))
    first, second = (run.values["batch_per_rank"] for run in PLAN.runs)
    assert out.getvalue().splitlines() == [
        "Starting Ray and the ranks ...",
        f"[1/2] batch_per_rank={first} repeat=0: ok, 1,234 images/s, test accuracy 0.500, 2.00 s, about 1 s left",
        f"batch_per_rank={second} repeat=0: no progress for 600 s (stall_timeout); attempt 2",
        f"[2/2] batch_per_rank={second} repeat=0: oom: 8 GiB asked for",
    ]


def test_the_time_left_is_one_of_other_settings_until_each_has_a_run() -> None:
    out = io.StringIO()
    plan = make_plan({"batch_per_rank": [16, 32]}, repeats=2)
    with View(Console(file=out, width=100)) as view:
        view.begin(4, plan.varied, unmeasured={run.trial_id for run in plan.runs})
        for run in plan.runs:
            view.event(run, RunStarted(attempt=1))
            view.done(run, record(trial_id=run.trial_id, metrics={"total_s": 2.0}))
    ends = [line.rpartition("2.00 s")[2] for line in out.getvalue().splitlines()[1:]]
    assert [end.partition(" left")[2] for end in ends] == [" if other settings take as long", "", "", ""]


def test_a_terminal_gets_the_run_under_way_with_epoch_and_loss_below_the_lines() -> None:
    out = io.StringIO()
    with View(Console(file=out, width=100, force_terminal=True), is_live=True) as view:
        view.begin(2, PLAN.varied)
        view.event(PLAN.runs[0], RunStarted(attempt=1))
        view.event(PLAN.runs[0], EPOCH)
        under_way = str(view.status.status)
        view.done(PLAN.runs[0], record(metrics={"[red]loss": 1.0, "[/x]": 2.0, "total_s": 2.0}))
    assert under_way.startswith("0/2 runs  batch_per_rank=")
    assert under_way.endswith("  epoch 2/3  loss 0.2500  test accuracy 0.500")
    assert "ok, [red]loss 1, [/x] 2, 2.00 s, about " in Text.from_ansi(out.getvalue()).plain


@pytest.mark.parametrize(("width", "end"), [(80, "  loss 0.2500"), (60, "  epoch 2/3"), (30, "0/2 runs")])
def test_a_narrow_terminal_shows_less_of_the_run_under_way_and_cuts_no_number(width: int, end: str) -> None:
    view = View(Console(file=io.StringIO(), width=width, force_terminal=True))
    view.begin(2, PLAN.varied)
    view.event(PLAN.runs[0], EPOCH)
    assert str(view.status.status).endswith(end)
    assert len(str(view.status.status)) <= width - 2


def test_a_run_that_a_search_stopped_is_not_shown_as_ok() -> None:
    stopped = record(mode="search", metrics={"stopped_epoch": 2, "test_accuracy": 0.5})
    assert describe_end(stopped) == "stopped after epoch 2, test accuracy 0.500"


def test_a_handler_of_the_package_gets_the_lines_and_then_nothing_is_printed() -> None:
    printed, handler = io.StringIO(), logging.handlers.BufferingHandler(100)
    view = View(Console(file=printed))
    view_module.LOGGER.addHandler(handler)
    view_module.LOGGER.setLevel(logging.INFO)
    try:
        view.note("\n100% of [red]it")
    finally:
        view_module.LOGGER.removeHandler(handler)
        view_module.LOGGER.setLevel(logging.NOTSET)
    assert [item.getMessage() for item in handler.buffer] == ["100% of [red]it"]
    assert printed.getvalue() == ""
    view.note("again")
    assert printed.getvalue() == "again\n"
