from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Any

import pytest

from dmls_ray.analysis.compare.basis import IN_THESE_SESSIONS, Basis
from dmls_ray.analysis.compare.sweeps import SweepComparison, compare_sweeps
from dmls_ray.analysis.findings.measures import measure_of
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.trials.axis import Pair
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.config.identity import Identity
from dmls_ray.records.codec import encode_json
from dmls_ray.util.errors import ConfigError
from tests.analysis.samples import own_results, results, set_value

GRID = {"batch_per_rank": [16, 32]}
NOISE = (1.0, math.exp(0.1), math.exp(-0.1))
"""Logarithms with a mean of 0 and a standard deviation of 0.1."""


def sweep(speed: float = 100.0, axes: Any = GRID, **changes: Any) -> Results:
    return results(axes, lambda values, repeat: speed * NOISE[repeat % 3], **changes)


def slower(comparison: SweepComparison, share: float) -> list[str]:
    """What is slower by more than a share of the speed."""
    return comparison.judge_slowdown(share)[0]


def not_ruled_out(comparison: SweepComparison, share: float) -> list[str]:
    return comparison.judge_slowdown(share)[1]


def with_sessions(swept: Results, count: int, **changes: Any) -> Results:
    for record in swept.records:
        record.session = f"{id(swept)} {record.repeat % count}"
        for name, value in changes.items():
            set_value(record, name, value)
    return swept


def in_sessions(swept: Results) -> Results:
    """The runs with each repeat in a session of its own."""
    return with_sessions(swept, max(record.repeat for record in swept.records) + 1)


def test_the_interval_of_one_configuration_is_welchs() -> None:
    comparison = compare_sweeps(sweep(100, {"batch_per_rank": 16}), sweep(80, {"batch_per_rank": 16}))
    (pair,) = comparison.pairs
    # Half of it: Student's t of 4 degrees of freedom, times the root of 2 x 0.1^2 / 3.
    half = 2.776445 * math.sqrt(2 * 0.01 / 3)
    assert pair.effect.contrast.centre == pytest.approx(0.8)
    assert pair.effect.contrast.low == pytest.approx(0.8 * math.exp(-half), rel=1e-4)
    assert pair.effect.contrast.high == pytest.approx(0.8 * math.exp(half), rel=1e-4)
    assert pair.verdict == "not distinguished"


def test_intervals_of_several_configurations_are_widened_to_hold_together() -> None:
    comparison = compare_sweeps(sweep(100), sweep(80))
    half = 4.314551 * math.sqrt(2 * 0.01 / 3)  # t at 98.75% for each of two: they have half of the errors
    for pair in comparison.pairs:
        assert pair.effect.contrast.high == pytest.approx(0.8 * math.exp(half), rel=1e-4)


def test_a_block_that_was_slow_as_a_whole_counts_once_over_all() -> None:
    comparison = compare_sweeps(sweep(100), sweep(80))
    assert comparison.samples == (3, 3)
    half = 3.495406 * math.sqrt(2 * 0.01 / 3)  # as of one configuration: the second one moves with the first
    assert comparison.overall.contrast.high == pytest.approx(0.8 * math.exp(half), rel=1e-4)


def test_one_sweep_measured_twice_is_indistinguishable_and_fails_nothing() -> None:
    comparison = compare_sweeps(in_sessions(sweep()), in_sessions(sweep()))
    assert comparison.headline() == (
        "images/s, speed B / A over 2 configurations: 1.00 [0.75, 1.33], n=3 and 3 sessions: not distinguished."
    )
    assert not slower(comparison, 0)
    assert not_ruled_out(comparison, 0.2) == ["over all", "batch_per_rank=16", "batch_per_rank=32"]
    assert not_ruled_out(comparison, 0.27) == ["batch_per_rank=16", "batch_per_rank=32"]
    assert not not_ruled_out(comparison, 0.3)


def test_the_data_have_what_the_table_says() -> None:
    comparison = compare_sweeps(in_sessions(sweep()), in_sessions(sweep()))
    data = json.loads(encode_json(comparison.json_object()))
    assert (data["metric"], data["unit"], data["over_all"]["n"]) == ("images_per_s", "session", 3)
    assert data["verdict"] == "not distinguished"
    assert data["over_all"]["value"] == pytest.approx(1.0)
    assert [pair["config"]["batch_per_rank"] for pair in data["pairs"]] == [16, 32]
    assert {pair["verdict"] for pair in data["pairs"]} == {"not distinguished"}
    assert data["pairs"][0]["a"]["low"] < data["pairs"][0]["a"]["value"]


def test_a_slowdown_is_beyond_doubt_where_the_whole_interval_lies_below() -> None:
    def rated(speeds: dict[int, float]) -> Results:
        swept = results(GRID, lambda values, repeat: speeds[values["batch_per_rank"]] * (1 + repeat / 1000))
        return in_sessions(swept)

    comparison = compare_sweeps(rated({16: 100.0, 32: 100.0}), rated({16: 80.0, 32: 40.0}))
    assert slower(comparison, 0.05) == ["over all", "batch_per_rank=16", "batch_per_rank=32"]
    assert slower(comparison, 0.5) == ["batch_per_rank=32"]
    assert not slower(comparison, 0.7)
    assert comparison.basis.verdict(comparison.overall) == "slower"


def test_below_three_repeats_nothing_is_beyond_doubt_and_that_is_said() -> None:
    comparison = compare_sweeps(sweep(100, repeats=2), sweep(10, repeats=2))
    assert [pair.verdict for pair in comparison.pairs] == ["unknown", "unknown"]
    assert not slower(comparison, 0.05)
    assert "A verdict needs 3 repeats of each; there are n=2." in comparison.notes()


def test_without_a_repeat_that_has_all_configurations_nothing_is_said_over_all() -> None:
    def scattered(values: dict[str, Any], repeat: int) -> float | None:
        return 100.0 if (repeat % 2 == 0) == (values["batch_per_rank"] == 16) else None

    comparison = compare_sweeps(sweep(), results(GRID, scattered))
    assert comparison.overall is None
    assert comparison.headline() == "No repeat has all 2 configurations ok, so there is no value over all of them."
    assert not slower(comparison, 0)


def test_times_are_compared_as_speed() -> None:
    comparison = compare_sweeps(in_sessions(sweep(100)), in_sessions(sweep(200)), measure="total_s")
    assert comparison.overall.contrast.centre == pytest.approx(2.0)
    assert comparison.basis.verdict(comparison.overall) == "faster"
    assert "speed B / A [95% of all rows]" in comparison.frame().columns


def test_accuracies_are_paired_by_repeat_since_it_has_one_seed_in_both() -> None:
    def of_seed(values: dict[str, Any], repeat: int) -> float:
        return (0.5, 0.7, 0.9)[repeat]

    def higher(values: dict[str, Any], repeat: int) -> float:
        return of_seed(values, repeat) + (0.04, 0.05, 0.06)[repeat]

    axes = {"batch_per_rank": 16}
    a, b = sweep(axes=axes, accuracy=of_seed), sweep(axes=axes, accuracy=higher)
    comparison = compare_sweeps(a, b, measure="test_accuracy")
    half = 4.302653 * 0.01 / math.sqrt(3)
    assert comparison.overall.contrast.low == pytest.approx(0.05 - half, rel=1e-4)
    assert comparison.basis.verdict(comparison.overall) == "higher"


@pytest.mark.parametrize("repeats", [1, 2])
def test_tensor_memory_is_decided_from_one_run_on(repeats: int) -> None:
    def verdict(mib: float) -> tuple[str, str]:
        a, b = (with_sessions(sweep(repeats=repeats), 1, tensor_mem_mib=size) for size in (800.0, mib))
        comparison = compare_sweeps(a, b, measure="tensor_mem_mib")
        return comparison.basis.verdict(comparison.overall), " ".join(comparison.notes())

    for mib, expected in ((880.0, "more"), (700.0, "less"), (800.0, "not distinguished")):
        found, texts = verdict(mib)
        assert found == expected
        assert "A verdict needs" not in texts


def test_where_there_are_sessions_enough_each_is_one_sample() -> None:
    a, b = (with_sessions(sweep(speed, repeats=9), 3) for speed in (100, 100))
    comparison = compare_sweeps(a, b)
    assert (comparison.basis.unit, comparison.samples) == ("session", (3, 3))
    assert compare_sweeps(with_sessions(sweep(), 2), with_sessions(sweep(), 3)).basis.unit == "repeat"


@pytest.mark.parametrize(
    "measure", ["images_per_s", "total_s", "forward_ms", "overhead_s", "tokens_per_s", "peak_mem_mib"]
)
def test_what_depends_on_the_session_has_no_verdict_below_three_sessions_of_each(measure: str) -> None:
    """In one session each, identical code differs by what drifted from one to the next."""

    def swept(speed: float, count: int) -> Results:
        made = with_sessions(sweep(speed), count)
        for record in made.records:
            record.metrics["forward_ms"] = record.metrics["overhead_s"] = 1 / speed + record.repeat / 1e6
            record.metrics["tokens_per_s"] = record.metrics["peak_mem_mib"] = speed + record.repeat / 1e3
        return made

    for counts in ((1, 1), (3, 1), (2, 3)):
        comparison = compare_sweeps(swept(100, counts[0]), swept(1, counts[1]), measure=measure)
        assert {comparison.basis.verdict(comparison.overall), *comparison.frame()["verdict"]} == {IN_THESE_SESSIONS}
        assert any("a verdict needs 3 sessions of A and of B" in note for note in comparison.notes())
        if comparison.basis.measure.kind == "speed":
            assert not slower(comparison, 0)
            assert not_ruled_out(comparison, 0.99) == ["over all", "batch_per_rank=16", "batch_per_rank=32"]
    comparison = compare_sweeps(swept(100, 3), swept(1, 3), measure=measure)
    assert comparison.basis.verdict(comparison.overall) in {"slower", "less", "more", "higher", "lower"}
    assert (comparison.basis.unit, comparison.samples) == ("session", (3, 3))
    assert not any("sessions of A and of B" in note for note in comparison.notes())


@pytest.mark.parametrize("measure", ["test_accuracy", "train_loss", "tensor_mem_mib", "accuracy_gap"])
def test_what_follows_from_seed_code_and_data_has_a_verdict_in_one_session(measure: str) -> None:
    def swept(value: float) -> Results:
        made = sweep()
        for record in made.records:
            set_value(record, measure, value + record.repeat / 1e3)
        return with_sessions(made, 1)

    comparison = compare_sweeps(swept(0.5), swept(0.9), measure=measure)
    assert comparison.basis.verdict(comparison.overall) in ("higher", "more")


def test_what_was_not_compared_is_not_ruled_out() -> None:
    def swept(fits: Any, reason: str = "") -> Results:
        made = in_sessions(results(GRID, lambda values, repeat: 100.0 + repeat / 100 if fits(values, repeat) else None))
        for record in made.records:
            record.independent_ranks = reason if record.config["batch_per_rank"] == 32 else ""
        return made

    both = swept(lambda *_: True)
    assert not_ruled_out(compare_sweeps(both, swept(lambda *_: True)), 0.05) == []
    apart = compare_sweeps(both, swept(lambda *_: True, "no collectives"))
    assert not_ruled_out(apart, 0.05) == ["batch_per_rank=32"]
    few = compare_sweeps(both, swept(lambda values, repeat: values["batch_per_rank"] == 16 or repeat < 2))
    assert not_ruled_out(few, 0.05) == ["over all", "batch_per_rank=32"]
    none = compare_sweeps(swept(lambda *_: False), swept(lambda *_: False))
    assert not_ruled_out(none, 0.05) == ["over all"]


def test_clocks_that_were_held_down_in_one_of_two_sweeps_are_noted() -> None:
    held = sweep()
    for record in held.records:
        record.metrics["held_by_heat"] = 0.5
    notes = compare_sweeps(sweep(), held).notes()
    assert [note[:2] for note in notes if "throttled" in note] == ["B:"]


def test_what_is_in_one_sweep_alone_and_outcomes_that_differ_are_named() -> None:
    def too_large(values: dict[str, Any], repeat: int) -> float | None:
        return None if values["batch_per_rank"] == 32 else 100.0

    a, b = sweep(axes={"batch_per_rank": [8, 16, 32]}), results({"batch_per_rank": [16, 32, 64]}, too_large)
    comparison = compare_sweeps(a, b)
    assert comparison.only == {"A": ["batch_per_rank=8"], "B": ["batch_per_rank=64"]}
    assert "Only in A: 1 configurations (batch_per_rank=8)." in comparison.notes()
    assert comparison.lost == ["batch_per_rank=32"]
    assert comparison.frame()["verdict"].tolist() == ["not distinguished", ""]
    assert comparison.frame()["outcome"].tolist() == ["ok", "ok in A, oom in B"]


@pytest.mark.parametrize(("metric", "limit"), [("test_accuracy", 1.0), ("accuracy_gap", 2.0)])
def test_no_interval_goes_beyond_the_largest_possible_difference(metric: str, limit: float) -> None:
    a, b = {"0": 0.1, "1": 0.9, "2": 0.2}, {"0": 0.9, "1": 0.1, "2": 0.8}
    trial = Trial("", {}, [])
    effect = Basis(measure_of(metric, "difference")).compare(Pair(trial, trial), a, b, level=0.99)
    assert effect.contrast.ends == (-limit, limit)


def provenance(a: Results, b: Results) -> dict[str, tuple[Sequence[str], Sequence[str]]]:
    return dict(compare_sweeps(a, b).provenance)


def test_machines_versions_and_source_that_differ_are_named() -> None:
    a, b = sweep(), sweep()
    for record in b.records:
        record.machine = {**record.machine, "cpu": "Other CPU"}
        record.versions = {**record.versions, "torch": "3"}
        record.git = {"commit": "0123456789abcdef", "dirty": True, "changes": "89ab"}
    assert provenance(a, b) == {
        "machine cpu": (["Some CPU"], ["Other CPU"]),
        "versions torch": (["2"], ["3"]),
        "commit": ([], ["0123456789ab with changes 89ab"]),
    }
    assert "versions torch: 2 in A, 3 in B." in compare_sweeps(a, b).notes()
    for results_of, device in ((a, "cpu"), (b, "cuda (H200)")):
        for record in results_of.records:
            record.device = device
    a.records[0].device = ""
    assert provenance(a, b)["device"] == (["cpu"], ["cuda (H200)"])
    # What one of them alone has is no difference between them.
    wider = sweep(axes={"batch_per_rank": [8, 16, 32]})
    for record in wider.records:
        record.backend = "gloo" if record.config["batch_per_rank"] == 8 else ""
    assert provenance(wider, sweep()) == {}


def test_two_sweeps_of_the_same_configurations_are_compared_also_with_other_code() -> None:
    a, b = sweep(), sweep(speed=200.0)
    for results_, version in ((a, "old"), (b, "new")):
        for record in results_.records:
            record.code = {"m.py": version}
            record.trial_id = Identity(code=record.code).trial_id(record.trial_id)
    comparison = compare_sweeps(a, b)
    assert len(comparison.pairs) == 2
    assert comparison.overall.contrast.centre == pytest.approx(2.0)
    assert provenance(a, b) == {"code m.py": (["old"], ["new"])}


def test_runs_of_a_user_function_are_compared_by_time_and_by_what_it_reported() -> None:
    def runs(seconds: float) -> Results:
        def tell(values: dict[str, Any], repeat: int) -> tuple[float, dict[str, float]]:
            return seconds, dict.fromkeys(("perplexity", "val_loss"), seconds + repeat)

        return own_results({"width": [8, 16]}, tell)

    assert compare_sweeps(runs(2.0), runs(4.0)).metric == "total_s"
    comparison = compare_sweeps(runs(2.0), runs(4.0), measure="perplexity")
    assert (comparison.overall.contrast.centre, comparison.basis.verdict(comparison.overall)) == (
        2.0,
        IN_THESE_SESSIONS,
    )
    for measure in ("perplexity", "val_loss"):
        comparison = compare_sweeps(*(in_sessions(runs(seconds)) for seconds in (2.0, 40.0)), measure=measure)
        assert (comparison.overall.contrast.centre, comparison.basis.verdict(comparison.overall)) == (38.0, "higher")


def searched() -> Results:
    swept = sweep()
    for record in swept.records:
        record.mode = "search"
    return swept


def other_epochs() -> Results:
    return sweep(axes={**GRID, "epochs": 3})


def again() -> Results:
    return with_sessions(sweep(), 1, session="2026-01-02T03:00:00")


@pytest.mark.parametrize(
    ("a", "b", "measure", "message"),
    [
        (sweep, other_epochs, None, "no configuration is both in results/sample (batch_per_rank=16 "),
        (sweep, lambda: Results("empty", []), None, "empty has no run"),
        (sweep, searched, "images_per_s", "or is a time of a search"),
        (again, again, None, "6 runs of results/sample and of results/sample are the same"),
        (sweep, sweep, "speed", "--measure speed is not reported by results/sample"),
        (sweep, sweep, "exposed_comm_ms", "--measure exposed_comm_ms is not reported by results/sample"),
    ],
)
def test_what_cannot_be_compared_is_refused_with_the_way_out(a: Any, b: Any, measure: str | None, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        compare_sweeps(a(), b(), measure=measure)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_slowdown_to_fail_at_is_a_share_of_a_speed() -> None:
    with pytest.raises(ConfigError, match="--fail-if-slower 5 is out of range; give 0% or more and less than 100%"):
        compare_sweeps(sweep(), sweep()).judge_slowdown(5)
    with pytest.raises(ConfigError, match="--fail-if-slower needs a speed, and --measure test_accuracy is not one"):
        compare_sweeps(sweep(), sweep(), measure="test_accuracy").judge_slowdown(0.05)


def test_configurations_whose_ranks_trained_apart_are_not_compared_and_the_reason_is_said() -> None:
    def compared(batches: set[int]) -> SweepComparison:
        sides = [sweep(speed, {**GRID, "world_size": 2}) for speed in (100, 80)]
        for record in sides[1].records:
            if record.config["batch_per_rank"] in batches:
                record.independent_ranks = "no collectives in 6 optimizer steps"
        return compare_sweeps(*sides)

    comparison = compared({32})
    assert [pair.name for pair in comparison.compared] == ["batch_per_rank=16"]
    assert comparison.frame()["verdict"].tolist() == ["not distinguished", "independent ranks"]
    assert compared({16, 32}).headline() == "No configuration ended ok in both, so nothing can be compared."
