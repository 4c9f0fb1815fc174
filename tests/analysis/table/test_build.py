from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.named_layouts import render, shown_columns
from dmls_ray.records.metrics import Metric
from dmls_ray.records.outcome import Outcome
from dmls_ray.workloads.registry import registered_metrics
from tests.analysis.samples import own_results, results

GRID = {"batch_per_rank": [16, 32], "world_size": [1, 2]}


def rate(values: dict[str, Any], repeat: int) -> float:
    return float((100 + repeat) * values["batch_per_rank"] * (1.5 if values["world_size"] == 2 else 1.0))


def test_rows_are_trials_in_the_order_of_their_factors_and_columns_are_what_varies_or_answers() -> None:
    frame = make_table(results(GRID, rate)).frame()
    assert list(frame.columns[:3]) == ["world_size", "batch_per_rank", "global_batch"]
    assert frame["world_size"].tolist() == ["1", "1", "2", "2"]
    assert frame["global_batch"].tolist() == ["16", "32", "32", "64"]
    assert "epochs" not in frame.columns
    assert frame["images/s [95%]"][0] == "1,616 [1,577, 1,656]"
    assert frame["n"].tolist() == ["3"] * 4


def test_a_speed_up_above_the_number_of_ranks_is_doubted() -> None:
    steep = make_table(results(GRID, lambda values, repeat: rate(values, repeat) * values["world_size"] ** 2))
    assert any("larger than the number of ranks" in note.text for note in steep.typed_notes)
    assert not any(
        "larger than the number of ranks" in note.text for note in make_table(results(GRID, rate)).typed_notes
    )


def test_speed_up_is_against_the_measured_world_size_one_and_efficiency_is_a_share_of_the_ranks() -> None:
    table = make_table(results(GRID, rate))
    assert table.rows[0].speed_up is None
    speed_up = table.rows[2].speed_up
    assert speed_up.centre == pytest.approx(1.5)
    assert table.frame()["efficiency"].tolist() == ["", "", "0.75", "0.75"]


def test_the_fixed_batch_is_the_same_in_every_row_of_a_table() -> None:
    axes = {"global_batch": [64, 128], "world_size": [1, 2]}
    runs = results(axes, lambda values, repeat: 10.0 * values["world_size"])
    table = make_table(runs, ("world_size", "global_batch"))
    ratios = {row.factors["global_batch"]: row.speed_up for row in table.rows if row.world_size == 2}
    assert {batch: ratio.centre for batch, ratio in ratios.items() if ratio} == {64: 2.0, 128: 2.0}
    assert "at the same global_batch (strong scaling)" in " ".join(table.notes)


@pytest.mark.parametrize(
    ("shown", "has_column"),
    [
        ({}, True),
        ({"shown": "detail"}, False),
        ({"shown": "detail", "asked_by": ("world_size",)}, True),
        ({"unless": ("images_per_s",)}, False),
        ({"unless": ("int8_test_accuracy",)}, True),
        ({"shown": "unless_one"}, True),
    ],
)
def test_the_entry_of_a_metric_decides_whether_it_has_a_column(
    shown: dict[str, Any], has_column: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = Metric(name="norm", label="max norm", kind="amount", direction="none", scope="run", **shown)
    metrics = {**registered_metrics(), "norm": entry}
    monkeypatch.setattr("dmls_ray.analysis.metrics.registered_metrics", lambda: metrics)
    measured = results(GRID, rate)
    for record in measured.records:
        record.metrics["norm"] = 0.5
    assert ("max norm" in make_table(measured).frame().columns) == has_column


def test_accumulation_has_a_column_where_trials_differ_in_it() -> None:
    measured = results(GRID, rate)
    for record in measured.records:
        record.metrics["backward_passes"] = record.config["batch_per_rank"] / 16
    assert make_table(measured).frame()["backward/step"].tolist() == ["1", "2", "1", "2"]


def test_outcomes_that_are_not_ok_are_words_in_their_cell_and_count_in_no_median() -> None:
    def some_fail(values: dict[str, Any], repeat: int) -> float | None:
        return None if values["batch_per_rank"] == 32 or repeat == 2 else 100.0

    table = make_table(results({"batch_per_rank": [16, 32]}, some_fail))
    frame = table.frame()
    assert frame["outcome"].tolist() == ["2 ok, 1 oom", "oom"]
    assert frame["n"].tolist() == ["2", "0"]
    assert frame["images/s"].tolist() == ["100", "oom"]
    (note,) = [note.text for note in table.typed_notes if note.kind == "outcome"]
    assert note.endswith(": oom: 8 GiB asked for.")


def test_the_reason_of_a_failure_names_its_trials_once_and_every_reason_of_a_trial() -> None:
    runs = results({"batch_per_rank": [16, 32, 64]}, lambda values, repeat: 100.0)
    for record in runs.records:
        batch = record.config["batch_per_rank"]
        if batch > 16:
            record.outcome, record.reason = Outcome.ERROR, "ValueError: no such layer."
        if batch == 64 and record.repeat == 2:
            record.outcome, record.reason = Outcome.KILLED, "signal 9"
    assert [note.text for note in make_table(runs).typed_notes if note.kind == "outcome"] == [
        "batch_per_rank=32; batch_per_rank=64: error: ValueError: no such layer.",
        "batch_per_rank=64: killed: signal 9.",
    ]


def test_rows_that_were_oversubscribed_or_whose_ranks_trained_apart_say_so() -> None:
    runs = results(GRID, rate)
    assert not {"oversubscribed", "independent ranks"} & {*make_table(runs).frame()}
    for record in runs.records:
        if record.config["world_size"] == 2:
            record.oversubscribed = True
            record.independent_ranks = "no collectives in 6 optimizer steps"
    table = make_table(runs)
    for head in ("oversubscribed", "independent ranks"):
        assert table.frame()[head].tolist() == ["", "", "yes", "yes"]
    assert any("no collectives in 6 optimizer steps" in note for note in table.notes)


def test_rows_whose_clocks_were_held_down_say_by_what_in_every_table() -> None:
    runs = results(GRID, rate)
    for record in runs.records:
        record.metrics["held_by_heat"] = 0.09
        if record.config["world_size"] == 2 and record.repeat == 1:
            record.metrics |= {"held_by_power": 0.5, "held_by_hardware": 0.25}
    table = make_table(runs)
    for frame in (table.frame(), render(runs, "batch").frame):
        by_ranks = {ranks: set(rows["clocks held by"]) for ranks, rows in frame.groupby("world_size")}
        assert by_ranks == {"1": {""}, "2": {"power, hardware"}}
    (note,) = [note for note in table.notes if "throttled" in note]
    assert "world_size=2 batch_per_rank=16 (power in 50% of a run, hardware in 25% of a run)" in note
    for number, record in enumerate(runs.records):
        noise = dict.fromkeys(("exposed_comm_ms", "last_loss", "gradient_noise_scale", "link_mbit_per_s"), number + 1.0)
        record.metrics |= {"held_by_power": 0.5, **noise}
    table = make_table(runs)
    page = shown_columns(table)
    assert page.left_out, "there are more columns than a page has"
    assert "clocks held by" in table.frame(page.columns), "though it is the same in all rows"
    for record in runs.records:
        record.metrics = {name: value for name, value in record.metrics.items() if not name.startswith("held_by")}
    assert "clocks held by" not in make_table(runs).frame()


def test_what_runs_do_not_have_in_common_is_said() -> None:
    runs = results({"batch_per_rank": [16, 32]}, lambda values, repeat: 100.0)
    first = min(runs.records, key=lambda record: record.config["batch_per_rank"])
    first.versions = {"python": "3.11", "torch": "1", "ray": "2.60"}
    first.started_at, first.session = "2025-12-31T00:00:00", "2026-01-03"
    first.machine = {"cpu": "Other CPU", "cores": 64, "gpus": ["A GPU", "A GPU"]}
    notes = make_table(runs).notes
    assert "Other CPU, 64 cores, 2 x A GPU; Some CPU, 2 cores" in notes[1]
    assert "python 3.11, torch 1, ray 2.60; python 3.11, torch 2, ray 2.60, 2025-12-31 to 2026-01-02" in notes[1]
    assert "Rows come from different machines. Times are compared only between runs on the same machine." in notes
    assert notes[4] == (
        "Rows of different versions are not compared with each other: torch 1 (batch_per_rank=16); torch 2 "
        "(batch_per_rank=16, batch_per_rank=32)."
    )
    assert any(note.startswith("Runs come from 2 sessions") for note in notes)


@pytest.mark.parametrize(
    ("step_ms", "is_uneven"),
    [
        ([*[1.4] * 128, 548.0, 586.0], True),  # a change of mode at the start of two epochs of three
        ([*[1.0] * 90, *[30.0] * 10], True),  # a checkpoint inside an epoch
        ([1.0, 1.0, 9.0], False),  # too few steps to know
        ([*[1.0] * 199, 12.0, 40.0], False),  # garbage collection, a slow first step
        ([0.8, 1.6] * 50, False),  # batches whose images are prepared with those of the batch before
    ],
)
def test_a_trial_whose_timed_steps_contain_what_is_no_step_is_named(step_ms: list[float], is_uneven: bool) -> None:
    runs = results({"batch_per_rank": [16, 32]}, lambda values, repeat: 100.0)
    measured = {
        "steps": len(step_ms) + 5,
        "train_s": sum(step_ms) / 1e3,
        "step_ms_p50": sorted(step_ms)[len(step_ms) // 2],
    }
    for record in runs.records[:2]:
        record.metrics |= measured  # without warmup_steps, as of a user-defined function
    assert not any("median step" in note for note in make_table(runs).notes)
    runs.records[0].metrics["warmup_steps"] = 5
    name = f"batch_per_rank={runs.records[0].config['batch_per_rank']}"
    assert any(note.startswith(f"{name}: the mean step") for note in make_table(runs).notes) == is_uneven


@pytest.mark.parametrize(
    ("total_s", "cpu_cores", "busy_cores", "idle_cores", "is_named"),
    [
        (3.0, 0.8, 2.0, 0.0, True),
        (3.0, 0.8, 1.4, 0.6, False),  # there is room for both
        (3.0, 1.8, 1.9, 0.1, False),  # as Ray's own processes
        (0.1, 0.8, 2.0, 0.0, False),  # too short to be known
    ],
)
def test_runs_that_other_programs_computed_beside_are_named(
    total_s: float, cpu_cores: float, busy_cores: float, idle_cores: float, is_named: bool
) -> None:
    runs = results({"batch_per_rank": [16, 32]}, lambda values, repeat: 100.0, repeats=3)
    assert not any("used the processor" in note for note in make_table(runs).notes)
    record = next(record for record in runs.records if record.config["batch_per_rank"] == 32)
    record.metrics |= {"total_s": total_s, "cpu_cores": cpu_cores, "busy_cores": busy_cores, "idle_cores": idle_cores}
    named = [note for note in make_table(runs).notes if "used the processor" in note]
    assert bool(named) == is_named
    assert all("batch_per_rank=32 (1.2 cores in 1 of 3 runs)" in note for note in named)


@pytest.mark.parametrize(("throttled", "is_named"), [(0.35, True), (0.009, False)])
def test_runs_that_a_quota_stopped_are_named(throttled: float, is_named: bool) -> None:
    runs = results({"batch_per_rank": [16, 32]}, lambda values, repeat: 100.0, repeats=3)
    assert not any("CPU quota" in note for note in make_table(runs).notes)
    for record in runs.records:
        record.metrics |= {"quota_cores": 4.0, "throttled_by_quota": 0.0}
    record = next(record for record in runs.records if record.config["batch_per_rank"] == 32)
    record.metrics |= {"throttled_by_quota": throttled}
    named = [note for note in make_table(runs).notes if "CPU quota" in note]
    assert bool(named) == is_named
    assert all("of these runs: batch_per_rank=32 (35% of the periods of 4 cores)" in note for note in named)


def test_rows_of_choices_stand_in_the_order_of_their_field() -> None:
    kinds = ["qat", "static", "off", "dynamic"]
    table = make_table(results({"batch_per_rank": 16, "quantization": kinds}, lambda values, repeat: 100.0))
    assert [row.factors["quantization"] for row in table.rows] == ["off", "dynamic", "static", "qat"]


def test_custom_measures_are_columns_and_what_was_not_measured_is_none() -> None:
    runs = own_results(
        {"depth": [1, 2]},
        lambda values, repeat: (1.0 + repeat, {"bits": 1.25 * values["depth"], "note": "x", "test_loss": 2}),
    )
    frame = make_table(runs).frame()
    assert list(frame.columns) == ["depth", "s/run [95%]", "test_loss [95%]", "bits [95%]", "n", "outcome"]
    assert frame["bits [95%]"].tolist() == ["1.250", "2.500"]
    assert frame["s/run [95%]"].tolist() == ["1.8 [0.5, 7.2]"] * 2


def test_a_search_has_no_times_and_its_best_trial_first() -> None:
    def tell(values: dict[str, Any], repeat: int) -> tuple[float, dict[str, float]]:
        return 1.0, {"bits": abs(values["lr"] - 0.2)}

    runs = own_results({"lr": [0.1, 0.2, 0.3]}, tell, repeats=1, mode="search")
    table = make_table(runs, best_by=("bits", True))
    assert not [head for head in table.frame().columns if head.startswith("s/")]
    assert table.rows[0].factors["lr"] == 0.2
    assert any("times are not shown" in note for note in table.notes)


def test_a_trial_that_a_search_stopped_is_not_ok_and_its_accuracy_is_of_its_epoch() -> None:
    def accuracy(values: dict[str, Any], repeat: int) -> float:
        return values["batch_per_rank"] / 100

    searched = results({"batch_per_rank": [16, 32, 64]}, lambda *_: 100.0, repeats=1, accuracy=accuracy)
    for record in searched.records:
        record.mode = "search"
        if record.config["batch_per_rank"] == 64:
            record.metrics["stopped_epoch"] = 2
    table = make_table(searched, best_by=("test_accuracy", False))
    frame = table.frame()
    assert frame["outcome"].tolist() == ["ok", "ok", "stopped"], "those that trained to the end come first"
    assert frame["test acc."].tolist() == ["0.320", "0.160", "0.640 (epoch 2)"]
    assert repr(searched) == "Results('results/sample', 3 runs: 2 ok, 1 stopped)"


def test_times_of_a_trial_that_was_searched_and_measured_are_those_that_were_measured() -> None:
    runs = own_results({"lr": [0.1, 0.2]}, lambda values, repeat: (10.0 if repeat == 0 else 2.0, {"bits": 1.0}))
    for record in runs.records:
        record.mode = "search" if record.repeat == 0 else "bench"
    (row, _) = make_table(runs).rows
    assert (row.estimates["total_s"].centre, row.estimates["total_s"].n) == (2.0, 2)
    assert row.by_block("total_s").keys() == {1, 2}


@pytest.mark.parametrize("metric", ["validation_accuracy", "test_loss", "score"])
def test_what_was_searched_for_is_the_first_column_after_the_factors(metric: str) -> None:
    runs = results({"lr": [0.1, 0.2], "batch_per_rank": 16}, lambda values, repeat: 100.0, repeats=1)
    for record in runs.records:
        record.mode, record.metrics = "search", {"score": 1.0}
        record.metrics["validation_accuracy"], record.metrics["test_loss"] = 0.5, 0.25
    runs.records[0].outcome, runs.records[0].reason = Outcome.ERROR, "no such layer"
    table = make_table(runs, best_by=(metric, False))
    heads = {"validation_accuracy": "validation acc.", "test_loss": "test_loss", "score": "score"}
    assert shown_columns(table).columns[1].head == heads[metric]
    first, last = table.frame()[heads[metric]]
    assert (float(first), last) == (table.rows[0].value_of(metric), "error")
    assert [column.head for column in table.columns].count(heads[metric]) == 1
    assert table.numbers()[metric][0] == table.rows[0].value_of(metric)
    assert [column.head for column in shown_columns(table, [metric]).columns] == ["lr", heads[metric]]


def test_what_does_not_vary_is_named_if_it_is_always_or_not_usual_and_all_fields_of_a_function_are() -> None:
    runs = results({"batch_per_rank": [16, 32], "lr": [0.1, 0.2], "clip_norm": 1.0}, lambda values, repeat: 100.0)
    assert make_table(runs).notes[0] == (
        "Held fixed: model digits_convnet, dataset digits, epochs 5, world_size 1, optimizer adam, clip_norm 1.0."
    )
    runs = own_results({"depth": [1, 2], "width": 8}, lambda values, repeat: (1.0, {}))
    assert "width 8" in make_table(runs).notes[0]
