"""Which effects answer the question of a sweep, and which of them its headline is about."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dmls_ray.analysis.findings.answer import MOST_ROWS, Answer, answer_of_search
from dmls_ray.analysis.findings.effects import Effect
from dmls_ray.analysis.findings.question import SweepQuestion, answer_on_axis
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.summary import AnswerTable, SweepSummary
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.words import effect_cell, headline_text, undecided_text
from dmls_ray.analysis.words_on_pairs import pair_label
from dmls_ray.records.outcome import Outcome
from tests.analysis.samples import along, in_sessions, own_results, results, row_of, script_results, set_value


def answer(runs: Results, axis: str, varied: list[str] | None = None) -> Answer:
    return answer_on_axis(make_table(runs, varied), axis)


def effects(found: Answer, label: str, where: str = "") -> dict[str, Effect]:
    """The effects of a comparison, by measure."""
    comparison = next(item for item in found.comparisons if row_of(item) == (label, where))
    return {effect.measure.name: effect for effect in comparison}


def keys(found: Answer) -> list[tuple[str, str]]:
    return list(map(row_of, found.comparisons))


def led(found: Answer) -> tuple[str, str]:
    return found.headline, pair_label(found.lead[0].pair)


def test_an_axis_of_numbers_is_compared_by_its_ends_in_each_place_and_other_fields_on_average() -> None:
    runs = results(
        {"batch_per_rank": [16, 64], "world_size": [1, 2]},
        lambda values, repeat: float(values["batch_per_rank"] * (10 + repeat) * values["world_size"]),
    )
    found = answer(runs, "batch_per_rank")
    label = "batch_per_rank 64 vs 16"
    assert keys(found) == [(label, "1 rank"), (label, "2 ranks"), ("ranks 2 vs 1", "mean of 2")]
    first = effects(found, label, "1 rank")
    assert (first["speed"].contrast.centre, first["speed"].verdict) == (pytest.approx(4.0), "more")
    assert first["test_accuracy"].verdict == "equal"
    assert first["tensor_mem_mib"].contrast.centre == pytest.approx(164 / 116)
    assert effects(found, "ranks 2 vs 1", "mean of 2")["speed"].contrast.centre == pytest.approx(2.0)
    assert led(found) == ("pair", label)


def test_ranks_are_also_compared_where_they_divide_one_batch() -> None:
    runs = results(
        {"batch_per_rank": [16, 32, 64], "world_size": [1, 2]},
        lambda values, repeat: float(values["batch_per_rank"] * (10 + repeat) * values["world_size"] ** 2),
    )
    found = answer(runs, "batch_per_rank")
    divided = effects(found, "ranks 2 vs 1, one batch", "mean of 2")
    # 2 x 16 against 1 x 32, and 2 x 32 against 1 x 64; at an equal batch of a rank it is 4.
    assert divided["speed"].contrast.centre == pytest.approx(2.0)
    assert effects(found, "ranks 2 vs 1", "mean of 3")["speed"].contrast.centre == pytest.approx(4.0)
    assert pair_label(found.beside[-1][0].pair) == "ranks 2 vs 1, one batch"


def test_ranks_divide_one_batch_only_where_nothing_else_differs() -> None:
    axes = {"batch_per_rank": [16, 32], "world_size": [1, 2], "lr": [0.1, 0.2]}
    found = answer(results(axes, lambda values, repeat: 100.0 + repeat), "batch_per_rank")
    assert effects(found, "ranks 2 vs 1, one batch", "mean of 2")["speed"].contrast.centre == pytest.approx(1.0)


def test_ranks_that_compute_on_as_many_samples_anyway_divide_no_batch() -> None:
    """A script that divides its batch by the number of ranks itself; and pairs that differ in more than the batch."""
    runs = own_results(
        {"width": [1, 2], "world_size": [1, 2]},
        lambda values, repeat: (float(values["width"]) + repeat / 10, {"samples_per_step": 64.0}),
    )
    assert all("one batch" not in label for label, _ in keys(answer(runs, "width")))
    axes = {"batch_per_rank": [16, 32], "world_size": [1, 2], "clip_norm": [None, 1.0]}
    found = answer(results(axes, lambda values, repeat: 100.0 + repeat), "batch_per_rank")
    divided = [comparison for comparison in found.comparisons if "one batch" in row_of(comparison)[0]]
    assert [row_of(comparison)[1] for comparison in divided] == ["mean of 2"]


def along_batches(factors: dict[int, float]) -> Answer:
    levels = {batch: (factor, 0.9) for batch, factor in factors.items()}
    return answer(along("batch_per_rank", levels), "batch_per_rank")


def test_each_field_of_a_large_grid_has_a_row_before_any_has_one_for_each_place() -> None:
    axes = {"world_size": [1, 2], "batch_per_rank": [16, 64], "lr": [0.1, 0.2], "weight_decay": [0.0, 0.1]}
    shown = keys(answer(results(axes, lambda values, repeat: 100.0 + repeat), "world_size"))[:8]
    assert shown[0] == ("ranks 2 vs 1", "mean of 8")
    assert {label for label, where in shown if where == "mean of 8"} == {
        "ranks 2 vs 1", "batch_per_rank 64 vs 16", "lr 0.2 vs 0.1", "weight_decay 0.1 vs 0.0",
    }  # fmt: skip


@pytest.mark.parametrize("factors", [{16: 1.0, 32: 1.59, 64: 2.29, 128: 2.82}, {16: 1.0, 32: 2.0, 64: 1.4, 128: 1.2}])
def test_the_first_and_the_last_step_of_an_axis_of_numbers_are_given(factors: dict[int, float]) -> None:
    found = along_batches(factors)
    ends = [("batch_per_rank 32 vs 16", ""), ("batch_per_rank 128 vs 64", "")]
    assert [key for key in keys(found) if key in ends] == ends
    last = effects(found, "batch_per_rank 128 vs 64")["speed"]
    assert last.contrast.centre == pytest.approx(factors[128] / factors[64])


@pytest.mark.parametrize("repeats", [1, 3])
def test_an_effect_whose_interval_includes_no_difference_or_is_not_known_is_open(repeats: int) -> None:
    noise = [0.9, 1.0, 1.1]
    axes = {"batch_per_rank": 16, "world_size": [1, 2]}
    runs = results(axes, lambda values, repeat: 100 * noise[repeat] ** values["world_size"], repeats=repeats)
    speed = effects(answer(runs, "world_size"), "ranks 2 vs 1")["speed"]
    assert speed.verdict == "open"
    assert (speed.contrast.low is None) == (repeats == 1)


ADAM = {"adam": (100.0, 0.9)}


@pytest.mark.parametrize(
    ("choices", "headline", "lead"),
    [
        ({"sgd": (150.0, 0.6), "rmsprop": (120.0, 0.9)}, "pair", "rmsprop"),  # sgd loses accuracy
        ({"sgd": (150.0, 0.6)}, "pair", "sgd"),  # as all do
        ({"sgd": (100.0, 0.9), "rmsprop": (100.0, 0.95)}, "pair", "rmsprop"),  # none is faster
        ({"sgd": (50.0, 0.9), "rmsprop": (80.0, 0.9)}, "none_better", "rmsprop"),
        ({"sgd": (100.0, 0.9), "rmsprop": (100.0, 0.9)}, "none_differs", "sgd"),
        ({"sgd": (100.0, 0.6), "rmsprop": (100.0, 0.9)}, "none_better", "rmsprop"),  # sgd differs, for the worse
    ],
)
def test_the_headline_is_about_the_choice_that_gains_most_and_keeps_its_accuracy(
    choices: dict[str, tuple[float, float]], headline: str, lead: str
) -> None:
    assert led(answer(along("optimizer", ADAM | choices), "optimizer")) == (headline, f"optimizer {lead} vs adam")


def test_a_headline_names_a_base_value_whole_whatever_is_in_it() -> None:
    runs = own_results({"mode": ["a vs b", "c", "d"]}, lambda values, repeat: (1.0 + repeat / 10, {}))
    assert headline_text(answer(runs, "mode")).startswith("No mode differs from a vs b beyond chance.")


def test_less_memory_is_no_gain_where_speed_pays_for_it() -> None:
    runs = along("optimizer", ADAM | {"sgd": (80.0, 0.9), "rmsprop": (70.0, 0.9)})
    for record in runs.records:
        record.metrics["tensor_mem_mib"] = {"adam": 100.0, "sgd": 100.0, "rmsprop": 50.0}[record.config["optimizer"]]
    assert led(answer(runs, "optimizer")) == ("none_better", "optimizer sgd vs adam")


@pytest.mark.parametrize(
    ("accuracies", "lossless"), [((0.9, 0.9, 0.6), 32), ((0.9, 0.6, 0.6), 0), ((0.9, 0.9, 0.9), 0)]
)
def test_where_the_fastest_amount_loses_accuracy_the_fastest_without_a_loss_is_named(
    accuracies: tuple[float, ...], lossless: int
) -> None:
    levels = dict(zip([16, 32, 64], zip([160.0, 320.0, 640.0], accuracies, strict=True), strict=True))
    found = answer(along("batch_per_rank", levels), "batch_per_rank")
    assert pair_label(found.lead[0].pair) == "batch_per_rank 64 vs 16"
    labels = [pair_label(comparison[0].pair) for comparison in [found.lossless] if comparison]
    assert labels == ([f"batch_per_rank {lossless} vs 16"] if lossless else [])


def test_the_best_value_of_an_axis_leads_where_it_is_in_between() -> None:
    runs = along("batch_per_rank", {16: (100.0, 0.9), 32: (900.0, 0.9), 64: (95.0, 0.9)})
    found = answer(runs, "batch_per_rank")
    assert led(found) == ("pair", "batch_per_rank 32 vs 16")
    assert ("batch_per_rank 32 vs 16", "") in keys(found)


def test_what_differs_along_with_a_field_is_an_effect() -> None:
    runs = results({"batch_per_rank": [16, 64], "world_size": 2}, lambda values, repeat: 900.0)
    for record in runs.records:
        batch = record.config["batch_per_rank"]
        record.metrics["steps"], record.metrics["scaled_lr"] = 14400 // batch, batch / 16000
    found = effects(answer(runs, "batch_per_rank"), "batch_per_rank 64 vs 16")
    assert {name: (found[name].contrast.centre, found[name].verdict) for name in ("steps", "scaled_lr")} == {
        "steps": (0.25, "less"),
        "scaled_lr": (4.0, "more"),
    }


def test_decided_is_not_equal() -> None:
    """Within 5%, which is close enough to stop, and not within the 2% that count as no difference."""
    runs = results(
        {"batch_per_rank": [16, 17]},
        lambda values, repeat: 100.0 * (1.01 + 0.04 * (-1) ** repeat if values["batch_per_rank"] == 17 else 1.0),
        repeats=12,
    )
    assert effects(answer(runs, "batch_per_rank"), "batch_per_rank 17 vs 16")["speed"].verdict == "close"


@pytest.mark.parametrize("rate", [None, 100.0])
def test_what_cannot_be_compared_has_no_effects(rate: float | None) -> None:
    found = answer(results({"batch_per_rank": [16]}, lambda values, repeat: rate), "batch_per_rank")
    assert (found.headline, list(found.comparisons)) == ("none_ok" if rate is None else "one_trial", [])


def test_trials_that_differ_in_more_than_the_field_are_not_compared() -> None:
    mixed = results({"batch_per_rank": 16, "optimizer": ["adam", "sgd"]}, lambda values, repeat: 10.0)
    for record in mixed.records:
        if record.config["optimizer"] == "sgd":
            record.config["epochs"] = 7
    assert answer(mixed, "optimizer").headline == "not_compared"


def test_a_field_of_which_one_value_was_measured_gives_way_to_one_that_varies() -> None:
    axes = {"machines": [1, 2], "ranks_per_machine": [1, 2], "batch_per_rank": 32}
    runs = results(axes, lambda values, repeat: 100.0 * values["ranks_per_machine"])
    for record in runs.records:
        if record.config["machines"] == 2:
            record.outcome, record.metrics = Outcome.SKIPPED, {}
    found = answer(runs, "machines", ["machines", "ranks_per_machine", "world_size"])
    assert pair_label(found.lead[0].pair) == "ranks/machine 2 vs 1"
    assert len(found.caveats["not_measured"]["names"]) == 2
    assert found.missing is not None
    assert (found.missing.field, found.missing.values, found.missing.outcomes) == ("machines", [2], ["skipped"])


def test_a_headline_says_first_that_what_was_asked_about_is_not_compared_and_why() -> None:
    runs = along("backend", {"gloo": (100.0, 0.9), "nccl": (100.0, 0.9)}, world_size=2)
    for record in runs.records:
        if record.config["backend"] == "nccl":
            record.outcome, record.metrics, record.reason = Outcome.SKIPPED, {}, "nccl needs GPUs. Use backend gloo."
    text = headline_text(answer(runs, "backend", ["backend"]))
    assert text.startswith("backend is not compared, since nccl was not measured: nccl needs GPUs. Only one trial")


def test_where_none_is_better_the_worst_is_named_and_explained() -> None:
    runs = results(
        {"batch_per_rank": 16, "optimizer": ["adam", "sgd", "rmsprop"]},
        lambda values, repeat: {"adam": 100.0, "sgd": 95.0 + 5 * repeat, "rmsprop": 30.0}[values["optimizer"]],
    )
    found = answer(runs, "optimizer", ["optimizer"])
    assert (found.headline, pair_label(found.worst[0].pair)) == ("none_better", "optimizer rmsprop vs adam")
    assert " The worst is optimizer rmsprop vs adam: 0.30x as fast" in headline_text(found)


def test_a_difference_in_memory_that_is_of_no_use_does_not_lead() -> None:
    runs = results(
        {"batch_per_rank": 16, "optimizer": ["adam", "sgd", "rmsprop"]},
        lambda values, repeat: {"adam": 100.0, "sgd": 95.0 + 5 * repeat, "rmsprop": 95.0 + 5 * repeat}[
            values["optimizer"]
        ],
    )
    for record in runs.records:
        record.metrics["tensor_mem_mib"] = 1000.0 if record.config["optimizer"] != "sgd" else 999.0
    assert answer(runs, "optimizer", ["optimizer"]).headline != "pair"


def test_a_launcher_is_compared_by_its_start_up_too() -> None:
    runs = along("launcher", {"ray": (100.0, 0.9), "spawn": (100.0, 0.9)})
    for record in runs.records:
        record.metrics["overhead_s"] = (0.05 if record.config["launcher"] == "ray" else 8.0) + record.repeat / 100
    found = answer(runs, "launcher", ["launcher"])
    start_up = effects(found, "launcher spawn vs ray")["overhead_s"]
    assert (start_up.contrast.centre, start_up.verdict) == (pytest.approx(7.95), "more")
    assert "+7.950 s of start-up" in headline_text(found)
    notes = make_table(runs, ["launcher"]).notes
    assert any(note.startswith("start-up s: the launcher ray starts its ranks once") for note in notes)


@pytest.mark.parametrize(
    ("rates", "accuracies", "text"),
    [
        ((100.0, 400.0), (0.9, 0.9), "4.00x as fast in 2 repeats (too few for an interval), equal test accuracy"),
        ((100.0, 100.0), (0.9, 0.8), "equal speed in each of 2 repeats, -10.0 percentage points of test accuracy in 2"),
    ],
)  # fmt: skip
def test_what_too_few_repeats_say_is_said_with_their_number(
    rates: tuple[float, float], accuracies: tuple[float, float], text: str
) -> None:
    runs = results(
        {"batch_per_rank": 16, "optimizer": ["adam", "sgd"]},
        lambda values, repeat: rates[values["optimizer"] == "sgd"] * (1 + repeat),
        accuracy=lambda values, repeat: accuracies[values["optimizer"] == "sgd"] - repeat / 100,
        repeats=2,
    )
    assert text in headline_text(answer(runs, "optimizer", ["optimizer"]))


def test_trials_whose_ranks_trained_apart_are_left_out_and_named() -> None:
    runs = results({"batch_per_rank": [16, 32, 64]}, lambda values, repeat: 100.0)
    for record in runs.records:
        if record.config["batch_per_rank"] == 64:
            record.independent_ranks = "no collectives in 6 optimizer steps"
    found = answer(runs, "batch_per_rank")
    assert keys(found) == [("batch_per_rank 32 vs 16", "")]
    assert found.caveats["independent"] == {"names": ["batch_per_rank=64"]}
    for record in runs.records:
        record.independent_ranks = "no collectives in 6 optimizer steps"
    assert answer(runs, "batch_per_rank").headline == "not_compared"


def test_a_speed_up_above_the_number_of_ranks_is_named() -> None:
    def rate(values: dict[str, Any], repeat: int) -> float:
        return 100.0 * values["world_size"] ** 3 + repeat

    table = make_table(results({"batch_per_rank": 16, "world_size": [1, 2]}, rate))
    found = answer_on_axis(table, "world_size")
    assert found.caveats["above_linear"] == {"names": ["world_size=2 batch_per_rank=16"]}
    assert "faster by more than the number of ranks" in undecided_text(found, None)


def test_trials_whose_results_are_equal_in_each_block_have_no_interval_in_their_cell() -> None:
    def accuracy(values: dict[str, Any], repeat: int) -> float:
        return 0.9 + repeat / 100 - (values["optimizer"] == "sgd") * repeat / 50

    axes = {"batch_per_rank": 16, "optimizer": ["adam", "adamw", "sgd"]}
    for repeats, text in ((1, "+0.0"), (3, "equal each time")):
        runs = results(axes, lambda values, repeat: 100.0 + repeat, accuracy=accuracy, repeats=repeats)
        of_adamw = answer(runs, "optimizer").comparisons[0]
        assert of_adamw[0].pair.trial.factors["optimizer"] == "adamw"
        (cell,) = [effect_cell(effect) for effect in of_adamw if effect.measure.metric == "test_accuracy"]
        assert cell.removesuffix(" ?") == text


def test_trials_whose_clocks_were_held_down_are_compared_and_named() -> None:
    runs = results({"batch_per_rank": [16, 32]}, lambda values, repeat: 100.0)
    assert "held_clocks" not in answer(runs, "batch_per_rank").caveats
    for record in runs.records:
        record.metrics["held_by_power"] = 0.93 if record.config["batch_per_rank"] == 32 else 0.0
    found = answer(runs, "batch_per_rank")
    assert keys(found) == [("batch_per_rank 32 vs 16", "")]
    assert found.caveats["held_clocks"] == {"names": ["batch_per_rank=32 (power in 93% of a run)"]}
    assert "throttled: batch_per_rank=32" in undecided_text(found, None)


def test_trials_that_a_quota_stopped_are_compared_and_named() -> None:
    runs = results({"batch_per_rank": [16, 32]}, lambda values, repeat: 100.0)
    for record in runs.records:
        throttled = 0.35 if record.config["batch_per_rank"] == 32 else 0.0
        record.metrics |= {"quota_cores": 4.0, "throttled_by_quota": throttled}
    found = answer(runs, "batch_per_rank")
    assert keys(found) == [("batch_per_rank 32 vs 16", "")]
    assert found.caveats["throttling"] == {"names": ["batch_per_rank=32 (35% of the periods of 4 cores)"]}
    assert "stopped the ranks: batch_per_rank=32" in undecided_text(found, None)


@pytest.mark.parametrize(("steps", "names"), [(50, ["width=1", "width=2"]), (1000, None)])
def test_resident_sets_of_short_runs_are_compared_with_a_word_on_what_they_contain(
    steps: int, names: list[str] | None
) -> None:
    measured = {"steps_made": steps, "samples_per_s": 10.0}
    runs = script_results(
        {"width": [1, 2]}, lambda values, repeat: measured | {"host_mem_mib": 700.0 / values["width"]}
    )
    found = answer(runs, "width")
    assert effects(found, "width 2 vs 1")["host_mem_mib"].contrast.centre == pytest.approx(0.5)
    assert found.caveats.get("resident", {}).get("names") == names
    assert ("a larger batch may show less growth" in undecided_text(found, None)) == (names is not None)


def test_every_measure_of_a_user_function_is_compared() -> None:
    runs = own_results(
        {"depth": [1, 2, 4]},
        lambda values, repeat: (
            values["depth"] + repeat / 2,
            {"bits": (8 + repeat) / values["depth"], "test_loss": (1.0 + repeat) / values["depth"], "words": 7},
        ),
    )
    found = effects(answer(runs, "depth"), "depth 4 vs 1")
    assert found["bits"].contrast.centre == pytest.approx(0.25)
    assert (found["test_loss"].contrast.centre, found["test_loss"].gain) == (pytest.approx(0.25), 1)
    assert found["total_s"].contrast.centre > 2
    assert "words" not in found, "what is equal in all runs compares nothing"


@pytest.mark.parametrize(
    ("field", "other"),
    [
        ("machine", {"host": "big", "cpu": "Other CPU"}),
        ("device", "cuda: A GPU"),
        ("versions", {"torch": "99"}),
        ("git", {"commit": "b" * 40, "dirty": False}),
    ],
)
def test_times_of_two_machines_and_runs_of_two_versions_are_not_compared(field: str, other: Any) -> None:
    runs = results({"batch_per_rank": 16, "world_size": [1, 2]}, lambda values, repeat: 10.0 * values["world_size"])
    for record in runs.records:
        if record.config["world_size"] == 2:
            set_value(record, field, other)
    table = make_table(runs)
    assert table.rows[1].speed_up is None
    found = answer_on_axis(table, "world_size")
    assert all(effect.measure.name != "speed" for comparison in found.comparisons for effect in comparison)
    assert any("different" in note for note in table.notes)


def test_images_a_second_are_never_compared_with_seconds_a_run() -> None:
    runs = results({"batch_per_rank": [16, 32]}, lambda values, repeat: 1000.0)
    for record in runs.records:
        if record.config["batch_per_rank"] == 32:
            record.metrics.pop("images_per_s", None)
    assert effects(answer(runs, "batch_per_rank"), "batch_per_rank 32 vs 16")["speed"].contrast.centre == 1.0


def test_equally_fast_choices_are_called_different_at_most_5_times_in_100() -> None:
    random = np.random.default_rng(8)
    false = 0
    for _ in range(200):
        noise = {name: random.lognormal(0, 0.05, 4) for name in ("adam", "adamw", "sgd", "rmsprop")}
        shift = {name: random.normal(0, 0.01, 4) for name in noise}
        runs = results(
            {"optimizer": list(noise), "batch_per_rank": 16},
            lambda values, repeat, noise=noise: 100 * noise[values["optimizer"]][repeat],
            accuracy=lambda values, repeat, shift=shift: 0.8 + shift[values["optimizer"]][repeat],
            repeats=4,
        )
        false += answer(runs, "optimizer").headline != "none_differs"
    assert false <= 10


FOUR_AXES = {
    "batch_per_rank": [16, 32], "world_size": [1, 2], "optimizer": ["adam", "sgd"], "precision": ["fp32", "amp-bf16"]
}  # fmt: skip


@pytest.mark.parametrize("axis", list(FOUR_AXES))
def test_a_table_has_at_most_8_rows_and_100_columns_and_a_headline_at_most_25_words(axis: str) -> None:
    runs = results(FOUR_AXES, lambda values, repeat: 100.0 + repeat)
    found = AnswerTable(answer(runs, axis))
    assert sum(len(cells["n"]) for cells in found.tables) <= MOST_ROWS
    assert max(map(len, found.lines(100))) <= 100
    assert len(found.headline.split()) <= 25


def test_the_best_of_those_that_trained_to_the_end_leads() -> None:
    def report(values: dict[str, Any], repeat: int) -> tuple[float, dict[str, Any]]:
        return 1.0, {"bits": abs(values["lr"] - 0.3) + 1}

    runs = own_results({"lr": [0.1, 0.3, 0.6]}, report, repeats=1, mode="search")
    next(run for run in runs.records if run.config["lr"] == 0.1).metrics["stopped_epoch"] = 1
    found = answer_of_search(make_table(runs, best_by=("bits", True)))
    assert (found.headline, found.facts["count"]) == ("least_found", 2)
    assert [(pair_label(item[0].pair), item[0].contrast.centre) for item in found.comparisons] == [
        ("lr=0.3", 1.0),
        ("lr=0.6", 1.3),
    ]
    most = answer_of_search(make_table(runs, best_by=("bits", False)))
    assert pair_label(most.lead[0].pair) == "lr=0.6"
    assert answer_of_search(make_table(runs, best_by=("absent", False))).headline == "not_reported"


def test_speeds_of_different_sessions_are_not_compared_and_that_is_said() -> None:
    runs = results({"batch_per_rank": [16, 32, 64]}, lambda values, repeat: 1000.0 + values["batch_per_rank"])
    runs = in_sessions(runs, lambda values, repeat: "later" if values["batch_per_rank"] == 64 else "first")
    found = answer(runs, "batch_per_rank")
    assert "speed" in effects(found, "batch_per_rank 32 vs 16")
    assert [*effects(found, "batch_per_rank 64 vs 16")][:2] == ["test_accuracy", "tensor_mem_mib"]
    text = "batch_per_rank 64 vs 16, batch_per_rank 64 vs 32"
    assert (
        f"speeds not compared, because the two trials never ran in the same block of one session: {text};"
        in undecided_text(found, None)
    )
    together = answer(in_sessions(runs, lambda values, repeat: "first"), "batch_per_rank")
    assert "sessions" not in together.caveats


def test_a_headline_says_that_speeds_are_not_compared() -> None:
    seen = {"samples_per_s": 10.0, "tensor_mem_mib": 64.0, "samples_per_step": 16.0}
    runs = script_results({"lr": [1, 3]}, lambda values, repeat: seen)
    found = answer(in_sessions(runs, lambda values, repeat: str(values["lr"])), "lr")
    assert headline_text(found) == "lr 3 vs 1: not compared in speed."


@pytest.mark.parametrize(("given", "label"), [(["new", "old"], "old vs new"), (["old", "new"], "new vs old")])
def test_of_texts_of_users_the_first_that_is_given_is_the_baseline(given: list[str], label: str) -> None:
    runs = own_results({"branch": ["old", "new"]}, lambda values, repeat: (1.0 + repeat / 9, {}))
    # An earlier call may have given others.
    sessions = [{"axes": {"branch": ["older", "old"]}}, {"axes": {"branch": given}}]
    found = SweepSummary(runs, SweepQuestion.of(sessions)).answer.answer
    assert keys(found) == [(f"branch {label}", "")]
