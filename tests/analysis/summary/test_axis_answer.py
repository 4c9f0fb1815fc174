"""What an answer says about an axis, over whole tables."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from dmls_ray.analysis.summary.answer import MOST_FINDINGS, Answer
from dmls_ray.analysis.summary.sweep_summary import answer_on_axis
from dmls_ray.analysis.table.build import make_table
from dmls_ray.records.outcome import Outcome
from tests.analysis.samples import own_results, results, set_value

FOUR_AXES = {
    "batch_per_rank": [16, 32], "world_size": [1, 2], "optimizer": ["adam", "sgd"], "precision": ["fp32", "amp-bf16"]
}  # fmt: skip


def answer(runs: Any, axis: str, varied: list[str] | None = None) -> Answer:
    return answer_on_axis(make_table(runs, varied), axis)


def findings(found: Answer) -> dict[str, str]:
    return {finding.topic: finding.text for finding in found.findings}


def test_an_axis_of_numbers_has_a_headline_and_a_line_for_each_measure_and_each_other_axis() -> None:
    def rate(values: dict[str, Any], repeat: int) -> float:
        return float(values["batch_per_rank"] * (10 + repeat) * values["world_size"])

    runs = results({"batch_per_rank": [16, 64], "world_size": [1, 2]}, rate)
    for record in runs.records:
        record.metrics["test_samples"] = 1000
    found = answer(runs, "batch_per_rank")
    assert found.text.splitlines() == [
        "On 1 rank, batch_per_rank 64 trains 4.00x as fast as 16, at equal test accuracy.",
        "speed: from 16 to 64 4.00x [4.00, 4.00] on 1 rank, 4.00x [4.00, 4.00] on 2 ranks",
        "accuracy: 0.900 at 16 to 0.900 at 64 on 1 rank, +0.0 points [-0.4, +0.4], equal; 0.900 at 16 to "
        "0.900 at 64 on 2 ranks, +0.0 points [-0.4, +0.4], equal",
        "2 ranks: 2.00x [2.00, 2.00] at batch_per_rank 16, 2.00x [2.00, 2.00] at batch_per_rank 64 as fast as 1",
        "memory: tensor memory from 116 to 164 MiB on 1 rank",
    ]


def test_values_that_span_less_than_a_doubling_have_no_factor_per_doubling() -> None:
    rates = {16: 100.0, 20: 110.0, 24: 120.0}
    runs = results({"batch_per_rank": [16, 20, 24]}, lambda values, repeat: rates[values["batch_per_rank"]])
    assert findings(answer(runs, "batch_per_rank"))["speed"] == "1.20x [1.20, 1.20] from 16 to 24"


def speeds_along(factors: dict[int, float], noise: float = 0.02, repeats: int = 12, ranks: Any = 1) -> str:
    random = np.random.default_rng(1)
    runs = results(
        {"batch_per_rank": list(factors), "world_size": ranks},
        lambda values, repeat: 100 * factors[values["batch_per_rank"]] * float(random.lognormal(0, noise)),
        repeats=repeats,
    )
    return findings(answer(runs, "batch_per_rank"))["speed"]


@pytest.mark.parametrize(
    ("factors", "beginning", "end"),
    [
        ({16: 1.0, 32: 1.5, 64: 2.25, 128: 3.4}, "1.51x [1.49, 1.52] per doubling", ", still rising at 128"),
        ({16: 1.0, 32: 1.59, 64: 2.29, 128: 2.82}, "1.58x [", ", still rising at 128"),
        ({16: 1.0, 32: 1.6, 64: 1.9, 128: 1.92}, "1.59x [", ", not distinguished beyond 64 (128: 1.01x ["),
        ({16: 1.0, 32: 1.6, 64: 1.9, 128: 1.5}, "1.59x [", ", falling beyond 64 (128: 0.79x ["),
        ({16: 1.0, 32: 2.0, 64: 1.0}, "1.98x [", ""),  # neither rises nor falls as a whole
    ],
)
def test_a_factor_per_doubling_is_given_where_a_line_fits_and_else_the_first_and_the_last_step(
    factors: dict[int, float], beginning: str, end: str
) -> None:
    text = speeds_along(factors)
    assert text.startswith(beginning)
    assert end in text
    batches = list(factors)
    steps = f"from {batches[0]} to {batches[1]}; ", f"from {batches[-2]} to {batches[-1]}"
    assert ("per doubling" in text) != all(step in text for step in steps), text


def test_where_the_fit_of_a_line_cannot_be_tested_steps_are_given() -> None:
    assert (
        speeds_along({16: 1.0, 32: 1.5, 64: 2.25}, noise=0.0, repeats=2) == "1.50x from 16 to 32; 1.50x from 32 to 64"
    )


def test_a_line_has_to_fit_on_every_number_of_ranks() -> None:
    factors = {16: 1.0, 32: 1.59, 64: 2.29, 128: 2.82}
    assert speeds_along(factors, ranks=[1, 2]).startswith("from 16 to 32 1.58x [")
    of_three = speeds_along(factors, noise=0.0, repeats=3, ranks=[1, 2, 4])
    assert of_three == "from 16 to 32 1.59x; from 64 to 128 1.23x, still rising at 128"


def test_trials_whose_interval_includes_1_are_not_called_faster() -> None:
    noise = [0.9, 1.0, 1.1]
    runs = results(
        {"batch_per_rank": 16, "world_size": [1, 2]},
        lambda values, repeat: 100 * noise[repeat] ** values["world_size"],
    )
    found = answer(runs, "world_size")
    assert found.headline == (
        "2 ranks are not distinguished from 1 in speed: 1.00x [0.70, 1.43], at equal test accuracy."
    )
    assert findings(found)["speed"] == "1.00x [0.70, 1.43] as fast as 1"


def test_the_fastest_choice_is_compared_with_the_default_and_so_is_its_accuracy() -> None:
    speeds, accuracies = {"adam": 100.0, "sgd": 150.0}, {"adam": 0.9, "sgd": 0.6}
    runs = results(
        {"optimizer": ["adam", "sgd"], "batch_per_rank": 16},
        lambda values, repeat: speeds[values["optimizer"]],
        accuracy=lambda values, repeat: accuracies[values["optimizer"]],
    )
    found = answer(runs, "optimizer")
    assert found.headline == (
        "optimizer sgd trains 1.50x as fast as adam and loses 30.0 points of test accuracy (still rising in the last "
        "epoch)."
    )
    assert findings(found)["accuracy"] == "-30.0 points [-30.0, -30.0] against adam"


def test_a_choice_that_loses_accuracy_is_not_in_the_headline_for_its_speed() -> None:
    speeds = {"adam": 100.0, "sgd": 150.0, "rmsprop": 120.0}
    runs = results(
        {"optimizer": list(speeds), "batch_per_rank": 16},
        lambda values, repeat: speeds[values["optimizer"]],
        accuracy=lambda values, repeat: 0.6 if values["optimizer"] == "sgd" else 0.9,
    )
    found = answer(runs, "optimizer")
    assert found.headline == (
        "optimizer rmsprop trains 1.20x as fast as adam, and sgd loses 30.0 points of test accuracy (still rising in "
        "the last epoch)."
    )
    assert "sgd -30.0 points" in findings(found)["accuracy"]


@pytest.mark.parametrize(
    ("worse", "headline"),
    [
        (
            {"adamw": [0.0] * 3, "sgd": [0.0] * 3},
            "Every optimizer is equal to adam in speed, the farthest adamw: 1.00x [1.00, 1.00], at equal test "
            "accuracy.",
        ),
        (
            {"adamw": [0.4] * 3, "sgd": [0.1, -0.1, 0.1]},
            "optimizer adamw loses 40 points of test accuracy (still rising in the last epoch) against adam; every "
            "optimizer is equal to adam in speed, the farthest adamw: 1.00x [1.00, 1.00].",
        ),
    ],
)
def test_a_choice_that_may_equal_the_default_by_chance_is_not_called_worse(
    worse: dict[str, list[float]], headline: str
) -> None:
    less = {"adam": [0.0, 0.0, 0.0], **worse}
    runs = results(
        {"optimizer": list(less), "batch_per_rank": 16},
        lambda values, repeat: 100.0,
        accuracy=lambda values, repeat: 0.9 - less[values["optimizer"]][repeat],
    )
    assert answer(runs, "optimizer").headline == headline


def test_a_choice_with_a_higher_mean_than_the_one_that_is_faster_beyond_chance_is_named() -> None:
    rates = {"adam": (100.0, 100.0), "sgd": (80.0, 160.0), "adamw": (104.0, 105.0)}
    axes = {"optimizer": list(rates), "batch_per_rank": 16}
    runs = results(axes, lambda values, repeat: rates[values["optimizer"]][repeat % 2], repeats=12)
    assert answer(runs, "optimizer").headline == (
        "optimizer adamw trains 1.04x as fast as adam (sgd, 1.13x [0.81, 1.58], is not distinguished from adam), at "
        "equal test accuracy."
    )


def test_a_loss_of_accuracy_is_said_with_the_steps_that_led_to_it() -> None:
    runs = results(
        {"batch_per_rank": [16, 128]},
        lambda values, repeat: float(values["batch_per_rank"]),
        accuracy=lambda values, repeat: 0.97 if values["batch_per_rank"] == 16 else 0.86,
    )
    for record in runs.records:
        record.metrics["steps"] = 7200 // record.config["batch_per_rank"]
        record.metrics["best_epoch"] = 1  # early stopping: the last epoch says nothing
    assert answer(runs, "batch_per_rank").headline == (
        "batch_per_rank 128 trains 8.00x as fast as 16 and loses 11.0 points of test accuracy (56 optimizer steps "
        "instead of 450)."
    )


def test_no_interval_of_accuracies_is_wider_than_100_points() -> None:
    levels = {16: (0.2, 0.9, 0.1), 32: (0.9, 0.1, 0.9)}
    runs = results(
        {"batch_per_rank": [16, 32], "world_size": [1, 2]},
        lambda values, repeat: 100.0,
        accuracy=lambda values, repeat: levels[values["batch_per_rank"]][(repeat + values["world_size"]) % 3],
    )
    text = answer(runs, "batch_per_rank").text
    assert "points [-100, +100]" in text
    assert all(abs(float(number)) <= 100 for number in re.findall(r"[-+]\d+(?:\.\d+)?", text))


def test_undecided_losses_are_not_worded_as_a_difference() -> None:
    losses = {1: (1.0, 1.1, 0.9), 2: (1.2, 0.9, 1.0)}
    runs = own_results({"depth": [1, 2]}, lambda values, repeat: (1.0, {"test_loss": losses[values["depth"]][repeat]}))
    for record in runs.records:
        record.metrics.pop("total_s", None)
    assert answer(runs, "depth").headline == "depth 2 is not distinguished from 1 in test loss: 1.03x [0.62, 1.70]."


def test_where_the_speed_is_no_question_the_headline_is_about_accuracy() -> None:
    reached = {0.001: 0.8, 0.01: 0.9, 0.1: 0.3}
    runs = results(
        {"lr": list(reached), "batch_per_rank": 16},
        lambda values, repeat: 100.0,
        accuracy=lambda values, repeat: reached[values["lr"]],
    )
    assert answer(runs, "lr").headline == (
        "lr 0.01 gains 10.0 points of test accuracy against 0.001; every lr is equal to 0.001 in speed, the farthest "
        "0.01: 1.00x [1.00, 1.00]."
    )


def test_a_field_that_counts_with_one_choice_alone_does_not_part_the_choices() -> None:
    runs = results({"optimizer": ["adam", "sgd"], "momentum": 0.9, "batch_per_rank": 16}, lambda values, repeat: 100.0)
    assert answer(runs, "optimizer").headline.startswith("optimizer sgd is equal to adam in speed: 1.00x")


def test_where_only_one_choice_could_be_measured_that_comes_first() -> None:
    runs = results(
        {"backend": ["gloo", "nccl"], "batch_per_rank": [16, 32], "world_size": 2},
        lambda values, repeat: None if values["backend"] == "nccl" else 100.0,
    )
    found = answer(runs, "backend")
    assert found.headline.startswith("Only backend gloo could be measured. batch_per_rank 32 is equal to 16 in speed")
    assert (
        findings(found)["not measured"] == "batch_per_rank=16 backend=nccl (oom), batch_per_rank=32 backend=nccl (oom)"
    )


def test_strong_scaling_is_one_line_of_world_sizes() -> None:
    runs = results({"global_batch": 64, "world_size": [1, 2]}, lambda values, repeat: 10.0 * values["world_size"])
    assert answer(runs, "world_size").headline.startswith("2 ranks train 2.00x as fast as 1, ")


def test_a_factor_that_differs_along_with_the_axis_is_never_mixed_in() -> None:
    speeds = {"adam": 10.0, "sgd": 100.0}
    runs = results(
        {"global_batch": 64, "world_size": [1, 2], "optimizer": ["adam", "sgd"]},
        lambda values, repeat: speeds[values["optimizer"]] * values["world_size"],
    )
    assert findings(answer(runs, "world_size"))["speed"] == (
        "2.00x [2.00, 2.00] at optimizer adam, 2.00x [2.00, 2.00] at optimizer sgd as fast as 1"
    )
    mixed = results({"batch_per_rank": 16, "optimizer": ["adam", "sgd"]}, lambda values, repeat: 10.0)
    for record in mixed.records:
        if record.config["optimizer"] == "sgd":
            record.config["epochs"] = 7
    assert (
        answer(mixed, "optimizer").headline == "No two trials differ in optimizer alone, so nothing can be said of it."
    )


def test_a_sweep_of_batches_answers_about_the_batch_that_was_given() -> None:
    runs = results({"global_batch": [64, 128], "world_size": [1, 2]}, lambda values, repeat: 10.0)
    assert "global_batch 128 is equal to 64" in answer(runs, "batch_per_rank", ["world_size", "global_batch"]).headline


def test_one_repeat_gives_a_bare_ratio_and_says_that_it_may_be_chance() -> None:
    runs = results({"batch_per_rank": [16, 32]}, lambda values, repeat: float(values["batch_per_rank"]), repeats=1)
    assert answer(runs, "batch_per_rank").headline == (
        "batch_per_rank 32 trains 2.00x as fast as 16, test accuracy not distinguished: +0.0 points (n=1, so perhaps "
        "by chance)."
    )


def test_without_an_ok_run_nothing_is_said() -> None:
    runs = results({"batch_per_rank": [16, 32]}, lambda values, repeat: None)
    assert answer(runs, "batch_per_rank") == Answer("No run ended ok, so nothing can be said of batch_per_rank.")


def test_a_single_trial_cannot_be_compared() -> None:
    found = answer(results({"batch_per_rank": [16]}, lambda values, repeat: 100.0), "batch_per_rank")
    assert found.headline == ("Only one trial was measured, so nothing can be compared: images/s 100, test acc. 0.900.")


def test_accumulation_at_one_global_batch_is_compared_at_that_batch() -> None:
    runs = results({"global_batch": 64, "accum_steps": [1, 4]}, lambda values, repeat: 100.0 / values["accum_steps"])
    assert make_table(runs).fixed_batch_field == "global_batch"
    assert answer(runs, "accum_steps").headline.startswith("accum_steps 4 trains 0.25x as fast as 1, ")


def test_an_axis_with_one_value_gives_way_to_the_one_that_varies() -> None:
    runs = results({"global_batch": 64, "world_size": [1, 2]}, lambda values, repeat: 10.0 * values["world_size"])
    assert answer(runs, "batch_per_rank", ["world_size"]).headline.startswith("2 ranks train 2.00x as fast as 1, ")


def test_on_one_machine_the_ranks_of_a_machine_are_compared() -> None:
    axes = {"machines": [1, 2], "ranks_per_machine": [1, 2], "batch_per_rank": 32}
    runs = results(axes, lambda values, repeat: 100.0 * values["ranks_per_machine"])
    for record in runs.records:
        if record.config["machines"] == 2:
            record.outcome, record.metrics = Outcome.SKIPPED, {}
    found = answer(runs, "machines", ["machines", "ranks_per_machine", "world_size"])
    assert found.headline.startswith("Only machines 1 could be measured. 2 ranks per machine train 2.00x as fast as 1")


def test_every_measure_of_a_user_function_is_compared_along_the_axis() -> None:
    runs = own_results(
        {"depth": [1, 2, 4]},
        lambda values, repeat: (values["depth"] + repeat / 2, {"bits": (8 + repeat) / values["depth"], "words": 7}),
    )
    found = answer(runs, "depth")
    assert found.headline == "depth 4 takes 3.1x as long as 1 and has 0.25x the bits."
    assert findings(found)["bits"] == "0.50x [0.50, 0.50] per doubling, still falling at 4"
    assert "words" not in found.text, "what is equal in all runs compares nothing"


def test_a_printed_ratio_is_the_ratio_of_the_printed_values() -> None:
    """Geometric means: the time of a run is 1.8 s and 4.9 s, and the ratio 2.7, not the difference of other means."""
    runs = own_results({"depth": [1, 4]}, lambda values, repeat: (values["depth"] + repeat, {}))
    frame = make_table(runs).frame()
    first, last = (float(cell.split()[0]) for cell in frame["s/run [95%]"])
    assert answer(runs, "depth").headline == f"depth 4 takes {last / first:.1f}x as long as 1."


def test_user_choices_are_compared_with_the_first_by_each_measure() -> None:
    level = {"gru": 2.0, "lstm": 1.0, "rnn": 3.0}
    runs = own_results(
        {"cell": list(level)}, lambda values, repeat: (4.0, {"bits": level[values["cell"]] + repeat / 10})
    )
    found = findings(answer(runs, "cell"))
    assert found["time"] == "lstm 1.00x [1.00, 1.00], rnn 1.00x [1.00, 1.00] as long as gru"
    assert found["bits"].startswith("lstm 0.52x [")


def test_the_best_of_an_axis_is_in_the_headline_where_it_is_in_between() -> None:
    speeds, accuracies = {16: 100.0, 32: 900.0, 64: 95.0}, {16: 0.5, 32: 0.9, 64: 0.6}
    runs = results(
        {"batch_per_rank": [16, 32, 64]},
        lambda values, repeat: speeds[values["batch_per_rank"]],
        accuracy=lambda values, repeat: accuracies[values["batch_per_rank"]],
    )
    found = answer(runs, "batch_per_rank")
    assert found.headline == "batch_per_rank 32 trains 9.00x as fast as 16 and gains 40.0 points of test accuracy."
    assert findings(found)["accuracy"] == (
        "0.500 at 16 to 0.600 at 64, +10.0 points [+10.0, +10.0], first clearly higher at 32, highest at 32: +40.0 "
        "points [+40.0, +40.0]"
    )


def test_what_is_best_in_between_is_not_named_where_it_may_be_chance() -> None:
    speeds = {16: [100.0, 103.0, 98.0], 32: [101.0, 99.0, 104.0], 64: [99.0, 102.0, 100.0]}
    runs = results({"batch_per_rank": [16, 32, 64]}, lambda values, repeat: speeds[values["batch_per_rank"]][repeat])
    assert answer(runs, "batch_per_rank").headline == (
        "No batch_per_rank is distinguished from 16 in speed, the farthest 32: 1.01x [0.89, 1.15], at equal test "
        "accuracy."
    )


def test_an_accuracy_is_compared_with_the_steps_and_the_learning_rate_that_led_to_it() -> None:
    runs = results({"batch_per_rank": [16, 32, 64], "world_size": 2}, lambda values, repeat: 900.0)
    for record in runs.records:
        batch = record.config["batch_per_rank"]
        record.metrics["steps"], record.metrics["scaled_lr"] = 14400 // batch, batch / 16000
    assert findings(answer(runs, "batch_per_rank"))["accuracy"].endswith(
        "; along with lr 0.001 to 0.004, global_batch 32 to 128, fewer optimizer steps (900 to 225)"
    )


def test_losses_of_a_user_function_are_compared_by_their_ratio() -> None:
    runs = own_results(
        {"depth": [1, 2], "lr": 0.1, "epochs": 3},
        lambda values, repeat: (1.0, {"test_loss": (1.0 + repeat) / values["depth"]}),
    )
    assert findings(answer(runs, "depth"))["test_loss"] == "0.50x [0.50, 0.50] from 1 to 2"


def test_three_equal_differences_of_one_test_sample_are_no_verdict() -> None:
    runs = results(
        {"batch_per_rank": [16, 32]},
        lambda values, repeat: 900.0,
        accuracy=lambda values, repeat: (355 + repeat - values["batch_per_rank"] // 32) / 359,
    )
    for record in runs.records:
        record.metrics["test_samples"] = 359
    assert "0.992 at 16 to 0.989 at 32, -0.3 points [-0." in findings(answer(runs, "batch_per_rank"))["accuracy"]
    assert findings(answer(runs, "batch_per_rank"))["accuracy"].endswith(", equal"), "within 2 points"


def test_what_did_not_fit_is_part_of_the_answer() -> None:
    runs = results(
        {"batch_per_rank": [16, 32, 64]}, lambda values, repeat: 100.0 if values["batch_per_rank"] < 64 else None
    )
    assert findings(answer(runs, "batch_per_rank"))["not measured"] == "batch_per_rank=64 (oom)"


def test_runs_of_two_machines_or_devices_are_not_compared() -> None:
    for name, other in (("machine", {"host": "big", "cpu": "Other CPU"}), ("device", "cuda: A GPU")):
        runs = results({"batch_per_rank": 16, "world_size": [1, 2]}, lambda values, repeat: 10.0 * values["world_size"])
        for record in runs.records:
            if record.config["world_size"] == 2:
                set_value(record, name, other)
        table = make_table(runs)
        assert table.rows[1].speed_up is None
        found = answer_on_axis(table, "world_size")
        assert found.headline == (
            "2 ranks and 1 are not compared: no block has both on one machine and device with the same versions."
        )
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
        set_value(record, field, here if record.config["world_size"] == 2 else there)
    table = make_table(runs)
    assert [row.speed_up for row in table.rows] == [None] * 4
    found = answer_on_axis(table, "world_size")
    assert "not compared: no block has both" in found.headline
    assert findings(found)["speed"].startswith("not compared: no block has both")
    along = findings(answer_on_axis(table, "batch_per_rank"))["speed"]
    assert along.startswith("from 16 to 32 1.00x [1.00, 1.00] on 1 rank, 1.00x"), "of equal versions they are paired"
    (note,) = [note for note in table.notes if note.startswith("Rows of different versions")]
    one, two = (f"world_size={ranks} batch_per_rank=16; world_size={ranks} batch_per_rank=32." for ranks in (1, 2))
    assert one in note
    assert two in note


def test_images_a_second_are_never_compared_with_seconds_a_run() -> None:
    runs = results({"batch_per_rank": [16, 32]}, lambda values, repeat: 1000.0)
    for record in runs.records:
        if record.config["batch_per_rank"] == 32:
            record.metrics.pop("images_per_s", None)
    assert findings(answer(runs, "batch_per_rank"))["speed"] == "1.00x [1.00, 1.00] from 16 to 32"


def test_equally_fast_choices_are_called_different_at_most_5_times_in_100() -> None:
    random = np.random.default_rng(8)
    false = lower = 0
    for _ in range(200):
        noise = {name: random.lognormal(0, 0.05, 4) for name in ("adam", "adamw", "sgd", "rmsprop")}
        shift = {name: random.normal(0, 0.01, 4) for name in noise}
        runs = results(
            {"optimizer": list(noise), "batch_per_rank": 16},
            lambda values, repeat, noise=noise: 100 * noise[values["optimizer"]][repeat],
            accuracy=lambda values, repeat, shift=shift: 0.8 + shift[values["optimizer"]][repeat],
            repeats=4,
        )
        headline = answer(runs, "optimizer").headline
        false += not headline.startswith("No optimizer is distinguished from adam in speed")
        lower += "points of test accuracy" in headline
    assert false <= 10
    assert lower <= 10


def test_a_rate_of_nothing_is_compared_with_nothing() -> None:
    runs = own_results({"world_size": [1, 2]}, lambda values, repeat: (1.0, {"images_per_s": 0.0}))
    assert all(row.speed_up is None for row in make_table(runs).rows)
    assert "not compared" in answer(runs, "world_size").headline


def test_an_answer_has_at_most_five_findings_and_drops_memory_first() -> None:
    runs = results(
        {
            "batch_per_rank": [16, 32],
            "world_size": [1, 2],
            "optimizer": ["adam", "sgd"],
            "precision": ["fp32", "amp-bf16"],
        },
        lambda values, repeat: float(values["batch_per_rank"]),
    )
    found = answer(runs, "batch_per_rank")
    topics = [finding.topic for finding in found.findings]
    assert topics == ["speed", "accuracy", "2 ranks", "optimizer sgd", "precision amp-bf16"]
    assert len(found.findings) == MOST_FINDINGS


def test_no_headline_has_more_than_25_words() -> None:
    runs = results(
        {
            "batch_per_rank": [16, 32],
            "world_size": [1, 2],
            "optimizer": ["adam", "sgd"],
            "precision": ["fp32", "amp-bf16"],
        },
        lambda values, repeat: 100.0 + repeat,
    )
    for axis in ("batch_per_rank", "world_size", "optimizer", "precision"):
        assert len(answer(runs, axis).headline.split()) <= 25, axis


LOSSES = {0.001: 2.0, 0.01: 1.0, 0.1: 3.0}


def of_grid(*, is_asked: bool = False, rate: str = "lr", loss: str = "test_loss") -> Answer:
    """A function with two fields, whose result is best at lr 0.01 and depth 4."""
    runs = own_results(
        {"depth": [1, 4], rate: list(LOSSES)},
        lambda values, repeat: (1.0, {loss: LOSSES[values[rate]] / values["depth"] + 0.01 * repeat}),
    )
    table = make_table(runs)
    table.is_asked = is_asked
    return answer_on_axis(table, "depth")


def test_a_sweep_of_combinations_names_the_best_one_first() -> None:
    found = of_grid()
    assert found.findings[0].topic == "best"
    assert found.findings[0].text == "0.260 test loss with depth=4 lr=0.01; better than each other one beyond chance"
    assert findings(of_grid(loss="my_loss"))["best"].startswith("0.260 my_loss with depth=4 lr=0.01; better than each")


def test_a_sweep_about_one_field_names_the_best_trial_only_where_each_choice_has_its_best_learning_rate() -> None:
    assert "best" not in findings(of_grid(is_asked=True, rate="momentum"))
    assert of_grid(is_asked=True).findings[0].topic == "best"


def test_another_field_is_read_up_to_the_value_with_the_best_result() -> None:
    assert "test loss 0.51x" in findings(of_grid())["lr 0.01"]
    assert "lr 0.1" not in findings(of_grid())


def test_zero_is_the_first_value_of_an_axis_of_numbers() -> None:
    runs = results(
        {"weight_decay": [0.0, 0.001, 0.01], "batch_per_rank": 16},
        lambda values, repeat: 100.0 * (1 + 100 * values["weight_decay"]),
    )
    found = answer(runs, "weight_decay")
    assert found.headline == "weight_decay 0.01 trains 2.00x as fast as 0.0, at equal test accuracy."
