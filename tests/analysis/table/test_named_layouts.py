from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.analysis.results import load
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.named_layouts import MOST_COLUMNS, all_layouts, render, shown_columns
from dmls_ray.util.errors import ConfigError
from tests.analysis.samples import own_results, results, with_memory_kinds
from tests.conftest import PROJECT

PUBLISHED = PROJECT / "results" / "published"


def test_report_cs_tables_come_out_of_its_figures() -> None:
    machines = render(load(PUBLISHED / "C"), "scaling").frame
    normal = machines[(machines["quantization"] == "off") & (machines["backend"] != "mpi")]
    assert normal[["machines", "ranks_per_machine", "s/run", "test acc."]].to_numpy().tolist() == [
        ["1", "1", "186", "0.978"],
        ["1", "2", "120", "0.935"],
        ["2", "1", "99.0", "0.935"],
        ["2", "2", "67.0", "0.919"],
    ]
    # 186 s on one: over 120, 99 and 67.
    assert normal[normal["backend"] == "gloo"]["speed-up"].tolist() == ["1.55", "1.88", "2.78"]
    quantized = render(load(PUBLISHED / "C"), "quantization").frame
    assert quantized[quantized["quantization"] == "qat"]["s/run"].tolist() == ["135", "91.0"]


def test_a_trial_of_which_no_run_is_ok_has_a_row_among_the_ranks() -> None:
    ours = results(
        {"batch_per_rank": [16, 32], "world_size": 2},
        lambda values, repeat: 100.0 if values["batch_per_rank"] == 16 else None,
    )
    layout = render(ours, "rank")
    frame = layout.frame
    assert layout.notes[0].startswith("Each row is one rank of a trial")
    assert not any(note.startswith("Each row is one rank") for note in render(ours, "batch").notes)
    assert frame[["batch_per_rank", "rank", "n", "outcome"]].to_numpy().tolist() == [
        ["16", "0", "3", "ok"],
        ["16", "1", "3", "ok"],
        ["32", "", "0", "oom"],
    ]


def test_runs_of_one_rank_have_no_backend_and_that_is_said() -> None:
    layout = render(results({"batch_per_rank": [16, 32]}, lambda values, repeat: 100.0), "backend")
    assert layout.frame.empty
    assert list(layout.notes) == ["All runs have one rank, which has no backend."]


def test_the_kinds_of_memory_have_a_table() -> None:
    ours = with_memory_kinds(results({"batch_per_rank": [16, 32]}, lambda values, repeat: 100.0))
    frame = render(ours, "memory").frame
    heads = [f"{name} MiB" for name in ("tensor", "parameter", "gradient", "optimizer", "activation", "other")]
    assert frame[heads].iloc[1].tolist() == ["132", "20.0", "20.0", "60.0", "32.0", "0.000"]
    assert not {"device MiB [95%]", "host MiB [95%]", "s/run [95%]"} & {*frame.columns}


def test_the_shares_of_ranks_show_in_the_table_of_ranks() -> None:
    ours = with_memory_kinds(results({"batch_per_rank": 16, "world_size": 2}, lambda values, repeat: 100.0))
    for record in ours.records:
        for rank in record.ranks:
            rank.metrics["tensor_mem_mib"], rank.metrics["optimizer_mem_mib"] = 100.0 + rank.rank, 30.0 + rank.rank
            rank.metrics["train_accuracy"] = 0.5
    frame = render(ours, "rank").frame
    assert frame[["rank", "tensor MiB", "optimizer MiB"]].loc[1].tolist() == ["1", "101", "31.0"]
    # That of a run is of the trained model; a rank has that of its steps alone.
    assert (frame["train acc. in the last epoch"].tolist(), "train acc." in frame) == (["0.500", "0.500"], False)


def test_a_layout_of_no_runs_is_empty() -> None:
    none = results({"batch_per_rank": 16}, lambda values, repeat: 100.0)
    none.records = []
    assert all(render(none, name).frame.empty for name in all_layouts())


AXES = {"batch_per_rank": [16, 32], "world_size": [1, 2]}


def table(rate: Any = lambda values, repeat: 100.0 + repeat) -> Table:
    return make_table(results(AXES, rate), ["world_size", "batch_per_rank"])


def heads(of: Table, *names: str) -> list[str]:
    return [column.head.removesuffix(" [95%]") for column in shown_columns(of, names).columns]


def test_a_page_has_the_columns_that_answer() -> None:
    shown = heads(table())
    assert len(shown) <= MOST_COLUMNS
    assert shown[:2] == ["world_size", "batch_per_rank"]
    assert {"images/s", "speed-up", "tensor MiB", "test acc.", "n"} <= {*shown}
    assert not {"global_batch", "outcome", "train acc."} & {*shown}


def test_what_is_left_out_is_named_with_the_command_that_shows_it() -> None:
    (note,) = shown_columns(table()).notes("results/my sweep")
    assert note.startswith("Not shown: global_batch, ")
    assert note.endswith("; dmls-ray table 'results/my sweep' --columns all shows them.")
    assert shown_columns(table(), ["all"]).notes("x") == []


def test_outcomes_are_shown_where_a_run_failed() -> None:
    shown = heads(table(lambda values, repeat: None if values["batch_per_rank"] == 32 else 100.0))
    assert "outcome" in shown
    assert len(shown) <= MOST_COLUMNS


def test_columns_are_chosen_by_their_heads_or_by_the_names_of_their_metrics() -> None:
    usual = [column.head.removesuffix(" [95%]") for column in table().columns]
    assert heads(table(), "all")[: len(usual)] == usual
    factors = ["world_size", "batch_per_rank", "global_batch"]
    assert heads(table(), "train acc.", "images_per_s") == [*factors, "train acc.", "images/s"]


def test_losses_and_details_are_columns_where_they_are_asked_for_and_in_the_table_as_data() -> None:
    runs = results(AXES, lambda values, repeat: 100.0 + repeat)
    for record in runs.records:
        record.metrics |= {"test_loss": 0.5, "train_loss": 0.25, "forward_ms": 2.0}
    found = make_table(runs, ["world_size", "batch_per_rank"])
    details = ["forward ms", "acc. gap", "train_loss", "test_loss"]
    assert not {*details} & {*heads(found)}
    assert heads(found, "all")[-4:] == details
    assert {"forward_ms", "accuracy_gap", "train_loss", "test_loss"} <= {*found.numbers()}
    assert heads(found, "forward_ms", "overfit_epoch", "test_loss")[3:] == [
        "forward ms",
        "overfit from epoch",
        "test_loss",
    ]


def test_times_of_runs_that_shared_the_machine_are_no_columns_even_where_they_are_asked_for() -> None:
    runs = results(AXES, lambda values, repeat: 100.0 + repeat)
    for record in runs.records:
        record.mode = "search"
        record.metrics["forward_ms"] = 2.0
    with pytest.raises(ConfigError, match="--columns forward_ms: this table has no such column"):
        shown_columns(make_table(runs), ["forward_ms"])


def test_a_column_that_the_table_lacks_is_refused_with_those_that_it_has() -> None:
    message = r"--columns image/s: .* did you mean images/s\? choose from world_size, .*, or"
    with pytest.raises(ConfigError, match=message):
        shown_columns(table(), ["image/s"])


def test_fields_that_were_changed_one_at_a_time_are_one_column() -> None:
    changes = [{}, {"dropout": 0.3}, {"l1": 0.1}, {"label_smoothing": 0.1, "l1": 0.1}]
    found = make_table(results({"batch_per_rank": 16}, lambda values, repeat: 100.0, variants=changes))
    fields = {"dropout", "l1", "label_smoothing"}
    assert fields <= set(heads(found))
    found.changed = ("dropout", "l1", "label_smoothing")
    shown = shown_columns(found)
    assert heads(found)[0] == "change"
    names = found.frame(shown.columns)["change"]
    assert set(names) == {"baseline", "dropout=0.3", "l1=0.1", "label_smoothing=0.1 l1=0.1"}
    assert not fields & {*heads(found), *shown.left_out}
    assert fields <= set(heads(found, "all"))


def test_a_batch_that_is_equal_in_all_rows_is_in_the_line_of_what_was_held_fixed() -> None:
    found = make_table(results({"batch_per_rank": 16, "accum_steps": [1, 2]}, lambda values, repeat: 100.0))
    assert {"batch_per_rank", "global_batch"} <= set(found.varied)
    assert "batch_per_rank" not in heads(found)
    assert "batch_per_rank 16" in found.notes[0]
    assert "global_batch" not in found.notes[0]


def test_columns_that_are_equal_in_all_rows_go_before_those_that_differ() -> None:
    runs = results({"lr": [0.1, 0.2], "batch_per_rank": 16}, lambda values, repeat: 100.0)
    for record in runs.records:
        # As a function of a user reports them, beyond the columns of a page.
        record.metrics |= {f"of_lr_{number}": record.config["lr"] * number for number in range(1, 9)}
        record.metrics["same"] = 1.0
    found = make_table(runs)
    shown = heads(found)
    assert len(shown) <= MOST_COLUMNS
    assert shown[:2] == ["lr", "images/s"]
    assert "same" not in shown
    assert {"of_lr_1", "of_lr_2"} <= set(shown)


def test_the_column_that_answers_stays_whatever_it_is() -> None:
    """A function without a rate is compared by the seconds of its runs, which other tables can spare."""

    def tell(values: dict[str, Any], repeat: int) -> tuple[int, dict[str, int]]:
        value = values["depth"] + repeat
        return value, {f"of_{name}": value for name in range(9)}

    assert heads(make_table(own_results({"depth": [1, 2]}, tell)))[:2] == ["depth", "s/run"]
