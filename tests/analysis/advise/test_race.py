"""Which trials of a race are beaten."""

from __future__ import annotations

from typing import Any

from dmls_ray.analysis.advise.rank import race_for
from dmls_ray.analysis.findings.question import Decision, decide
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.model import Table
from dmls_ray.config.options import Until
from tests.analysis.samples import results

BATCHES = {"batch_per_rank": [16, 32, 64]}
RACE = Until(race=True, aim="throughput", budget=None)


def decision(table: Table) -> Decision:
    return decide(table, ["batch_per_rank"], race_for)


def rate(values: dict[str, Any], repeat: int) -> float:
    """16 is a third as fast as the others, which are equal and noisy."""
    batch = values["batch_per_rank"]
    return 100.0 + repeat if batch == 16 else 300 * (1 + 0.2 * ((repeat * batch) % 3))


def test_a_trial_is_beaten_when_its_interval_excludes_that_it_is_as_good_as_the_best() -> None:
    beaten, claims = race_for(make_table(results(BATCHES, rate, repeats=5)), "throughput")
    assert [row.factors["batch_per_rank"] for row in beaten] == [16]
    assert [claim.measure.name for claim in claims] == ["speed"]
    assert {claim.pair.field for claim in claims} == {""}


def test_the_aim_decides_what_is_better() -> None:
    def accuracy(values: dict[str, Any], repeat: int) -> float:
        return 0.9 + 0.001 * repeat if values["batch_per_rank"] == 16 else 0.5

    swept = results(BATCHES, rate, repeats=5, accuracy=accuracy)
    beaten, claims = race_for(make_table(swept), "accuracy")
    assert [row.factors["batch_per_rank"] for row in beaten] == [32, 64]
    assert claims == []
    beaten, _ = race_for(make_table(swept), "memory")
    assert [row.factors["batch_per_rank"] for row in beaten] == [32, 64]


def test_a_race_for_accuracy_is_decided_by_the_metric_that_beats() -> None:
    swept = results(BATCHES, rate, repeats=5)
    for record in swept.records:
        is_bad = record.config["batch_per_rank"] == 16
        record.metrics["validation_accuracy"] = 0.5 if is_bad else 0.8 + 0.01 * record.repeat
    beaten, claims = race_for(make_table(swept), "accuracy")
    assert [row.factors["batch_per_rank"] for row in beaten] == [16]
    assert [claim.measure.name for claim in claims] == ["validation_accuracy"]


def test_a_beaten_trial_takes_no_part_in_further_blocks_and_its_row_stays() -> None:
    swept = results(BATCHES, rate, repeats=5)
    swept.until = RACE
    table = make_table(swept)
    found = decision(table)
    assert found.goes_on
    (out,) = found.beaten
    assert found.stage.blocks_of.keys() == {row.trial_id for row in table.rows} - {out.trial_id}

    more = results(BATCHES, rate, repeats=8)
    added = [run for run in more.records if run.repeat >= 5 and run.trial_id != out.trial_id]
    later = swept.of([*swept.records, *added])
    later.until = RACE
    found = decision(make_table(later))
    assert found.stage.blocks == 8, "those of the trials that are left"
    assert [len(row.records) for row in make_table(later).rows] == [5, 8, 8]


def test_a_trial_that_was_beaten_stays_out_however_good_it_was_in_its_few_repeats() -> None:
    """Batch 16 was left out after 3 of 8 blocks, and looks best in these."""
    swept = results(BATCHES, lambda values, repeat: 100.0 + values["batch_per_rank"] % 5, repeats=8)
    records = [record for record in swept.records if record.config["batch_per_rank"] != 16 or record.repeat < 3]
    swept = swept.of(records)
    swept.until = RACE
    found = decision(make_table(swept, ["batch_per_rank"]))
    assert 16 in [row.factors["batch_per_rank"] for row in found.beaten]
    assert 16 not in [claim.pair.trial.factors["batch_per_rank"] for claim in found.claims]


def test_a_race_with_one_trial_left_is_decided() -> None:
    swept = results(BATCHES, lambda values, repeat: values["batch_per_rank"] * (100.0 + repeat))
    swept.until = RACE
    found = decision(make_table(swept))
    assert not found.goes_on
    assert not found.claims
    assert [row.factors["batch_per_rank"] for row in found.beaten] == [32, 16]


def test_a_folder_whose_runs_say_nothing_of_the_aim_is_read_as_that_of_any_sweep() -> None:
    swept = results({"batch_per_rank": [16, 32]}, lambda values, repeat: 100.0 * values["batch_per_rank"] + repeat)
    swept.until = Until(race=True, aim="time-to-accuracy", budget=None)
    found = decision(make_table(swept, ["batch_per_rank"]))
    assert found.claims
    assert not found.beaten
