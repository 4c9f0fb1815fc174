from __future__ import annotations

from typing import Any

from dmls_ray.analysis.answer import answer, answer_variants
from dmls_ray.analysis.tables import make_table
from tests.analysis.samples import results


def test_a_number_is_followed_from_its_first_value_to_its_last_at_each_other_factor() -> None:
    def rate(values: dict[str, Any], repeat: int) -> float:
        return float(values["batch_per_rank"] * (10 + repeat) * values["world_size"])

    table = make_table(results({"batch_per_rank": [16, 64], "world_size": [1, 2]}, rate))
    assert answer(table, "batch_per_rank") == (
        "At world_size 1, from batch_per_rank 16 to 64 training went from 176 to 704 images/s, faster: "
        "4.00 [4.00, 4.00] times as fast, peak memory from 116 to 164 MiB, "
        "test accuracy from 0.900 [0.900, 0.900] to 0.900 [0.900, 0.900]; "
        "at world_size 2, from batch_per_rank 16 to 64 training went from 352 to 1,408 images/s, faster: "
        "4.00 [4.00, 4.00] times as fast, peak memory from 116 to 164 MiB, "
        "test accuracy from 0.900 [0.900, 0.900] to 0.900 [0.900, 0.900] "
        "(n=3)."
    )


def test_what_cannot_be_told_apart_is_called_indistinguishable() -> None:
    noise = [0.9, 1.0, 1.1]
    table = make_table(
        results(
            {"batch_per_rank": 16, "world_size": [1, 2]},
            lambda values, repeat: 100 * noise[repeat] ** values["world_size"],
        )
    )
    sentence = answer(table, "world_size")
    assert sentence.startswith("At batch_per_rank 16, from world_size 1 to 2 training went from")
    assert "indistinguishable in speed: 1.00 [0.90, 1.10] times as fast" in sentence


def test_of_choices_the_most_accurate_and_the_fastest_are_named() -> None:
    speeds, accuracies = {"adam": 100.0, "sgd": 150.0}, {"adam": 0.9, "sgd": 0.6}
    table = make_table(
        results(
            {"optimizer": ["adam", "sgd"], "batch_per_rank": 16},
            lambda values, repeat: speeds[values["optimizer"]],
            accuracy=lambda values, repeat: accuracies[values["optimizer"]],
        )
    )
    assert answer(table, "optimizer") == (
        "Optimizer adam reached the highest test accuracy (0.900 [0.900, 0.900]), and sgd against adam trained faster: "
        "1.50 [1.50, 1.50] times as fast (n=3)."
    )


def test_strong_scaling_is_one_line_of_world_sizes() -> None:
    table = make_table(
        results({"global_batch": 64, "world_size": [1, 2]}, lambda values, repeat: 10.0 * values["world_size"])
    )
    assert "from world_size 1 to 2 training went from 10.0 to 20.0 images/s" in answer(table, "world_size")


def test_a_factor_that_differs_along_with_the_axis_is_never_mixed_in() -> None:
    speeds = {"adam": 10.0, "sgd": 100.0}
    table = make_table(
        results(
            {"global_batch": 64, "world_size": [1, 2], "optimizer": ["adam", "sgd"]},
            lambda values, repeat: speeds[values["optimizer"]] * values["world_size"],
        )
    )
    sentence = answer(table, "world_size")
    assert sentence.count("2.00 [2.00, 2.00] times as fast") == 2
    assert "at optimizer sgd, global_batch 64" in sentence or "at global_batch 64, optimizer sgd" in sentence
    mixed = results({"batch_per_rank": 16, "optimizer": ["adam", "sgd"]}, lambda values, repeat: 10.0)
    for record in mixed.records:
        if record.config["optimizer"] == "sgd":
            record.config["epochs"] = 7
    assert answer(make_table(mixed), "optimizer") == (
        "No two trials differ in optimizer alone, so nothing can be said of it."
    )


def test_a_sweep_of_batches_answers_about_the_batch_that_was_given() -> None:
    axes = {"global_batch": [64, 128], "world_size": [1, 2]}
    table = make_table(results(axes, lambda values, repeat: 10.0), ("world_size", "global_batch"))
    assert "from global_batch 64 to 128" in answer(table, "batch_per_rank")


def test_one_repeat_gives_a_bare_ratio_and_says_n_1() -> None:
    table = make_table(results({"batch_per_rank": [16, 32]}, lambda values, repeat: 100.0, repeats=1))
    assert "1.00 times as fast" in answer(table, "batch_per_rank")
    assert answer(table, "batch_per_rank").endswith("(n=1).")


def test_without_an_ok_run_nothing_is_said() -> None:
    table = make_table(results({"batch_per_rank": [16, 32]}, lambda values, repeat: None))
    assert answer(table, "batch_per_rank") == "No run ended ok, so nothing can be said of batch_per_rank."


def test_a_single_value_cannot_be_compared() -> None:
    table = make_table(results({"batch_per_rank": [16]}, lambda values, repeat: 100.0))
    assert answer(table, "batch_per_rank").startswith("Only one value of batch_per_rank was measured")


def test_accumulation_at_one_global_batch_is_compared_at_that_batch() -> None:
    table = make_table(
        results({"global_batch": 64, "accum_steps": [1, 4]}, lambda values, repeat: 100.0 / values["accum_steps"])
    )
    assert table.held == "global_batch"
    assert answer(table, "accum_steps").startswith(
        "At global_batch 64, from accum_steps 1 to 4 training went from 100 to 25.0 images/s"
    )


def test_an_axis_with_one_value_gives_way_to_the_one_that_varies() -> None:
    table = make_table(
        results({"global_batch": 64, "world_size": [1, 2]}, lambda values, repeat: 10.0 * values["world_size"]),
        ["world_size"],
    )
    assert "from world_size 1 to 2 training went from 10.0 to 20.0 images/s" in answer(table, "batch_per_rank")


def test_each_change_made_alone_is_compared_with_the_trial_without_any() -> None:
    gains = {"dropout": [0.02, 0.03, 0.04], "l1": [-0.1, -0.2, -0.1], "label_smoothing": [0.1, -0.1, 0.0]}

    def accuracy(values: dict[str, Any], repeat: int) -> float:
        changed = [name for name in gains if values[name]]
        return 0.8 + sum(gains[name][repeat] for name in changed)

    changes = [{}, {"dropout": 0.3}, {"l1": 0.1}, {"label_smoothing": 0.1}]
    runs = results({"batch_per_rank": 16}, lambda values, repeat: 100.0, accuracy=accuracy, variants=changes)
    table = make_table(runs)
    assert {"acc. gap", "overfit from epoch"} <= set(table.frame().columns)
    assert answer_variants(table, ["dropout", "l1", "label_smoothing"]) == (
        "Against a test accuracy of 0.800 [0.800, 0.800] without, it is higher with dropout=0.3 "
        "(+0.030 [+0.020, +0.040]), lower with l1=0.1 (-0.100 [-0.200, -0.100]), not told apart from it with "
        "label_smoothing=0.1 (+0.000 [-0.100, +0.100]); the gap to training accuracy, 0.150, is smallest with "
        "dropout=0.3: 0.120 (n=3)."
    )
