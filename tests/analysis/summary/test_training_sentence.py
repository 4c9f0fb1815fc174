from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dmls_ray.analysis.summary.generic import summarize_search
from dmls_ray.analysis.summary.sweep_summary import summarize_axis
from dmls_ray.analysis.table.build import make_table
from tests.analysis.samples import own_results, results


def test_a_number_is_followed_from_its_first_value_to_its_last_at_each_other_factor() -> None:
    def rate(values: dict[str, Any], repeat: int) -> float:
        return float(values["batch_per_rank"] * (10 + repeat) * values["world_size"])

    table = make_table(results({"batch_per_rank": [16, 64], "world_size": [1, 2]}, rate))
    assert summarize_axis(table, "batch_per_rank") == (
        "At world_size 1, from batch_per_rank 16 to 64 training went from 176 to 700 images/s, faster: "
        "4.00 [4.00, 4.00] times as fast, tensor memory from 116 to 164 MiB, "
        "test accuracy from 0.900 to 0.900 (at 5 epochs, lr 0.001), indistinguishable: +0.000 [+0.000, +0.000]; "
        "at world_size 2, from batch_per_rank 16 to 64 training went from 351 to 1,400 images/s, faster: "
        "4.00 [4.00, 4.00] times as fast, tensor memory from 116 to 164 MiB, "
        "test accuracy from 0.900 to 0.900 (at 5 epochs, lr 0.001, global_batch 32 to 128), indistinguishable: "
        "+0.000 [+0.000, +0.000] (n=3; each interval is of 95%)."
    )


def test_trials_whose_interval_includes_1_are_called_indistinguishable() -> None:
    noise = [0.9, 1.0, 1.1]
    table = make_table(
        results(
            {"batch_per_rank": 16, "world_size": [1, 2]},
            lambda values, repeat: 100 * noise[repeat] ** values["world_size"],
        )
    )
    sentence = summarize_axis(table, "world_size")
    assert sentence.startswith("At batch_per_rank 16, from world_size 1 to 2 training went from")
    assert "indistinguishable in speed: 1.00 [0.78, 1.28] times as fast" in sentence


def test_the_most_accurate_and_the_fastest_choices_are_named() -> None:
    speeds, accuracies = {"adam": 100.0, "sgd": 150.0}, {"adam": 0.9, "sgd": 0.6}
    table = make_table(
        results(
            {"optimizer": ["adam", "sgd"], "batch_per_rank": 16},
            lambda values, repeat: speeds[values["optimizer"]],
            accuracy=lambda values, repeat: accuracies[values["optimizer"]],
        )
    )
    assert summarize_axis(table, "optimizer") == (
        "Optimizer adam reached a test accuracy of 0.900 [0.900, 0.900] (at 5 epochs, lr 0.001), the highest; in "
        "training, sgd against adam is faster: 1.50 [1.50, 1.50] times as fast (n=3)."
    )


@pytest.mark.parametrize(
    ("worse", "summary"),
    [
        (
            {"b": [0.0, 0.0, 0.0], "c": [0.0, 0.0, 0.0]},
            "reached a test accuracy of 0.900 [0.900, 0.900] (at 5 epochs, lr 0.001), indistinguishable from",
        ),
        ({"b": [0.1, -0.1, 0.1], "c": [0.2, 0.2, 0.2]}, "higher than adamw, indistinguishable from sgd;"),
    ],
)
def test_a_choice_indistinguishable_from_the_best_is_not_called_worse(
    worse: dict[str, list[float]], summary: str
) -> None:
    less = {"adam": [0.0, 0.0, 0.0], "sgd": worse["b"], "adamw": worse["c"]}
    table = make_table(
        results(
            {"optimizer": list(less), "batch_per_rank": 16},
            lambda values, repeat: 100.0,
            accuracy=lambda values, repeat: 0.9 - less[values["optimizer"]][repeat],
        )
    )
    assert summary in summarize_axis(table, "optimizer")


def test_a_field_that_counts_with_one_choice_alone_does_not_part_the_choices() -> None:
    table = make_table(
        results(
            {"optimizer": ["adam", "sgd"], "momentum": 0.9, "batch_per_rank": 16},
            lambda values, repeat: 100.0,
        )
    )
    assert summarize_axis(table, "optimizer").startswith("Optimizer adam reached a test accuracy of 0.900")


def test_where_only_one_choice_could_be_measured_that_comes_first() -> None:
    table = make_table(
        results(
            {"backend": ["gloo", "nccl"], "batch_per_rank": [16, 32], "world_size": 2},
            lambda values, repeat: None if values["backend"] == "nccl" else 100.0,
        )
    )
    assert summarize_axis(table, "backend").startswith(
        "Of backend only gloo could be measured, so it is not "
        "compared with nccl (8 GiB asked for). At backend gloo, from batch_per_rank 16 to 32 training went from"
    )


def test_strong_scaling_is_one_line_of_world_sizes() -> None:
    table = make_table(
        results({"global_batch": 64, "world_size": [1, 2]}, lambda values, repeat: 10.0 * values["world_size"])
    )
    assert "from world_size 1 to 2 training went from 10.0 to 20.0 images/s" in summarize_axis(table, "world_size")


def test_a_factor_that_differs_along_with_the_axis_is_never_mixed_in() -> None:
    speeds = {"adam": 10.0, "sgd": 100.0}
    table = make_table(
        results(
            {"global_batch": 64, "world_size": [1, 2], "optimizer": ["adam", "sgd"]},
            lambda values, repeat: speeds[values["optimizer"]] * values["world_size"],
        )
    )
    sentence = summarize_axis(table, "world_size")
    assert sentence.count("2.00 [2.00, 2.00] times as fast") == 2
    assert "at optimizer sgd, global_batch 64" in sentence or "at global_batch 64, optimizer sgd" in sentence
    mixed = results({"batch_per_rank": 16, "optimizer": ["adam", "sgd"]}, lambda values, repeat: 10.0)
    for record in mixed.records:
        if record.config["optimizer"] == "sgd":
            record.config["epochs"] = 7
    assert summarize_axis(make_table(mixed), "optimizer") == (
        "No two trials differ in optimizer alone, so nothing can be said of it."
    )


def test_a_sweep_of_batches_answers_about_the_batch_that_was_given() -> None:
    axes = {"global_batch": [64, 128], "world_size": [1, 2]}
    table = make_table(results(axes, lambda values, repeat: 10.0), ("world_size", "global_batch"))
    assert "from global_batch 64 to 128" in summarize_axis(table, "batch_per_rank")


def test_one_repeat_gives_a_bare_ratio_and_says_n_1() -> None:
    table = make_table(results({"batch_per_rank": [16, 32]}, lambda values, repeat: 100.0, repeats=1))
    assert "1.00 times as fast" in summarize_axis(table, "batch_per_rank")
    assert summarize_axis(table, "batch_per_rank").endswith("(n=1).")


def test_without_an_ok_run_nothing_is_said() -> None:
    table = make_table(results({"batch_per_rank": [16, 32]}, lambda values, repeat: None))
    assert summarize_axis(table, "batch_per_rank") == "No run ended ok, so nothing can be said of batch_per_rank."


def test_a_single_value_cannot_be_compared() -> None:
    table = make_table(results({"batch_per_rank": [16]}, lambda values, repeat: 100.0))
    assert summarize_axis(table, "batch_per_rank").startswith("Only one value of batch_per_rank was measured")


def test_accumulation_at_one_global_batch_is_compared_at_that_batch() -> None:
    table = make_table(
        results({"global_batch": 64, "accum_steps": [1, 4]}, lambda values, repeat: 100.0 / values["accum_steps"])
    )
    assert table.fixed_batch_field == "global_batch"
    assert summarize_axis(table, "accum_steps").startswith(
        "At global_batch 64, from accum_steps 1 to 4 training went from 100 to 25.0 images/s"
    )


def test_an_axis_with_one_value_gives_way_to_the_one_that_varies() -> None:
    table = make_table(
        results({"global_batch": 64, "world_size": [1, 2]}, lambda values, repeat: 10.0 * values["world_size"]),
        ["world_size"],
    )
    assert "from world_size 1 to 2 training went from 10.0 to 20.0 images/s" in summarize_axis(table, "batch_per_rank")


def test_the_answer_on_quantization_says_what_int8_does_to_accuracy_size_and_latency() -> None:
    runs = results(
        {"quantization": ["off", "static"], "batch_per_rank": 16, "inference_batch": 32}, lambda values, repeat: 100.0
    )
    for record in runs.records:
        record.fp32_compiled_ms_p50 = 0.2
        if record.config["quantization"] == "static":
            record.fp32_test_accuracy, record.int8_test_accuracy = 0.9, 0.89
            record.fp32_checkpoint_bytes, record.int8_checkpoint_bytes = 27_221, 10_943
            record.int8_compiled_ms_p50 = 0.25
    assert summarize_axis(make_table(runs), "quantization") == (
        "Static: int8 test accuracy 0.890 [0.890, 0.890], -0.010 [-0.010, -0.010] against its fp32 form, "
        "checkpoint 10,943 against 27,221 bytes, inference of 32 images slower: 0.80 [0.80, 0.80] times as fast as in "
        "fp32, both compiled; in training, static against off is indistinguishable in speed: 1.00 [1.00, 1.00] times "
        "as fast (n=3)."
    )


def test_every_measure_of_a_user_function_is_compared_along_the_axis() -> None:
    runs = own_results(
        {"depth": [1, 2, 4]},
        lambda values, repeat: (values["depth"] + repeat, {"bits": 8 / values["depth"], "seen": 7}),
    )
    assert summarize_axis(make_table(runs), "depth") == (
        "From depth 1 to 4 seconds a run went from 1.8 to 4.9 (+3 [+3, +3]), bits went from 8 to 2 (-6 [-6, -6]), seen "
        "went from 7 to 7 (+0 [+0, +0], indistinguishable) (n=3)."
    )


def test_the_least_and_the_most_of_each_measure_are_named_for_user_choices() -> None:
    level = {"gru": 2.0, "lstm": 1.0, "rnn": 3.0}
    runs = own_results(
        {"cell": list(level)}, lambda values, repeat: (4.0, {"bits": level[values["cell"]] + repeat / 10})
    )
    summary = summarize_axis(make_table(runs), "cell")
    assert "bits from 1.10 with cell lstm to 3.10 with rnn (+2 [+2, +2])" in summary


def test_a_search_says_of_how_many_its_best_is_and_that_the_best_of_many_flatters() -> None:
    def tell(values: dict[str, Any], repeat: int) -> tuple[float, dict[str, Any]]:
        return 1.0, {"bits": abs(values["lr"] - 0.3) + 1}

    runs = own_results({"lr": [0.1, 0.3, 0.6]}, tell, repeats=1, mode="search", stopped_epoch=None)
    runs.records[0].stopped_epoch = 1
    summary = summarize_search(make_table(runs), "bits", minimizes=True)
    assert summary.startswith(
        "The least bits of 2 configurations that trained to the end is 1.200, with lr=0.1000; the next is 1.300, with "
        "lr=0.6000; 1 run was stopped early. "
    )
    assert "looks better than it is" in summary
    assert summarize_search(make_table(runs), "bits", minimizes=False).startswith(
        "The highest bits of 2 configurations that trained to the end is 1.3"
    )
    assert "nothing can be said" in summarize_search(make_table(runs), "absent", minimizes=False)


def test_the_best_of_an_axis_is_named_where_it_is_in_between() -> None:
    speeds, accuracies = {16: 100.0, 32: 900.0, 64: 95.0}, {16: 0.5, 32: 0.7, 64: 0.9}
    table = make_table(
        results(
            {"batch_per_rank": [16, 32, 64]},
            lambda values, repeat: speeds[values["batch_per_rank"]],
            accuracy=lambda values, repeat: accuracies[values["batch_per_rank"]],
        )
    )
    summary = summarize_axis(table, "batch_per_rank")
    assert "slower: 0.95 [0.95, 0.95] times as fast, fastest at batch_per_rank 32 (900 images/s)" in summary
    assert "test accuracy from 0.500 to 0.900 (at 5 epochs, lr 0.001), higher: +0.400 [+0.400, +0.400] (n=3)" in summary


def test_an_accuracy_is_compared_with_the_steps_and_the_learning_rate_that_led_to_it() -> None:
    runs = results({"batch_per_rank": [16, 32, 64], "world_size": 2}, lambda values, repeat: 900.0)
    for record in runs.records:
        batch = record.config["batch_per_rank"]
        record.steps, record.scaled_lr = 14400 // batch, batch / 16000
    assert (
        "test accuracy from 0.900 to 0.900 (at 5 epochs, lr 0.001 to 0.004, global_batch 32 to 128, 900 to 225 "
        "optimizer steps), indistinguishable"
    ) in summarize_axis(make_table(runs), "batch_per_rank")


def test_choices_of_equal_accuracy_are_not_the_highest() -> None:
    table = make_table(
        results({"optimizer": ["adam", "sgd"], "batch_per_rank": 16}, lambda values, repeat: 100.0, repeats=1)
    )
    assert "reached a test accuracy of 0.900 (at 5 epochs, lr 0.001), as did sgd;" in summarize_axis(table, "optimizer")
    speeds, accuracies = {16: 1.0, 32: 9.0, 64: 9.0, 128: 1.0}, {16: 0.5, 32: 0.9, 64: 0.9, 128: 0.5}
    runs = results(
        {"batch_per_rank": list(speeds)},
        lambda values, repeat: speeds[values["batch_per_rank"]],
        accuracy=lambda values, repeat: accuracies[values["batch_per_rank"]],
    )
    summary = summarize_axis(make_table(runs), "batch_per_rank")
    assert "fastest at batch_per_rank 32 and 64 (9.0 images/s)" in summary
    assert "highest at batch_per_rank 32 and 64 (0.900 [0.900, 0.900])" in summary


def test_losses_of_a_user_function_are_compared_with_the_epochs_that_led_to_them() -> None:
    runs = own_results(
        {"depth": [1, 2], "lr": 0.1, "epochs": 3}, lambda values, repeat: (1.0, {"test_loss": 1.0 / values["depth"]})
    )
    assert "test_loss went from 1 to 0.5000 (-0.5000 [-0.5000, -0.5000]) (at 3 epochs, lr 0.1)" in summarize_axis(
        make_table(runs), "depth"
    )


def test_configurations_of_a_search_that_are_equally_good_are_named_together() -> None:
    found = own_results({"lr": [0.1, 0.3, 0.6]}, lambda values, repeat: (1.0, {"bits": min(values["lr"], 0.3)}),
                        repeats=1, mode="search")  # fmt: skip
    assert summarize_search(make_table(found), "bits", minimizes=False).startswith(
        "The highest bits of 3 configurations is 0.3000, with lr=0.3000, and with lr=0.6000; the next is 0.1000, with"
    )


def test_three_equal_differences_of_one_test_sample_are_no_verdict() -> None:
    runs = results(
        {"batch_per_rank": [16, 32]},
        lambda values, repeat: 900.0,
        accuracy=lambda values, repeat: (355 + repeat - values["batch_per_rank"] // 32) / 359,
    )
    for record in runs.records:
        record.test_samples = 359
    table = make_table(runs)
    assert (
        "test accuracy from 0.992 to 0.989 (at 5 epochs, lr 0.001), indistinguishable: -0.003 [-0.00"
        in summarize_axis(table, "batch_per_rank")
    )


def test_what_did_not_fit_is_part_of_the_answer() -> None:
    table = make_table(
        results(
            {"batch_per_rank": [16, 32, 64]}, lambda values, repeat: 100.0 if values["batch_per_rank"] < 64 else None
        )
    )
    assert summarize_axis(table, "batch_per_rank").endswith("(n=3); not measured: batch_per_rank 64 (oom).")


def test_a_comparison_of_fewer_blocks_than_there_are_runs_says_so() -> None:
    def rate(values: dict[str, Any], repeat: int) -> float | None:
        measured = repeat < 3 if values["world_size"] == 1 else repeat > 1
        return 100.0 * values["world_size"] * (1 - 0.1 * repeat) if measured else None

    table = make_table(results({"batch_per_rank": 16, "world_size": [1, 2]}, rate, repeats=5))
    assert "2.00 times as fast in the one block that has both on one machine and device with the same versions" in (
        summarize_axis(table, "world_size")
    )
    assert table.frame()["speed-up [95%]"][1] == "2.00 (1 of 3)"


def test_runs_of_two_machines_or_devices_are_not_compared() -> None:
    for name, other in (("machine", {"host": "big", "cpu": "Other CPU"}), ("device", "cuda: A GPU")):
        runs = results({"batch_per_rank": 16, "world_size": [1, 2]}, lambda values, repeat: 10.0 * values["world_size"])
        for record in runs.records:
            if record.config["world_size"] == 2:
                setattr(record, name, other)
        table = make_table(runs)
        assert table.rows[1].speed_up is None
        assert "not compared: no block has both on one machine and device" in summarize_axis(table, "world_size")
        assert any("different" in note for note in table.notes)


@pytest.mark.parametrize(
    ("field", "there", "here"),
    [
        ("versions", {"torch": "2"}, {"torch": "99"}),
        ("versions", {"torch": "2", "cuda": "12"}, {"torch": "2", "cuda": "13"}),
        ("git", {"commit": "a" * 40, "dirty": False}, {"commit": "b" * 40, "dirty": False}),
        (
            "git",
            {"commit": "a" * 40, "dirty": True, "changes": "12"},
            {"commit": "a" * 40, "dirty": True, "changes": "3"},
        ),
    ],
)
def test_runs_of_two_versions_are_not_compared(field: str, there: dict[str, Any], here: dict[str, Any]) -> None:
    runs = results(
        {"batch_per_rank": [16, 32], "world_size": [1, 2]}, lambda values, repeat: 10.0 * values["world_size"]
    )
    for record in runs.records:
        setattr(record, field, here if record.config["world_size"] == 2 else there)
    table = make_table(runs)
    assert [row.speed_up for row in table.rows] == [None] * 4
    summary = summarize_axis(table, "world_size")
    assert summary.count("not compared: no block has both on one machine and device with the same versions") == 2
    assert "global_batch 32 to 64), not compared: no block has both with the same versions" in summary
    assert "indistinguishable in speed" in summarize_axis(table, "batch_per_rank"), "of equal versions they are paired"
    (note,) = [note for note in table.notes if note.startswith("Rows of different versions")]
    one, two = (f"world_size={ranks} batch_per_rank=16; world_size={ranks} batch_per_rank=32." for ranks in (1, 2))
    assert one in note
    assert two in note


def test_images_a_second_are_never_compared_with_seconds_a_run() -> None:
    runs = results({"batch_per_rank": [16, 32]}, lambda values, repeat: 1000.0)
    for record in runs.records:
        if record.config["batch_per_rank"] == 32:
            record.images_per_s = None
    summary = summarize_axis(make_table(runs), "batch_per_rank")
    assert "indistinguishable in speed: 1.00 [1.00, 1.00] times as fast" in summary
    assert "images/s" not in summary


def test_runs_that_were_searched_alone_say_nothing_of_speed() -> None:
    runs = results({"batch_per_rank": [16, 32]}, lambda values, repeat: 100.0)
    for record in runs.records:
        record.mode = "search"
    assert "run them with --mode bench" in summarize_axis(make_table(runs), "batch_per_rank")


def test_equally_fast_choices_are_called_different_at_most_5_times_in_100() -> None:
    random = np.random.default_rng(8)
    false = lower = 0
    for _ in range(200):
        noise = {name: random.lognormal(0, 0.05, 4) for name in ("adam", "adamw", "sgd", "rmsprop")}
        shift = {name: random.normal(0, 0.01, 4) for name in noise}
        table = make_table(
            results(
                {"optimizer": list(noise), "batch_per_rank": 16},
                lambda values, repeat, noise=noise: 100 * noise[values["optimizer"]][repeat],
                accuracy=lambda values, repeat, shift=shift: 0.8 + shift[values["optimizer"]][repeat],
                repeats=4,
            )
        )
        summary = summarize_axis(table, "optimizer")
        false += " faster: " in summary
        lower += "higher than" in summary or ", the highest;" in summary
    assert false <= 10
    assert lower <= 10


def test_equal_user_choices_are_not_named() -> None:
    summary = summarize_axis(
        make_table(own_results({"size": ["b", "a"]}, lambda values, repeat: (1.0 + repeat, {}))), "size"
    )
    assert summary == "Seconds a run is 1.8 with every size (n=3)."


def test_what_is_best_in_between_is_not_named_where_it_may_be_chance() -> None:
    speeds = {16: [100.0, 103.0, 98.0], 32: [101.0, 99.0, 104.0], 64: [99.0, 102.0, 100.0]}
    table = make_table(
        results({"batch_per_rank": [16, 32, 64]}, lambda values, repeat: speeds[values["batch_per_rank"]][repeat])
    )
    assert "fastest at" not in summarize_axis(table, "batch_per_rank")


def test_a_rate_of_nothing_is_compared_with_nothing() -> None:
    runs = own_results({"world_size": [1, 2]}, lambda values, repeat: (1.0, {"images_per_s": 0.0}))
    table = make_table(runs)
    assert all(row.speed_up is None for row in table.rows)


def test_a_measure_that_few_runs_reported_says_how_many() -> None:
    runs = own_results(
        {"depth": [1, 2]}, lambda values, repeat: (1.0, {"bits": values["depth"]} if repeat < 3 else {}), repeats=5
    )
    table = make_table(runs)
    assert table.frame()["bits [95%]"].tolist() == ["1 [1, 1] (3 of 5)", "2 [2, 2] (3 of 5)"]
    assert "bits went from 1 to 2 (+1 [+1, +1] in the 3 blocks that have both)" in summarize_axis(table, "depth")
