"""What counts as lost, twice and wrong."""

from __future__ import annotations

from benchmarks.chaos.check import Key, compare, measured
from dmls_ray.records.epoch_and_rank import EpochRecord
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from tests.records.test_model import record

PLANNED: list[Key] = [(8, 1, 0), (8, 1, 1), (8, 2, 0)]


def row(key: Key, *, loss: float = 1.0, outcome: Outcome = Outcome.OK, **changes: object) -> RunRecord:
    batch, size, repeat = key
    made = record(repeat=repeat, config={"batch_per_rank": batch, "world_size": size}, outcome=outcome, **changes)
    made.epochs = [EpochRecord(epoch=1, metrics={"train_loss": loss})]
    return made


EXPECTED = {key: measured(row(key)) for key in PLANNED}


def lines(*rows: RunRecord) -> list[bytes]:
    return [item.to_json() for item in rows]


def test_each_run_with_one_equal_row_is_neither_lost_nor_twice_nor_wrong() -> None:
    earlier = row(PLANNED[0], outcome=Outcome.SKIPPED)
    counts = compare(lines(earlier, *map(row, PLANNED)), PLANNED, EXPECTED, reported=["a", "b", "c"])
    assert not counts.is_bad
    assert counts.ok == 3
    assert counts.examples == []


def test_a_run_without_an_ok_row_is_lost_unless_a_fault_explains_its_outcome() -> None:
    rows = lines(row(PLANNED[0]), row(PLANNED[1], outcome=Outcome.OOM))
    counts = compare(rows, PLANNED, EXPECTED)
    assert (counts.lost, counts.explained) == (2, 0)
    counts = compare(rows, PLANNED, EXPECTED, explained={"oom"})
    assert (counts.lost, counts.explained) == (1, 1)
    assert counts.examples == ["(8, 2, 0) is lost: no row"]


def test_a_row_that_was_printed_and_is_not_there_is_lost() -> None:
    rows = lines(*map(row, PLANNED))
    assert compare(rows, PLANNED, EXPECTED, reported=["a", "b", "c", "a"]).lost == 0
    assert compare(rows, PLANNED, EXPECTED, reported=["a", "b", "c", "d"]).lost == 1


def test_a_second_ok_row_is_twice_and_a_loss_that_differs_in_a_bit_is_wrong() -> None:
    again = row(PLANNED[0], loss=1.0 + 2**-52)
    counts = compare(lines(*map(row, PLANNED), again), PLANNED, EXPECTED)
    assert (counts.lost, counts.twice, counts.wrong) == (0, 1, 1)
    assert counts.is_bad
