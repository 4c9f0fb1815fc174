"""The numbers that a script prints or logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmls_ray.records.model import Series
from dmls_ray.workloads.script.printed import numbers_printed
from dmls_ray.workloads.script.told_numbers import ToldNumbers, is_counter


@pytest.mark.parametrize(
    "name",
    ["step", "global_step", "trainer/global_step", "Epoch", "iter", "elapsed", "_timestamp", "wallTime"],
)
def test_counters_and_times_are_known_by_a_word(name: str) -> None:
    assert is_counter(name)


@pytest.mark.parametrize("name", ["loss", "train_loss_step", "epoch_acc", "stepwise", "timeliness", "lr"])
def test_results_are_no_counters(name: str) -> None:
    assert not is_counter(name)


def test_lines_of_json_are_numbers_in_their_order_without_counters(tmp_path: Path) -> None:
    log = tmp_path / "rank0.log"
    log.write_text('{"step": 0, "loss": 3.0}\nepoch: 7\n{"step": 1, "loss": 2.0, "ok": true}\n')
    told = numbers_printed(str(log), {})
    assert told.last == {"loss": 2.0}
    assert told.series({"loss": "measured_loss"}) == {"measured_loss": Series(first=[3.0, 2.0], count=2)}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.5, acc 3", 0.5),
        ("0.5.", 0.5),
        ("95.00%", 95.0),
        ("\x1b[32m0.5\x1b[0m", 0.5),
        ("1e-3\x1b[K)", 1e-3),
        ("2,234,567", "2,234,567"),
        ("n/a", "n/a"),
    ],
)
def test_a_number_of_a_pattern_may_have_marks_behind_it(tmp_path: Path, text: str, value: float | str) -> None:
    log = tmp_path / "rank0.log"
    log.write_text(f"loss {text}\n")
    assert numbers_printed(str(log), {"loss": r"loss (\S+)"}).last == {"loss": value}


def test_a_counter_that_a_pattern_asks_for_is_taken(tmp_path: Path) -> None:
    log = tmp_path / "rank0.log"
    log.write_text('{"epoch": 3}\nepoch: 7\n')
    assert numbers_printed(str(log), {"epoch": r"epoch: (\d+)"}).last == {"epoch": 7.0}


def test_the_first_fifty_values_of_thirty_numbers_are_kept_and_all_are_counted() -> None:
    told = ToldNumbers()
    for value in range(60):
        for number in range(40):
            told.add(f"n{number}", float(value))
    series = told.series({f"n{number}": f"n{number}" for number in range(40)})
    assert [len(item.first) for item in series.values()] == [50] * 30 + [0] * 10
    assert {item.count for item in series.values()} == {60}


def test_what_is_printed_replaces_what_is_logged_under_its_name() -> None:
    logged, printed = ToldNumbers(), ToldNumbers()
    logged.add("loss", 1.0)
    logged.add("acc", 0.5)
    printed.add("loss", 2.0)
    joined = logged.or_those_of(printed)
    assert joined.last == {"loss": 2.0, "acc": 0.5}
    assert joined.series({"loss": "loss"})["loss"] == Series(first=[2.0], count=1)
