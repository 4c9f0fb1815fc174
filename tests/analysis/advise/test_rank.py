from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmls_ray.analysis.advise.advice import Advice, Place
from dmls_ray.analysis.advise.rank import advise, front
from dmls_ray.analysis.prices import with_prices
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.stats.formatting import RATIO, format_interval
from dmls_ray.analysis.summary import summarize
from dmls_ray.analysis.table.build import make_table
from dmls_ray.records.codec import encode_json
from dmls_ray.records.model import EpochRecord
from dmls_ray.storage.folder import write_sweep
from dmls_ray.util.errors import ConfigError
from tests.analysis.samples import own_results, results, set_value

BATCHES = {"batch_per_rank": [16, 32, 64]}
EIGHT = [8, 16, 32, 64, 128, 256, 512, 1024]


def by_batch(speeds: dict[int, float], spread: float = 0.001) -> Any:
    """Rates by batch_per_rank, with a little less in each further repeat."""
    return lambda values, repeat: speeds[values["batch_per_rank"]] * (1 - spread * repeat)


def uneven(values: dict[str, Any], repeat: int) -> float:
    """64 is 3 times as fast as 16, and about as fast as 32: by 1.1, 1 and 1 / 1.1."""
    return {16: 100.0, 32: 300.0, 64: 300.0 * (1.1, 1.0, 1 / 1.1)[repeat % 3]}[values["batch_per_rank"]]


def batches(advice: Advice, verdict: Place) -> list[int]:
    return [row.factors["batch_per_rank"] for row in advice.with_verdict(verdict)]


def of_machine(swept: Results, **changes: Any) -> Results:
    for record in swept.records:
        for name, value in changes.items():
            set_value(record, name, value)
    return swept


def test_the_best_configuration_is_named_with_its_equals_and_what_is_worse() -> None:
    advice = advise(results(BATCHES, uneven), "throughput")
    assert batches(advice, "best") == [32]
    assert batches(advice, "not distinguished") == [64]
    assert batches(advice, "worse") == [16]
    assert advice.frame()["verdict"].tolist() == ["best", "not distinguished", "worse"]
    assert advice.headline() == (
        "For throughput batch_per_rank=32 comes first: images/s 300 [300, 300], n=3. "
        "Not distinguished from it: batch_per_rank=64. Others: 1 worse, 0 left out."
    )


def test_the_data_have_what_the_table_says() -> None:
    advice = advise(results(BATCHES, uneven), "throughput")
    data = json.loads(encode_json(advice.json_object()))
    assert (data["objective"], data["metric"], data["minimizes"]) == ("throughput", "images_per_s", False)
    best, equal, worse = data["trials"]
    assert (best["config"]["batch_per_rank"], best["verdict"], best["against_best"]) == (32, "best", None)
    assert (best["objective"]["value"], best["objective"]["n"]) == (pytest.approx(300), 3)
    assert equal["against_best"]["low"] < 1 < equal["against_best"]["high"]
    assert worse["against_best"]["high"] < 1


def test_the_data_say_of_how_many_repeats_each_number_is() -> None:
    runs = results(BATCHES, by_batch({16: 100, 32: 300, 64: 200}))
    runs.records.remove(next(record for record in runs.records if record.config["batch_per_rank"] == 32))
    best, second, _ = json.loads(encode_json(advise(runs, "throughput").json_object()))["trials"]
    assert (best["n"], best["objective"]["n"]) == (2, 2)
    assert (second["n"], second["objective"]["n"], second["against_best"]["n"]) == (3, 3, 2)


def test_one_repeat_distinguishes_nothing_and_the_advice_says_so() -> None:
    advice = advise(results(BATCHES, by_batch({16: 100, 32: 200, 64: 900}), repeats=1), "throughput")
    assert batches(advice, "not distinguished") == [32, 16]
    assert any("no intervals at n=1; they need --repeats 3" in note for note in advice.notes())


@pytest.mark.parametrize("repeats", [1, 2])
def test_tensor_memory_is_decided_from_one_run_on(repeats: int) -> None:
    swept = results(BATCHES, uneven, repeats=repeats)
    advice = advise(swept, "memory")
    assert batches(advice, "worse") == [32, 64]
    assert not any("--repeats" in note for note in advice.notes())
    for record in swept.records:
        record.metrics["tensor_mem_mib"] = 100.0
    assert len(batches(advise(swept, "memory"), "not distinguished")) == 2
    for record in swept.records:
        record.metrics["tensor_mem_mib"] = 100.0 + record.config["batch_per_rank"] * (1 + record.repeat)
    assert (batches(advise(swept, "memory"), "worse") == []) == (repeats == 2), "two runs that differ decide nothing"


def test_a_difference_in_memory_that_is_of_no_use_makes_no_configuration_worse() -> None:
    swept = results(BATCHES, uneven)
    for record in swept.records:
        record.metrics["tensor_mem_mib"] = {16: 100.0, 32: 101.0, 64: 150.0}[record.config["batch_per_rank"]]
    advice = advise(swept, "memory")
    assert [batches(advice, verdict) for verdict in ("best", "not distinguished", "worse")] == [[16], [32], [64]]


def test_a_resident_set_that_grew_by_less_than_repeats_differ_by_decides_nothing() -> None:
    def worse_at(mib: float) -> list[int]:
        swept = results({"batch_per_rank": [16, 32]}, uneven)
        for record in swept.records:
            more = mib if record.config["batch_per_rank"] == 32 else 0.0
            del record.metrics["tensor_mem_mib"]
            record.metrics["host_mem_mib"] = 10 + more + 0.01 * record.repeat
        return batches(advise(swept, "memory"), "worse")

    assert worse_at(3.0) == []
    assert worse_at(5.0) == [32]


def test_the_front_is_of_time_memory_and_accuracy() -> None:
    def accurate(values: dict[str, Any], repeat: int) -> float:
        return {16: 0.9, 32: 0.8, 64: 0.8}[values["batch_per_rank"]]

    # Memory grows with the batch in these runs: 64 is no faster than 32, and no more accurate.
    advice = advise(results(BATCHES, by_batch({16: 100, 32: 300, 64: 300}), accuracy=accurate), "accuracy")
    table = advice.frame().set_index("batch_per_rank")
    assert table["front"].to_dict() == {"16": "yes", "32": "yes", "64": ""}
    assert list(advice.front_metrics) == ["total_s", "tensor_mem_mib", "test_accuracy"]


def test_the_front_is_of_the_metric_that_accuracy_is_judged_by() -> None:
    swept = results(BATCHES, by_batch({16: 100, 32: 300, 64: 200}))
    for record in swept.records:
        record.metrics["validation_loss"] = {16: 0.5, 32: 0.7, 64: 0.4}[record.config["batch_per_rank"]]
    advice = advise(of_machine(swept, tensor_mem_mib=900.0), "accuracy", metric="validation_loss")
    assert list(advice.front_metrics) == ["total_s", "validation_loss"]
    assert advice.frame().set_index("batch_per_rank")["front"].to_dict() == {"64": "yes", "32": "yes", "16": ""}


def test_user_fields_with_the_name_of_a_column_stand_next_to_it() -> None:
    swept = own_results({"n": [8, 16], "verdict": ["x"]}, lambda values, repeat: (values["n"] / 8, {}))
    table = advise(swept, "throughput").frame()
    assert table["config_n"].tolist() == ["8", "16"]
    assert table["n"].tolist() == ["3", "3"]
    assert table["verdict"].tolist() == ["best", "worse"]


def reasons(advice: Advice) -> dict[int, str]:
    return {item.row.factors["batch_per_rank"]: item.text for item in advice.excluded}


def learning(reached_s: dict[int, list[float | None]], *, total_s: float = 10.0) -> Results:
    """Runs that reach 0.9 after so many seconds, or not in all of theirs."""
    swept = results({"batch_per_rank": list(reached_s)}, by_batch(dict.fromkeys(reached_s, 100)))
    for record in swept.records:
        taken = reached_s[record.config["batch_per_rank"]][record.repeat]
        record.config = {**record.config, "target_accuracy": 0.9}
        record.metrics["total_s"] = total_s
        if taken is not None:
            record.metrics["target_s"] = taken
        else:
            for epoch in record.epochs:
                epoch.metrics["test_accuracy"] = 0.5
            record.metrics["test_accuracy"] = 0.5
    return swept


@pytest.mark.parametrize(
    ("reached_s", "total_s", "best", "left_out"),
    [
        ({16: [4.0, 5.0, 6.0], 32: [2.0, None, None], 64: [None] * 3}, 10.0, 16, {32: 1, 64: 0}),
        # By Kaplan and Meier half of 16's runs would have got there after 2 s: the others ended before.
        ({16: [2.0, None, None], 32: [9.0, 9.0, 9.0]}, 1.0, 32, {16: 1}),
        ({16: [None] * 3, 32: [None] * 3}, 10.0, None, {16: 0, 32: 0}),
    ],
)
def test_the_time_to_an_accuracy_leaves_out_trials_that_reached_it_in_less_than_half_of_their_runs(
    reached_s: Any, total_s: float, best: int | None, left_out: dict[int, int]
) -> None:
    advice = advise(learning(reached_s, total_s=total_s), "time-to-accuracy")
    assert batches(advice, "best") == [best] * (best is not None)
    assert reasons(advice) == {batch: f"not yet ({count} of 3)" for batch, count in left_out.items()}
    if best is None:
        assert advice.headline().endswith("no configuration can be chosen; the column verdict says why.")
    else:
        values = reached_s[best]
        assert advice.best.value.centre == pytest.approx(math.prod(values) ** (1 / 3))


def test_times_of_runs_that_missed_the_target_are_compared_with_no_other() -> None:
    # One of 16's runs ended after 2.2 s without it, and it is not known when it would have got there.
    advice = advise(learning({16: [2.0, 2.1, None], 32: [9.0, 9.1, 9.2]}, total_s=2.2), "time-to-accuracy")
    assert (advice.best.name, advice.best.all_reached) == ("batch_per_rank=16", False)
    assert batches(advice, "not distinguished") == [32]
    # The other way round, at least 10 seconds is worse than 2.
    advice = advise(learning({16: [2.0, 2.1, 2.2], 32: [9.0, 9.1, None]}), "time-to-accuracy")
    assert batches(advice, "worse") == [32]


def test_an_unknown_time_is_compared_with_no_other() -> None:
    swept = learning({16: [None] * 3, 32: [9.0] * 3})
    for record in swept.records:
        if record.config["batch_per_rank"] == 16:
            # A user function that reported the target as reached, and a time that is no number.
            record.epochs = [EpochRecord(epoch=1, metrics={"test_accuracy": 0.95})]
    advice = advise(swept, "time-to-accuracy")
    assert advice.best.name == "batch_per_rank=32"
    assert reasons(advice) == {16: "times of its epochs not known"}


def test_cost_is_the_price_of_all_ranks_for_a_run_or_to_the_target() -> None:
    swept = of_machine(
        results({"batch_per_rank": 16, "world_size": [1, 2]}, lambda *_: 100.0),
        total_s=1800.0, device="cuda (NVIDIA H100 80GB HBM3)",
    )  # fmt: skip
    costs = {row["world_size"]: row["cost/run [95%]"] for _, row in
             advise(with_prices(swept, ["h100=2"]), "cost").frame().iterrows()}  # fmt: skip
    assert costs == {"1": "1 [1, 1]", "2": "2 [2, 2]"}
    swept = with_prices(learning({16: [3600.0, 3600.0, 3600.0]}), ["some cpu=2"])
    assert advise(swept, "cost", target=0.9).best.value.centre == pytest.approx(2.0)


def test_a_trial_of_which_a_run_has_no_price_is_left_out_of_what_it_costs_to_reach_a_target() -> None:
    swept = learning({16: [3600.0] * 3, 32: [3600.0] * 3})
    for record in swept.records:
        if record.config["batch_per_rank"] == 32 and record.repeat == 1:
            record.machine = {**record.machine, "cpu": "Another"}
    advice = advise(with_prices(swept, ["some cpu=2"]), "cost", target=0.9)
    assert advice.best.name == "batch_per_rank=16"
    assert reasons(advice) == {32: "not all of its runs have a price"}


def test_a_target_says_what_a_fast_configuration_must_come_to() -> None:
    def accurate(values: dict[str, Any], repeat: int) -> float:
        return 0.95 if values["batch_per_rank"] == 16 else 0.5

    advice = advise(results(BATCHES, uneven, accuracy=accurate), "throughput", target=0.9)
    assert advice.best.name == "batch_per_rank=16"
    assert reasons(advice) == {32: "test accuracy 0.500", 64: "test accuracy 0.500"}


def test_a_validation_metric_is_what_to_choose_by_where_there_is_one() -> None:
    swept = of_machine(results(BATCHES, uneven), validation_accuracy=0.7)
    advice = advise(swept, "accuracy")
    assert advice.objective.metric == "validation_accuracy"
    assert not any("choice was made on test samples" in note for note in advice.notes())
    assert any(
        "choice was made on test samples" in note for note in advise(swept, "accuracy", metric="test_accuracy").notes()
    )


def test_a_user_function_is_ranked_by_its_time_and_by_its_metrics() -> None:
    swept = own_results({"width": [8, 16]}, lambda values, repeat: (values["width"] / 8, {"loss": 1 / values["width"]}))
    assert advise(swept, "throughput").best.name == "width=8"
    assert advise(swept, "accuracy", metric="loss").best.name == "width=16"
    with pytest.raises(ConfigError, match="no run reports test_accuracy; give --metric, one of loss"):
        advise(swept, "accuracy")


def test_a_custom_metric_is_judged_only_if_what_is_better_is_known() -> None:
    swept = own_results({"width": [8, 16]}, lambda values, repeat: (1.0, {"mae": 1 / values["width"]}))
    with pytest.raises(ConfigError, match="--metric mae: whether more or less is better is not known; add --goal max"):
        advise(swept, "accuracy", metric="mae")
    for minimizes, name in ((True, "width=16"), (False, "width=8")):
        best = advise(swept, "accuracy", metric="mae", minimizes=minimizes).best
        assert best.name == name


def measured() -> Results:
    return results(BATCHES, uneven)


def priced() -> Results:
    return with_prices(measured(), ["some cpu=1"])


def searched() -> Results:
    return of_machine(results(BATCHES, uneven), mode="search")


def failed() -> Results:
    return results(BATCHES, lambda *_: None)


@pytest.mark.parametrize(
    ("swept", "how", "message"),
    [
        (measured, {"name": "time-to-accuracy"}, "give --target-accuracy."),
        (measured, {"name": "speed"}, "--for speed is unknown; choose from accuracy, cost, memory, throughput"),
        (measured, {"name": "cost"}, "give --price h100=2.99, for example"),
        (priced, {"name": "memory"}, "--price has no effect with --for memory"),
        (measured, {"name": "memory", "target": 90}, "--target-accuracy 90 is out of range"),
        (measured, {"name": "accuracy", "target": 0.9}, "has no effect with --for accuracy"),
        (measured, {"name": "accuracy", "any_accuracy": True}, "--any-accuracy has no effect with --for accuracy"),
        (measured, {"name": "accuracy", "metric": "bleu"}, "no run reports bleu; give --metric, one of"),
        (measured, {"name": "throughput", "minimizes": True}, "--goal has no effect with --for throughput"),
        (measured, {"name": "memory", "minimizes": False}, "--goal has no effect with --for memory; leave it out"),
        (searched, {"name": "throughput"}, "these runs are of a search"),
        (failed, {"name": "throughput"}, "no run ended ok"),
        (lambda: Results("empty", []), {"name": "throughput"}, "empty has no run"),
    ],
)  # fmt: skip
def test_what_cannot_be_advised_on_is_refused_with_the_way_out(swept: Any, how: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        advise(swept(), **how)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("aim", "field"), [("throughput", "versions"), ("accuracy", "versions"), ("throughput", "machine")]
)
def test_runs_of_two_versions_are_not_compared_nor_times_of_two_machines(aim: str, field: str) -> None:
    swept = results(BATCHES, uneven, accuracy=lambda values, repeat: values["batch_per_rank"] / 100 + repeat / 1000)
    assert batches(advise(swept, aim), "worse")
    for record in swept.records:
        setattr(record, field, dict.fromkeys(("torch", "cpu"), record.config["batch_per_rank"]))
    advice = advise(swept, aim)
    assert [item.verdict for item in advice.trials] == ["best", "not compared", "not compared"]


@pytest.mark.parametrize(("minimizes", "best"), [(True, 16), (False, 64)])
def test_a_search_is_judged_by_what_it_searched_for(tmp_path: Path, minimizes: bool, best: int) -> None:
    searched = results(BATCHES, uneven, accuracy=lambda values, repeat: 1 - values["batch_per_rank"] / 100, repeats=1)
    for record in searched.records:
        record.mode = "search"
        record.metrics["score"] = float(record.config["batch_per_rank"])
    searched.folder = tmp_path
    write_sweep(tmp_path, {"sessions": [{"mode": "search", "metric": "score", "minimizes": minimizes}]})
    advice = advise(searched, "accuracy")
    assert (advice.objective.metric, advice.best and advice.best.name) == ("score", f"batch_per_rank={best}")
    assert summarize(searched).table.rows[0].factors["batch_per_rank"] == best, "as the table has it"
    assert advise(searched, "accuracy", metric="test_accuracy").objective.metric == "test_accuracy"


def test_what_a_search_stopped_is_not_chosen_by_the_accuracy_of_an_early_epoch() -> None:
    searched = results(BATCHES, uneven, accuracy=lambda values, repeat: values["batch_per_rank"] / 100, repeats=1)
    for record in searched.records:
        record.mode = "search"
        if record.config["batch_per_rank"] == 64:
            record.metrics["stopped_epoch"] = 1
    advice = advise(searched, "accuracy")
    assert advice.best.name == "batch_per_rank=32"
    assert reasons(advice) == {64: "stopped early"}


def test_advice_says_whose_clocks_were_held_down() -> None:
    swept = results(BATCHES, by_batch({16: 100, 32: 200, 64: 300}))
    for record in swept.records:
        record.metrics["held_by_heat"] = 0.5
    assert any(
        "throttled: batch_per_rank=16 (heat in 50% of a run)" in note for note in advise(swept, "throughput").notes()
    )


def apart(batches: set[int]) -> Results:
    """Runs of two ranks of which those with these batches, the fastest and most accurate, did not train one model."""
    swept = results({**BATCHES, "world_size": [2]}, by_batch({16: 100, 32: 200, 64: 300}),
                    accuracy=lambda values, repeat: values["batch_per_rank"] / 100)  # fmt: skip
    for record in swept.records:
        record.metrics["validation_loss"] = 1 / record.config["batch_per_rank"]
        record.metrics["target_s"] = 5.0
        if record.config["batch_per_rank"] in batches:
            record.independent_ranks = "no collectives in 6 optimizer steps"
            record.metrics["tensor_mem_mib"] = 1.0
    return swept


@pytest.mark.parametrize(
    "asked",
    [
        {"name": "throughput"},
        {"name": "throughput", "target": 0.1},
        {"name": "accuracy"},
        {"name": "accuracy", "metric": "validation_loss"},
        {"name": "memory"},
        {"name": "cost"},
        {"name": "time-to-accuracy", "target": 0.1},
        {"name": "cost", "target": 0.1},
    ],
)
def test_a_configuration_whose_ranks_trained_apart_is_not_chosen_and_the_reason_is_said(asked: Any) -> None:
    prices = ["some cpu=1"] if asked["name"] == "cost" else []
    advice = advise(with_prices(apart({64}), prices), **asked)
    assert sorted(item.name for item in advice.trials if item.value) == ["batch_per_rank=16", "batch_per_rank=32"]
    assert reasons(advice) == {64: "independent ranks"}
    last = advice.frame().iloc[-1]
    assert (last["batch_per_rank"], last["front"], last["verdict"]) == ("64", "", "independent ranks")


def test_a_resident_set_that_did_not_grow_is_the_least_memory() -> None:
    swept = results(BATCHES, uneven)
    for record in swept.records:
        del record.metrics["tensor_mem_mib"]
        record.metrics["host_mem_mib"] = {16: 0.0, 32: 2.0, 64: 80.0}[record.config["batch_per_rank"]]
    advice = advise(swept, "memory")
    assert (advice.best.name, advice.best.value.centre) == ("batch_per_rank=16", 0)
    assert batches(advice, "not distinguished") == [32], "below the noise"
    assert batches(advice, "worse") == [64]
    nothing = advise(of_machine(swept, host_mem_mib=0.0), "memory")
    assert len(batches(nothing, "not distinguished")) == 2


@pytest.mark.parametrize(("name", "metric"), [("throughput", "images_per_s"), ("memory", "host_mem_mib")])
def test_with_a_target_accuracy_the_intervals_are_those_of_the_table(name: str, metric: str) -> None:
    """What does not reach the target, or has independent ranks, was measured as well, and says as much of the noise."""
    random = np.random.default_rng(0)

    def accuracy(values: dict[str, Any], repeat: int) -> float:
        return 0.5 if values["batch_per_rank"] == 64 else 0.9

    axes = {"batch_per_rank": [16, 32, 64, 128]}
    swept = results(axes, lambda values, repeat: 100 * math.exp(random.normal(0, 0.1)), accuracy=accuracy)
    for record in swept.records:
        del record.metrics["tensor_mem_mib"]
        record.metrics["host_mem_mib"] = 100 * math.exp(random.normal(0, 0.1))
        record.independent_ranks = "no collective" if record.config["batch_per_rank"] == 128 else ""
    advice, table = advise(swept, name, target=0.8), make_table(swept)
    (compared,) = (item for item in advice.trials if item.against_best is not None)
    rows = {row.trial_id: row for row in table.rows}
    row, best = rows[compared.row.trial_id], rows[advice.best.row.trial_id]
    ratio = row.comparisons.against(row, best, metric, is_ratio=True)
    assert format_interval(compared.against_best.contrast, RATIO, null=1) == format_interval(ratio, RATIO, null=1)


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), max_size=12))
def test_the_front_is_what_comparing_every_pair_leaves(points: list[tuple[int, int, int]]) -> None:
    def beaten(point: tuple[int, int, int]) -> bool:
        as_good = [other for other in points if all(a <= b for a, b in zip(other, point, strict=True))]
        return any(any(a < b for a, b in zip(other, point, strict=True)) for other in as_good)

    assert front(points) == [place for place, point in enumerate(points) if not beaten(point)]


def test_no_configuration_is_advised_over_one_of_another_session() -> None:
    swept = results(BATCHES, uneven)
    for record in swept.records:
        record.session = "first" if record.config["batch_per_rank"] == 16 else "second"
    advice = advise(swept, "throughput")
    assert batches(advice, "not compared") == [16]
    assert "batch_per_rank=32 comes first" in advice.headline()
    assert "Not compared with it: batch_per_rank=16." in advice.headline()
