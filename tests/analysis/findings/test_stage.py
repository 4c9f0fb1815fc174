"""How many blocks a sweep has that repeats its trials until its comparisons are decided, and how many may follow."""

from __future__ import annotations

from dmls_ray.analysis.findings.stage import Stage
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.table.build import make_table
from dmls_ray.config.until import Until
from dmls_ray.records.outcome import Outcome
from tests.analysis.samples import results

BATCHES = {"batch_per_rank": [16, 32]}
LONG = Until(budget=None)


def stage(repeats: int, until: Until = LONG, rate: float = 1000.0) -> Stage:
    """Of two trials; a run takes 2000 / rate seconds."""
    return Stage(results(BATCHES, lambda values, repeat: rate, repeats=repeats).records, until)


def test_a_block_counts_when_every_trial_has_ended_in_it() -> None:
    assert stage(4).blocks == 4
    records = results(BATCHES, lambda values, repeat: 100.0, repeats=4).records
    assert Stage(records[:-1], LONG).blocks == 3
    assert Stage([], LONG).blocks == 0
    records[-1].outcome = Outcome.KILLED
    assert Stage(records, LONG).blocks == 4, "a run that was killed is not run again in this call"


def test_trials_that_are_added_to_a_sweep_have_their_share_of_its_time() -> None:
    """A run takes 2 s; the first trial has 9 blocks, and the others have had their first three."""
    records = results({"batch_per_rank": [16, 32, 64]}, lambda values, repeat: 1000.0, repeats=9).records
    records = [record for record in records if record.config["batch_per_rank"] == 16 or record.repeat < 3]
    found = Stage(records, Until(budget=36))
    assert found.blocks == 3
    assert found.most == 3 + 36 / 6
    assert (found.next_blocks, found.next_s) == (5, 2 * 2 * 2), "the first trial has these runs already"
    assert Stage(records, Until(budget=5)).is_last


def test_a_trial_of_which_no_run_ended_ok_takes_no_part_in_further_blocks() -> None:
    records = results(BATCHES, lambda values, repeat: None if values["batch_per_rank"] == 32 else 100.0).records
    found = Stage(records[:-1], LONG)
    assert found.blocks == 3
    assert found.trials == {record.trial_id for record in records if record.config["batch_per_rank"] == 16}


def test_looks_come_at_growing_numbers_of_blocks_up_to_the_most() -> None:
    assert [stage(blocks).next_blocks for blocks in (1, 3, 5, 8, 9, 12, 19)] == [3, 5, 8, 12, 12, 19, 30]
    assert stage(3, Until(budget=None, max_repeats=4)).next_blocks == 4
    assert not stage(29).is_last
    assert stage(30).is_last
    assert stage(40).most == 40


def test_no_block_follows_that_would_not_end_within_the_budget() -> None:
    """A run takes 2 s, and a block 4 s."""
    assert stage(3, Until(budget=9)).next_blocks == 5
    assert stage(3, Until(budget=7)).next_blocks == 4
    assert stage(3, Until(budget=3.9)).is_last
    assert stage(4, Until(budget=7.9)).is_last, "4 s of it are spent"
    assert stage(3, Until(budget=60), rate=1.0).is_last, "runs of half an hour"


def test_intervals_are_wider_where_blocks_were_added_until_all_was_decided() -> None:
    def width(swept: Results, until: Until | None) -> float:
        swept.until = until
        first, last = make_table(swept).rows
        found = last.speed_against(first)
        assert found is not None
        assert found.half_width is not None
        return found.half_width

    swept = results(BATCHES, lambda values, repeat: 100 + (repeat * values["batch_per_rank"]) % 7, repeats=5)
    given, stopped, last = (width(swept, until) for until in (None, LONG, Until(budget=0)))
    assert given < last < stopped
    swept = results(BATCHES, lambda values, repeat: 100 + (repeat * values["batch_per_rank"]) % 7)
    given, stopped, last = (width(swept, until) for until in (None, LONG, Until(budget=0)))
    assert given == last < stopped, "three blocks of a sweep that has no time for more were not looked at twice"
