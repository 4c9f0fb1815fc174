from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dmls_ray.analysis.advise.rank import Advice, advise
from dmls_ray.analysis.figures import tradeoff
from dmls_ray.analysis.published.data import published
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.stats.formatting import RATIO, format_interval
from dmls_ray.analysis.summary.sweep_summary import answer_on_axis, summarize
from dmls_ray.analysis.table.build import make_table
from dmls_ray.records.epoch_and_rank import EpochRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.storage.sweep_file import write_sweep
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


def of_machine(swept: Results, **changes: Any) -> Results:
    for record in swept.records:
        for name, value in changes.items():
            set_value(record, name, value)
    return swept


def test_the_best_configuration_is_named_with_its_equals_and_what_is_worse() -> None:
    advice = advise(results(BATCHES, uneven), "throughput")
    assert advice.best is not None
    assert advice.best.name == "batch_per_rank=32"
    assert [other.name for other in advice.indistinguishable] == ["batch_per_rank=64"]
    assert [other.name for other in advice.worse] == ["batch_per_rank=16"]
    assert advice.sentence.startswith(
        "For throughput use batch_per_rank=32 (images/s 300 [300, 300]; n=3); not distinguished from it: "
        "batch_per_rank=64 (300 [",
    )
    assert advice.frame()["verdict"].tolist() == ["best", "not distinguished", "worse"]


@pytest.mark.parametrize(("repeats", "batches"), [(3, EIGHT), (9, [16, 32]), (9, EIGHT)])
def test_equal_configurations_are_seldom_called_different(repeats: int, batches: list[int]) -> None:
    random = np.random.default_rng(repeats)
    swept = results({"batch_per_rank": batches}, lambda *_: 100.0, repeats=repeats)
    false = 0
    for _ in range(400):
        for record in swept.records:
            record.metrics["images_per_s"] = math.exp(random.normal(0, 0.05))
        false += bool(advise(swept, "throughput").worse)
    assert false <= 32  # of 400 at 1 in 20, more than 32 come once in 200


@pytest.mark.parametrize("repeats", [3, 4, 5, 9])
def test_advice_and_answer_say_the_same_of_the_same_two_configurations(repeats: int) -> None:
    random = np.random.default_rng(0)
    swept = results({"batch_per_rank": [16, 32]}, lambda *_: 100.0, repeats=repeats)
    found_indistinguishable = set()
    for _ in range(100):
        for record in swept.records:
            record.metrics["images_per_s"] = math.exp(
                random.normal(0.08 * (record.config["batch_per_rank"] == 32), 0.04)
            )
        advice, answered = advise(swept, "throughput"), answer_on_axis(make_table(swept), "batch_per_rank").headline
        assert ("not distinguished from 16 in speed" in answered) == bool(advice.indistinguishable), answered
        found_indistinguishable.add(bool(advice.indistinguishable))
    assert found_indistinguishable == {True, False}


def test_one_repeat_distinguishes_nothing_and_the_advice_says_so() -> None:
    advice = advise(results(BATCHES, by_batch({16: 100, 32: 200, 64: 900}), repeats=1), "throughput")
    assert len(advice.indistinguishable) == 2
    assert "not distinguished from it, of which n=1 says nothing" in advice.sentence
    assert "--repeats 5: with n=1 the best ones are not distinguished." in advice.suggestions
    assert any("every configuration with n=1 vary by chance" in line for line in advice.caveats)


def test_among_indistinguishable_ones_the_one_of_fewer_ranks_and_less_memory_is_named() -> None:
    swept = results({"batch_per_rank": 16, "world_size": [1, 2]}, lambda *_: 100.0)
    for record in swept.records:
        record.metrics["tensor_mem_mib"] = 100.0 if record.config["world_size"] == 1 else 200.0
        record.metrics["images_per_s"] = (
            (100.0, 99.0, 101.0)[record.repeat] if record.config["world_size"] == 1 else 100.5
        )
    advice = advise(swept, "throughput")
    assert advice.best is not None
    assert advice.best.name == "world_size=2 batch_per_rank=16"
    assert advice.savings == [
        "Of these world_size=1 batch_per_rank=16 needs 1 rank in place of 2",
        "Of these world_size=1 batch_per_rank=16 takes 0.50 [0.50, 0.50] times the tensor memory of a rank",
    ]


@pytest.mark.parametrize("repeats", [1, 2])
def test_tensor_memory_is_decided_from_one_run_on(repeats: int) -> None:
    swept = results(BATCHES, uneven, repeats=repeats)
    advice = advise(swept, "memory")
    assert [item.name for item in advice.worse] == ["batch_per_rank=32", "batch_per_rank=64"]
    assert "n=1 says nothing" not in advice.sentence
    assert not any("vary by chance" in line for line in advice.caveats)
    for record in swept.records:
        record.metrics["tensor_mem_mib"] = 100.0
    equal = advise(swept, "memory")
    assert len(equal.indistinguishable) == 2
    assert not any("--repeats" in line for line in equal.suggestions)


def test_tensor_memory_of_two_runs_that_differ_is_not_decided() -> None:
    swept = results(BATCHES, uneven, repeats=2)
    for record in swept.records:
        record.metrics["tensor_mem_mib"] = 100.0 + record.config["batch_per_rank"] * (1 + record.repeat)
    assert advise(swept, "memory").worse == []


def test_a_resident_set_that_grew_by_less_than_repeats_differ_by_decides_nothing() -> None:
    def worse_at(mib: float) -> list[str]:
        swept = results({"batch_per_rank": [16, 32]}, uneven)
        for record in swept.records:
            more = mib if record.config["batch_per_rank"] == 32 else 0.0
            del record.metrics["tensor_mem_mib"]
            record.metrics["host_mem_mib"] = 10 + more + 0.01 * record.repeat
        return [item.name for item in advise(swept, "memory").worse]

    assert worse_at(3.0) == []
    assert worse_at(5.0) == ["batch_per_rank=32"]


def test_the_front_is_of_time_memory_and_accuracy() -> None:
    def accurate(values: dict[str, Any], repeat: int) -> float:
        return {16: 0.9, 32: 0.8, 64: 0.8}[values["batch_per_rank"]]

    # Memory grows with the batch in these runs: 64 is no faster than 32, and no more accurate.
    advice = advise(results(BATCHES, by_batch({16: 100, 32: 300, 64: 300}), accuracy=accurate), "accuracy")
    frame = advice.frame().set_index("batch_per_rank")
    assert frame["front"].to_dict() == {"16": "yes", "32": "yes", "64": ""}
    assert list(advice.axes) == ["total_s", "tensor_mem_mib", "test_accuracy"]


def test_memory_that_hardly_differs_is_left_out_of_the_front() -> None:
    advice = advise(of_machine(results(BATCHES, uneven), tensor_mem_mib=900.0), "throughput")
    assert list(advice.axes) == ["total_s", "test_accuracy"]
    assert "tensor MiB hardly differs and is left out" in " ".join(advice.notes)


def test_a_run_that_is_short_since_it_has_fewer_epochs_is_on_the_front_of_advice_and_of_the_figure() -> None:
    swept = results({"batch_per_rank": 16, "epochs": [1, 10]}, lambda *_: 100.0)
    for record in swept.records:
        short = record.config["epochs"] == 1
        # Its one epoch took a little longer than one of ten.
        record.metrics["epoch_s"], record.metrics["total_s"], record.metrics["test_accuracy"] = (
            (1.0, 1.0, 0.81) if short else (0.99, 10.0, 0.90)
        )
    advice = advise(swept, "cost", price_per_hour=1.0)
    assert advice.frame().set_index("epochs")[["verdict", "front"]].to_numpy().tolist() == [
        ["best", "yes"],
        ["worse", "yes"],
    ]
    found = tradeoff.chart(make_table(swept))
    assert found is not None
    assert not any(item.muted for item in found.panels[0].series)


def test_the_front_is_of_the_metric_that_accuracy_is_judged_by() -> None:
    swept = results(BATCHES, by_batch({16: 100, 32: 300, 64: 200}))
    for record in swept.records:
        record.metrics["validation_loss"] = {16: 0.5, 32: 0.7, 64: 0.4}[record.config["batch_per_rank"]]
    advice = advise(of_machine(swept, tensor_mem_mib=900.0), "accuracy", metric="validation_loss")
    assert list(advice.axes) == ["total_s", "validation_loss"]
    assert advice.frame().set_index("batch_per_rank")["front"].to_dict() == {"64": "yes", "32": "yes", "16": ""}


def test_user_fields_with_the_name_of_a_column_stand_next_to_it() -> None:
    swept = own_results({"n": [8, 16], "outcome": ["a"]}, lambda values, repeat: (values["n"] / 8, {}))
    frame = advise(swept, "throughput").frame()
    assert frame["config_n"].tolist() == ["8", "16"]
    assert frame["n"].tolist() == ["3", "3"]
    swept = own_results({"verdict": ["x", "y"], "front": [1, 2]}, lambda values, repeat: (1.0, {}))
    frame = advise(swept, "throughput").frame()
    assert sorted(frame["config_verdict"]) == ["x", "x", "y", "y"]
    assert set(frame["verdict"]) == {"best", "not distinguished"}
    assert sorted(frame["config_front"]) == ["1", "1", "2", "2"]


@pytest.mark.parametrize("dataset", ["cifar10", "stl10", "mnist"])
@pytest.mark.parametrize("aim", ["accuracy", "throughput"])
def test_advice_on_published_runs_suggests_no_flag_that_only_the_report_has(dataset: str, aim: Any) -> None:
    lines = advise(published(dataset), aim).suggestions
    assert not any("machine" in line.partition(":")[0] for line in lines)


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


def test_the_time_to_an_accuracy_leaves_out_trials_that_reached_it_in_less_than_half_of_their_runs() -> None:
    advice = advise(learning({16: [4.0, 5.0, 6.0], 32: [2.0, None, None], 64: [None] * 3}), "time-to-accuracy")
    assert advice.best is not None
    assert advice.best.name == "batch_per_rank=16"
    assert advice.best.value.centre == pytest.approx((4 * 5 * 6) ** (1 / 3))
    assert {row.factors["batch_per_rank"]: unable.text for row, unable in advice.unable} == {
        32: "not yet (1 of 3)",
        64: "not yet (0 of 3)",
    }
    assert any(note.startswith("Not half of the runs reached the target: batch_per_rank=32") for note in advice.notes)


def test_a_run_that_reached_the_target_after_others_had_given_up_is_not_counted_on() -> None:
    # By Kaplan and Meier half of 16's runs would have got there after 2 s: the others ended before.
    advice = advise(learning({16: [2.0, None, None], 32: [9.0, 9.0, 9.0]}, total_s=1.0), "time-to-accuracy")
    assert advice.best is not None
    assert advice.best.name == "batch_per_rank=32"


def test_times_of_runs_that_missed_the_target_are_compared_with_no_other() -> None:
    # One of 16's runs ended after 2.2 s without it, and it is not known when it would have got there.
    advice = advise(learning({16: [2.0, 2.1, None], 32: [9.0, 9.1, 9.2]}, total_s=2.2), "time-to-accuracy")
    assert advice.best is not None
    assert (advice.best.name, advice.best.is_whole) == ("batch_per_rank=16", False)
    assert [other.name for other in advice.indistinguishable] == ["batch_per_rank=32"]
    assert "Of these batch_per_rank=32 is the fastest that got there in every run" in advice.sentence
    # The other way round, at least 10 seconds is worse than 2.
    advice = advise(learning({16: [2.0, 2.1, 2.2], 32: [9.0, 9.1, None]}), "time-to-accuracy")
    assert [other.name for other in advice.worse] == ["batch_per_rank=32"]


def test_an_unknown_time_is_compared_with_no_other() -> None:
    swept = learning({16: [None] * 3, 32: [9.0] * 3})
    for record in swept.records:
        if record.config["batch_per_rank"] == 16:
            # A user function that reported the target as reached, and a time that is no number.
            record.epochs = [EpochRecord(epoch=1, metrics={"test_accuracy": 0.95})]
    advice = advise(swept, "time-to-accuracy")
    assert advice.best is not None
    assert advice.best.name == "batch_per_rank=32"
    assert [unable.text for _, unable in advice.unable] == ["times of its epochs not known"]
    alone = Results(swept.folder, [record for record in swept.records if record.config["batch_per_rank"] == 16])
    assert advise(alone, "time-to-accuracy").sentence == (
        "For time-to-accuracy: no configuration has a known time to a test accuracy of 0.9."
    )


def test_where_none_reached_the_target_that_and_the_nearest_one_are_said() -> None:
    advice = advise(results(BATCHES, uneven, accuracy=lambda values, repeat: 0.8), "time-to-accuracy", target=0.95)
    assert advice.best is None
    assert advice.sentence == (
        "For time-to-accuracy: none of 3 configurations reached a test accuracy of 0.95; the highest is 0.800, with "
        "batch_per_rank=16."
    )


def test_cost_is_the_price_of_all_ranks_for_a_run_or_to_the_target() -> None:
    swept = of_machine(results({"batch_per_rank": 16, "world_size": [1, 2]}, lambda *_: 100.0), total_s=1800.0)
    costs = {row["world_size"]: row["cost/run [95%]"] for _, row in
             advise(swept, "cost", price_per_hour=2.0).frame().iterrows()}  # fmt: skip
    assert costs == {"1": "1 [1, 1]", "2": "2 [2, 2]"}
    to_target = advise(learning({16: [3600.0, 3600.0, 3600.0]}), "cost", target=0.9, price_per_hour=2.0)
    assert to_target.best is not None
    assert to_target.best.value.centre == pytest.approx(2.0)


def test_a_target_says_what_a_fast_configuration_must_come_to() -> None:
    def accurate(values: dict[str, Any], repeat: int) -> float:
        return 0.95 if values["batch_per_rank"] == 16 else 0.5

    advice = advise(results(BATCHES, uneven, accuracy=accurate), "throughput", target=0.9)
    assert advice.best is not None
    assert advice.best.name == "batch_per_rank=16"
    assert [unable.text for _, unable in advice.unable] == ["test accuracy 0.500", "test accuracy 0.500"]


def test_the_next_value_is_worth_trying_where_the_end_of_an_axis_is_best() -> None:
    advice = advise(results(BATCHES, by_batch({16: 100, 32: 200, 64: 300})), "throughput")
    assert (
        "--batch-per-rank 128: 64 is the largest that was tried, with 1.50 [1.50, 1.50] times the images/s of 32."
        in advice.suggestions
    )
    advice = advise(results(BATCHES, by_batch({16: 300, 32: 200, 64: 100})), "throughput")
    assert any(line.startswith("--batch-per-rank 8: 16 is the least") for line in advice.suggestions)


@pytest.mark.parametrize(
    ("of_64", "why"),
    [
        ((0.7, 0.7, 0.7), "the best lies within"),
        ((1.2, 1.01, 0.95), "the best is indistinguishable from its neighbour"),
    ],
)
def test_the_next_value_is_not_worth_trying_where(of_64: tuple[float, ...], why: str) -> None:
    def rate(values: dict[str, Any], repeat: int) -> float:
        return {16: 100.0, 32: 300.0, 64: 300.0 * of_64[repeat]}[values["batch_per_rank"]]

    advice = advise(results(BATCHES, rate), "throughput")
    assert not any("--batch-per-rank" in line for line in advice.suggestions), why


def test_a_value_that_was_tried_or_that_cannot_be_is_not_worth_trying() -> None:
    def too_large(values: dict[str, Any], repeat: int) -> float | None:
        return None if values["batch_per_rank"] == 64 else 10.0 * values["batch_per_rank"]

    advice = advise(results(BATCHES, too_large), "throughput")
    assert not any(line.startswith("--batch-per-rank 64") for line in advice.suggestions)
    # 1,000 samples to train on: a batch of 1,024 has too few.
    advice = advise(results({"batch_per_rank": [256, 512]}, by_batch({256: 100, 512: 200})), "throughput")
    assert not any("--batch-per-rank" in line for line in advice.suggestions)
    dropouts = results({"batch_per_rank": 16, "dropout": [0.3, 0.6]}, lambda values, repeat: 100 * values["dropout"])
    assert not any("--dropout" in line for line in advise(dropouts, "throughput").suggestions)


def test_what_ran_out_of_memory_is_worth_trying_in_smaller_passes() -> None:
    def too_large(values: dict[str, Any], repeat: int) -> float | None:
        return None if values["batch_per_rank"] == 64 else 100.0

    (line,) = [line for line in advise(results(BATCHES, too_large), "memory").suggestions if "accum" in line]
    assert line == (
        "--batch-per-rank 32 --accum-steps 2: the global_batch of batch_per_rank=64, which ran out of memory, in "
        "smaller passes."
    )


def test_world_sizes_are_worth_trying_up_to_the_machine() -> None:
    swept = of_machine(results(BATCHES, uneven), machine={"cpu": "Some CPU", "cores": 6, "gpus": []}, device="cpu")
    assert (
        "--world-size 1 2 4 6: 1 rank alone was tried, and the machine has room for 6."
        in advise(swept, "throughput").suggestions
    )
    assert not any("--world-size" in line for line in advise(swept, "memory").suggestions)
    swept = of_machine(swept, machine={"cpu": "Some CPU", "cores": 6, "gpus": ["H200"]}, device="cuda (H200)")
    assert not any("--world-size" in line for line in advise(swept, "throughput").suggestions)


def test_a_learning_rate_that_follows_the_batch_is_worth_trying_where_accuracy_falls_with_it() -> None:
    def falling(values: dict[str, Any], repeat: int) -> float:
        return {16: 0.9, 32: 0.85, 64: 0.7}[values["batch_per_rank"]] - 0.001 * repeat

    swept = results(BATCHES, by_batch({16: 100, 32: 200, 64: 300}), accuracy=falling)
    (line,) = [line for line in advise(swept, "accuracy").suggestions if "lr" in line]
    assert line == (
        "--lr-scaling none sqrt linear --lr-base-batch 16: from global_batch 16 to 64 training is 3.00 [3.00, 3.00] "
        "times as fast, and test accuracy falls by 0.200 [0.200, 0.200] at one learning rate and equal epochs."
    )
    level = results(BATCHES, by_batch({16: 100, 32: 200, 64: 300}))
    assert not any("--lr-scaling" in line for line in advise(level, "accuracy").suggestions)


def test_a_damaged_record_without_a_batch_prevents_no_suggestion() -> None:
    swept = results({"batch_per_rank": [16, 32], "world_size": [1, 2]}, lambda values, repeat: 100.0, repeats=1)
    del swept.records[0].config["batch_per_rank"]
    assert advise(swept, "accuracy").suggestions is not None


def test_what_hardly_differs_is_not_worth_more_repeats() -> None:
    swept = results(BATCHES, lambda values, repeat: 100.0)
    for record in swept.records:
        record.metrics["images_per_s"] = 100 + 0.01 * record.config["batch_per_rank"] + (0, 1, -1)[record.repeat] * 0.1
    assert not any("--repeats" in line for line in advise(swept, "throughput").suggestions)


def test_the_noise_scale_suggests_a_batch_with_its_source() -> None:
    swept = results({"batch_per_rank": 16, "world_size": [1, 2]}, lambda *_: 100.0)
    assert advise(swept, "throughput").noise_scale == ""
    for record in swept.records:
        if record.config["world_size"] == 2:
            record.metrics["gradient_noise_scale"] = (200.0, 250.0, 312.5)[record.repeat]
    text = advise(swept, "throughput").noise_scale
    # Geometric mean 250, logarithms 0.223 apart: 2 to the power of 7.97 is nearest to 256.
    assert text.startswith("--global-batch 256 (")
    assert "not tried, is about the gradient noise scale of world_size=2 batch_per_rank=16: 2" in text
    assert "arXiv 1812.06162" in text


def test_what_the_data_cannot_say_follows_from_the_runs() -> None:
    swept = results(BATCHES, uneven)
    quiet = " ".join(advise(swept, "memory").caveats)
    for record in swept.records[:4]:
        record.session, record.machine = "later", {"cpu": "Other CPU", "cores": 4, "gpus": []}
    swept.records[0].outcome = Outcome.KILLED
    text = " ".join(advise(swept, "throughput").caveats)
    for line in ("the runs are of different machines", "the 2 sessions of these runs", "the results of 1 failed run"):
        assert line in text
        assert line not in quiet
    # In these runs test accuracy goes from 0.1 after one epoch to 0.9 after two.
    assert "still rose in the last epoch, by +0.800 [+0.800, +0.800] (n=3)" in quiet
    assert "anything of another model or data set than digits_convnet on digits" in quiet
    assert "so their accuracy is too high" in " ".join(advise(swept, "accuracy").caveats)
    fallen = results({"batch_per_rank": 16}, uneven, repeats=1, accuracy=lambda *_: 0.05)
    assert "still rose" not in " ".join(advise(fallen, "memory").caveats)


def test_configurations_that_do_not_do_the_same_work_are_said_to() -> None:
    swept = results({"batch_per_rank": 16, "epochs": [1, 2]}, lambda *_: 100.0)
    assert "these configurations differ in epochs" in " ".join(advise(swept, "cost", price_per_hour=1).caveats)
    assert "at equal work" not in " ".join(advise(swept, "throughput").caveats)


def test_a_validation_metric_is_what_to_choose_by_where_there_is_one() -> None:
    swept = of_machine(results(BATCHES, uneven), validation_accuracy=0.7)
    advice = advise(swept, "accuracy")
    assert advice.objective.measure == "validation_accuracy"
    assert "so their accuracy is too high" not in " ".join(advice.caveats)


def test_a_user_function_is_ranked_by_its_time_and_by_its_metrics() -> None:
    swept = own_results({"width": [8, 16]}, lambda values, repeat: (values["width"] / 8, {"loss": 1 / values["width"]}))
    assert advise(swept, "throughput").sentence.startswith("For throughput use width=8 (s/run 1.000")
    assert advise(swept, "accuracy", metric="loss").sentence.startswith("For accuracy use width=16 (loss 0.06250")
    with pytest.raises(ConfigError, match="--for accuracy needs test_accuracy, .* --metric, one of loss"):
        advise(swept, "accuracy")


def test_a_custom_metric_is_judged_only_if_what_is_better_is_known() -> None:
    swept = own_results({"width": [8, 16]}, lambda values, repeat: (1.0, {"mae": 1 / values["width"]}))
    with pytest.raises(ConfigError, match="--metric mae: more or less may be better; add --goal max"):
        advise(swept, "accuracy", metric="mae")
    assert "use width=16 (mae 0.06250" in advise(swept, "accuracy", metric="mae", minimizes=True).sentence
    assert "use width=8 (mae 0.1250" in advise(swept, "accuracy", metric="mae", minimizes=False).sentence


def measured() -> Results:
    return results(BATCHES, uneven)


def searched() -> Results:
    return of_machine(results(BATCHES, uneven), mode="search")


def failed() -> Results:
    return results(BATCHES, lambda *_: None)


@pytest.mark.parametrize(
    ("swept", "how", "message"),
    [
        (measured, {"name": "time-to-accuracy"}, "give --target-accuracy (the highest"),
        (measured, {"name": "speed"}, "--for speed is unknown; choose from accuracy, cost, memory, throughput"),
        (measured, {"name": "cost"}, "give --price-per-hour 2.5, say"),
        (measured, {"name": "cost", "price_per_hour": -1}, "--price-per-hour -1 is out of range"),
        (measured, {"name": "memory", "price_per_hour": 1}, "means nothing for --for memory"),
        (measured, {"name": "memory", "target": 90}, "--target-accuracy 90 is out of range"),
        (measured, {"name": "accuracy", "target": 0.9}, "means nothing for --for accuracy"),
        (measured, {"name": "accuracy", "metric": "bleu"}, "--metric bleu is reported by no run"),
        (measured, {"name": "throughput", "minimizes": True}, "--goal min means nothing for --for throughput"),
        (measured, {"name": "memory", "minimizes": False}, "--goal max means nothing for --for memory; leave it out"),
        (searched, {"name": "throughput"}, "side by side in a search"),
        (failed, {"name": "throughput"}, "no run ended ok"),
        (lambda: Results("empty", []), {"name": "throughput"}, "empty has no run"),
    ],
)  # fmt: skip
def test_what_cannot_be_advised_on_is_refused_with_the_way_out(swept: Any, how: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        advise(swept(), **how)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_times_of_two_machines_are_not_compared() -> None:
    swept = results({"batch_per_rank": [16, 32]}, by_batch({16: 100.0, 32: 900.0}))
    for record in swept.records:
        if record.config["batch_per_rank"] == 32:
            record.machine = {"host": "big", "cpu": "Other CPU"}
    advice = advise(swept, "throughput")
    assert advice.best is not None
    assert "beyond doubt" not in advice.sentence
    assert not advice.indistinguishable
    assert not advice.worse
    assert (
        "not compared with it, since no block has both in one environment: batch_per_rank=16 (99.9" in advice.sentence
    )
    assert advice.frame()["verdict"].tolist() == ["best", "not compared"]
    assert not any("--repeats" in line for line in advice.suggestions)


@pytest.mark.parametrize("aim", ["throughput", "accuracy"])
def test_runs_of_two_versions_are_not_compared(aim: str) -> None:
    swept = results(BATCHES, uneven, accuracy=lambda values, repeat: values["batch_per_rank"] / 100 + repeat / 1000)
    assert advise(swept, aim).worse
    for record in swept.records:
        record.versions = {"torch": str(record.config["batch_per_rank"])}
    advice = advise(swept, aim)
    assert not advice.worse
    assert any("the runs have different versions" in line for line in advice.caveats)


def test_advice_on_accuracy_names_the_steps_that_led_to_it() -> None:
    swept = results(BATCHES, uneven)
    for record in swept.records:
        record.metrics["steps"] = 6400 // record.config["batch_per_rank"]
    line = "test acc. is compared at 5 epochs, lr 0.001, global_batch 16 to 64, 100 to 400 optimizer steps."
    assert line in advise(swept, "accuracy").notes
    assert line not in advise(swept, "throughput").notes


@pytest.mark.parametrize(("minimizes", "best"), [(True, 16), (False, 64)])
def test_a_search_is_judged_by_what_it_searched_for(tmp_path: Path, minimizes: bool, best: int) -> None:
    searched = results(BATCHES, uneven, accuracy=lambda values, repeat: 1 - values["batch_per_rank"] / 100, repeats=1)
    for record in searched.records:
        record.mode = "search"
        record.metrics["score"] = float(record.config["batch_per_rank"])
    searched.folder = tmp_path
    write_sweep(tmp_path, {"sessions": [{"mode": "search", "metric": "score", "minimizes": minimizes}]})
    advice = advise(searched, "accuracy")
    assert (advice.objective.measure, advice.best and advice.best.name) == ("score", f"batch_per_rank={best}")
    assert summarize(searched).table.rows[0].factors["batch_per_rank"] == best, "as the table has it"
    assert advise(searched, "accuracy", metric="test_accuracy").objective.measure == "test_accuracy"


def test_what_a_search_stopped_is_not_chosen_by_the_accuracy_of_an_early_epoch() -> None:
    searched = results(BATCHES, uneven, accuracy=lambda values, repeat: values["batch_per_rank"] / 100, repeats=1)
    for record in searched.records:
        record.mode = "search"
        if record.config["batch_per_rank"] == 64:
            record.metrics["stopped_epoch"] = 1
    advice = advise(searched, "accuracy")
    assert advice.best is not None
    assert advice.best.name == "batch_per_rank=32"
    assert [unable.text for _, unable in advice.unable] == ["stopped early"]


def test_runs_without_accuracies_by_epoch_are_not_said_to_have_missed_a_target() -> None:
    advice = advise(published("mnist"), "time-to-accuracy", target=0.5)
    assert "none of 8 configurations reached" not in advice.sentence


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
        {"name": "cost", "price_per_hour": 1.0},
        {"name": "time-to-accuracy", "target": 0.1},
        {"name": "cost", "target": 0.1, "price_per_hour": 1.0},
    ],
)
def test_a_configuration_whose_ranks_trained_apart_is_not_chosen_and_the_reason_is_said(asked: Any) -> None:
    advice = advise(apart({64}), **asked)
    assert advice.best is not None
    ranked = [advice.best, *advice.indistinguishable, *advice.worse, *advice.not_compared]
    assert sorted(item.name for item in ranked) == ["batch_per_rank=16", "batch_per_rank=32"]
    assert "; left out, since their ranks did not train one model together: batch_per_rank=64" in advice.sentence
    assert (
        "The ranks of world_size=2 batch_per_rank=64 did not train one model together: no collectives in 6 optimizer "
        "steps."
    ) in advice.notes
    assert not any("on several ranks" in line for line in advice.caveats)
    last = advice.frame().iloc[-1]
    assert (last["batch_per_rank"], last["front"], last["verdict"]) == ("64", "", "")
    assert "independent ranks" in last.tolist()


def test_where_all_ranks_trained_apart_none_is_chosen() -> None:
    advice = advise(apart({16, 32, 64}), "throughput", target=0.1)
    assert advice.best is None
    assert advice.sentence == (
        "For throughput: none of 3 configurations can be chosen; left out, since their ranks did not train one model "
        "together: batch_per_rank=16; batch_per_rank=32; batch_per_rank=64."
    )
    assert not advice.front


def test_ranks_that_trained_apart_came_to_no_accuracy_near_the_target() -> None:
    advice = advise(apart({64}), "throughput", target=0.99)
    assert advice.sentence.startswith(
        "For throughput: none of 2 configurations reached a test accuracy of 0.99; the highest is 0.320, with "
        "batch_per_rank=32; left out, since"
    )


def test_the_highest_accuracy_that_a_missing_target_may_have_is_of_ranks_that_trained_together() -> None:
    for missing, message in [
        ({64}, r"the highest test accuracy is 0\.320"),
        ({16, 32, 64}, "no ranks trained one model together"),
    ]:
        with pytest.raises(ConfigError, match=message):
            advise(apart(missing), "time-to-accuracy")


def test_memory_is_a_saving_only_in_blocks_of_one_environment() -> None:
    """Under another version, of which there are more runs, 64 needs a fifth of the memory of 32."""

    def slower(values: dict[str, Any], repeat: int) -> float:
        return uneven(values, repeat) * (0.99 if values["batch_per_rank"] == 64 else 1.0)

    def saving(**changes: Any) -> str:
        swept = results(BATCHES, slower, repeats=23)
        for record in swept.records:
            if record.config["batch_per_rank"] == 64 and record.repeat >= 3:
                record.metrics["tensor_mem_mib"] = 20.0
                of_machine(swept.of([record]), **changes)
            else:
                record.metrics["tensor_mem_mib"] = 100.0
        advice = advise(swept, "throughput")
        assert [item.name for item in advice.indistinguishable] == ["batch_per_rank=64"]
        return " ".join(advice.savings)

    assert "batch_per_rank=64 takes 0.25" in saving()
    assert saving(versions={"python": "3.11", "torch": "3", "ray": "2.60"}) == ""


def test_a_resident_set_that_did_not_grow_is_the_least_memory() -> None:
    def advice(growth: dict[int, float]) -> Advice:
        swept = results(BATCHES, uneven)
        for record in swept.records:
            del record.metrics["tensor_mem_mib"]
            record.metrics["host_mem_mib"] = growth[record.config["batch_per_rank"]]
        return advise(swept, "memory")

    nothing = advice({16: 0.0, 32: 0.0, 64: 0.0})
    assert nothing.best is not None
    assert nothing.best.value.centre == 0
    assert len(nothing.indistinguishable) == 2
    assert not nothing.unable
    some = advice({16: 0.0, 32: 2.0, 64: 80.0})
    assert some.best is not None
    assert some.best.name == "batch_per_rank=16"
    assert [item.name for item in some.indistinguishable] == ["batch_per_rank=32"], "below the noise"
    assert [item.name for item in some.worse] == ["batch_per_rank=64"]


def test_the_interval_that_a_verdict_follows_from_is_in_the_table() -> None:
    advice = advise(results(BATCHES, by_batch({16: 100, 32: 200, 64: 900})), "throughput")
    cells = dict(zip(advice.frame()["batch_per_rank"], advice.frame()["against best [95%]"], strict=True))
    table = make_table(results(BATCHES, by_batch({16: 100, 32: 200, 64: 900})))
    first, _, best = table.rows
    ratio = first.speed_against(best)
    assert ratio is not None
    assert ratio.low is not None
    assert cells["64"] == ""
    assert cells["16"].startswith(f"{ratio.centre:.2f}")
    advice = advise(results(BATCHES, by_batch({16: 100, 32: 200, 64: 900})), "accuracy")
    assert {cell[:6] for cell in advice.frame()["against best [95%]"] if cell} == {"+0.000"}


@pytest.mark.parametrize("name", ["throughput", "cost", "memory"])
def test_with_a_target_accuracy_the_intervals_are_those_of_the_table(name: str) -> None:
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
    priced = {"price_per_hour": 1.0, "target": None} if name == "cost" else {"target": 0.8}
    advice, table = advise(swept, name, **priced), make_table(swept)
    assert advice.best is not None
    assert len(advice.against) == (2 if name == "cost" else 1)
    rows = {row.trial_id: row for row in table.rows}
    measure = {"throughput": "images_per_s", "cost": "total_s", "memory": "host_mem_mib"}[name]
    for trial, text in advice.against.items():
        ratio = rows[trial].comparisons.ratio(rows[trial], rows[advice.best.row.trial_id], measure)
        assert text == format_interval(ratio, RATIO, null=1)
