"""Samples that do not follow the batch of a sweep are not known."""

from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.analysis.findings.answer import answer_along
from dmls_ray.analysis.findings.measures import speed
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.model import Table
from tests.analysis.samples import script_results


def table_of(counts: dict[Any, float], axis: str = "batch_size", **seen: Any) -> Table:
    """The trials of a field whose values had so many samples a step; `seen` gives more by value, or for all."""

    def tell(values: dict[str, Any], repeat: int) -> dict[str, Any]:
        value = values[axis]
        told = {"samples_per_step": counts[value], "samples_per_s": 100.0 + repeat, "counted_by": "model"}
        for name, item in seen.items():
            told[name] = item[value] if isinstance(item, dict) else item
        return told

    return make_table(script_results({axis: list(counts)}, tell))


def reasons(table: Table) -> set[str]:
    return {str(record.facts.get("samples_unknown", "")) for row in table.rows for record in row.records}


def test_where_a_batch_grows_and_its_samples_do_not_no_rate_is_stated() -> None:
    table = table_of({8: 39, 64: 40}, joules_per_sample=1.0)
    assert reasons(table) == {"batch_size 8 -> 64, and 39 -> 40 samples were counted"}
    assert not {"samples_per_s", "samples_per_step", "joules_per_sample"} & {*table.metric_names}
    assert "samples/s" not in table.frame()
    assert any("39 -> 40 samples were counted): give --samples." in note for note in table.notes)
    (comparison,) = answer_along(table, "batch_size").comparisons
    assert [effect.measure.metric for effect in comparison] == ["step_ms_mean"]
    assert speed("x").kind not in {effect.measure.kind for effect in comparison}


@pytest.mark.parametrize(
    ("counts", "seen"),
    [
        ({8: 8, 64: 64}, {}),
        ({8: 8, 64: 50}, {}),  # a data set of 50 samples
        ({64: 50, 128: 50}, {"given_elements": 500}),  # the same, and models are given as much
        ({8: 64, 64: 64}, {"backward_passes": {8: 8, 64: 1}}),  # accumulated to one product
        ({8: 39, 64: 40}, {"counted_by": "--samples"}),
        ({8: 39, 64: 40}, {"counted_by": "user"}),
        ({8: 100, 64: 156}, {"given_elements": {8: 1000, 64: 1560}}),  # another loader has a batch of 92
    ],
)
def test_samples_that_something_else_explains_are_known(counts: dict[int, float], seen: dict[str, Any]) -> None:
    table = table_of(counts, **seen)
    assert reasons(table) == {""}
    assert "samples_per_s" in table.metric_names


@pytest.mark.parametrize(
    "name", ["bs", "train-batch-size", "batchSize", "micro_batch", "trainer.batch", "BATCH_SIZE", "bsz"]
)
def test_a_batch_is_known_by_a_word_of_its_name(name: str) -> None:
    assert reasons(table_of({8: 40, 64: 40}, name)) != {""}


@pytest.mark.parametrize("name", ["lr", "eval_batch_size", "batch_norm", "num_batches", "hobbs", "delay"])
def test_other_fields_leave_the_samples_as_they_are(name: str) -> None:
    assert reasons(table_of({8: 40, 64: 40}, name)) == {""}


def test_a_field_that_multiplies_what_models_are_given_is_a_batch_unless_a_loader_knows_its_samples() -> None:
    given = {"given_elements": {8: 800, 64: 6400}}
    assert reasons(table_of({8: 100, 64: 100}, "envs", **given)) != {""}
    assert reasons(table_of({8: 100, 64: 100}, "envs", counted_by="loader", **given)) == {""}
    assert reasons(table_of({8: 100, 64: 100}, "seq_len", **given)) == {""}


def test_samples_that_follow_less_than_what_models_are_given_are_not_known() -> None:
    given = {"given_elements": {8: 800, 64: 6400}}
    assert reasons(table_of({8: 10, 64: 30}, **given)) != {""}
    assert reasons(table_of({8: 10, 64: 80}, **given)) == {""}


def test_tokens_that_do_not_follow_are_not_known_either() -> None:
    table = table_of({8: 8, 64: 64}, tokens_per_step=512, tokens_per_s=100.0)
    assert "tokens_per_s" not in table.metric_names
    assert "samples_per_s" in table.metric_names
    assert any("tokens of a step are not known" in note for note in table.notes)


def test_each_group_of_trials_is_judged_by_itself() -> None:
    def tell(values: dict[str, Any], repeat: int) -> dict[str, Any]:
        is_ragged = values["model"] == "ragged"
        return {"samples_per_step": 3 if is_ragged else values["batch"], "samples_per_s": 10.0}

    table = make_table(script_results({"batch": [4, 32], "model": ["plain", "ragged"]}, tell))
    known = {row.factors["model"] for row in table.rows if row.rates()}
    assert known == {"plain"}
