"""int8 against fp32 of the same runs is what a sweep of quantization is about."""

from __future__ import annotations

import pytest

from dmls_ray import load
from dmls_ray.analysis.figures.question import QUANTIZATION
from dmls_ray.analysis.findings.question import SweepQuestion, answer_on_axis
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.summary import SweepSummary, summarize
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.named_layouts import shown_columns
from dmls_ray.analysis.words import effect_cell
from dmls_ray.analysis.words_on_pairs import pair_label
from dmls_ray.config.options import Options, Until
from dmls_ray.execution.next_runs import NextRuns
from dmls_ray.execution.planning import make_plan
from tests.analysis.samples import results
from tests.conftest import PROJECT


@pytest.fixture(scope="module")
def summary() -> SweepSummary:
    return summarize(load(PROJECT / "results" / "reference" / "quantization"))


def test_its_own_pairs_come_first_and_lead(summary: SweepSummary) -> None:
    found = summary.answer.answer
    labels = [pair_label(comparison[0].pair) for comparison in found.comparisons]
    assert labels[:3] == ["int8 by dynamic vs fp32", "int8 by static vs fp32", "int8 by qat vs fp32"]
    assert labels[3:] == ["quantization dynamic vs off", "quantization static vs off", "quantization qat vs off"]
    assert found.lead[0].pair.trial is found.lead[0].pair.base
    assert [effect.measure.noun for effect in found.lead] == ["test accuracy", "inference speed", "file size"]


def test_they_are_decided_as_those_of_trials_which_are_not_compared_by_accuracy(summary: SweepSummary) -> None:
    within, between = set(), set()
    for claim in summary.decision.claims:
        if claim.pair.trial is claim.pair.base:
            within.add((pair_label(claim.pair), claim.measure.noun))
        else:
            between.add((claim.pair.field, claim.measure.noun))
    labels = ["int8 by dynamic vs fp32", "int8 by static vs fp32", "int8 by qat vs fp32"]
    assert within == {(label, noun) for label in labels for noun in ("test accuracy", "inference speed")}
    assert between == {(QUANTIZATION, "speed")}


def test_a_size_that_is_equal_in_every_run_is_known_from_two_repeats() -> None:
    runs = noisy_int8(["static"], 16)
    runs.records = [record for record in runs.records if record.repeat < 2]
    for record in runs.records:
        record.metrics |= {"fp32_checkpoint_bytes": 20_000.0, "int8_checkpoint_bytes": 8_600.0}
    table = make_table(runs, ["quantization"])
    table.axis = "quantization"
    (comparison,) = answer_on_axis(table, "quantization").comparisons
    size = next(effect for effect in comparison if effect.measure.metric == "checkpoint_bytes")
    assert (effect_cell(size), size.verdict) == ("0.43x", "less")


def test_a_processor_without_vnni_is_named_where_int8_is_compared() -> None:
    runs = results({"quantization": ["off", "static"], "batch_per_rank": 16}, lambda values, repeat: 100.0)

    def notes() -> list[str]:
        return [note.text for note in make_table(runs).typed_notes if "VNNI" in note.text]

    for vnni, count in ((None, 0), (True, 0), (False, 1)):
        for record in runs.records:
            record.machine = {"cpu": "EPYC 7003"}
            record.facts["vnni"] = vnni if record.config["quantization"] == "static" else None
        assert len(notes()) == count
    assert notes()[0].startswith("EPYC 7003 without VNNI: int8 ")


@pytest.mark.parametrize(
    ("accuracy", "is_named"), [(0.1, True), (0.11, True), (0.05, True), (0.15, False), (0.9, False)]
)
def test_an_accuracy_that_guessing_gives_is_called_one(accuracy: float, is_named: bool) -> None:
    runs = results({"batch_per_rank": [16, 32]}, lambda values, repeat: 100.0)
    for record in runs.records:
        is_good = record.config["batch_per_rank"] == 16
        record.metrics |= {"test_accuracy": 0.95 if is_good else accuracy, "test_classes": 10, "test_samples": 1000}
    text = "batch_per_rank=32: test accuracy is no better than guessing among 10 classes."
    assert (text in make_table(runs).notes) is is_named
    assert all("batch_per_rank=16: test accuracy" not in note for note in make_table(runs).notes)


def test_dropout_of_a_model_is_shown_and_is_what_the_field_changes() -> None:
    runs = results({"dropout": [None, 0.3], "batch_per_rank": 16, "model": "simplecnn"}, lambda values, repeat: 100.0)
    for record in runs.records:
        record.metrics["model_dropout"] = record.config.get("dropout") or 0.5
    table = make_table(runs)
    assert sorted(table.frame(shown_columns(table).columns)["dropout"]) == ["0.3", "0.5"]
    note = "Model simplecnn has dropout of its own with rate 0.5: dropout=0.3 changes it from 0.5 to 0.3."
    assert note in table.notes
    for record in runs.records:
        del record.metrics["model_dropout"]
    assert not any("of its own" in note for note in make_table(runs).notes)


@pytest.mark.parametrize(("weight_decay", "is_said"), [(0.0, True), (0.01, False)])
def test_adamw_without_weight_decay_is_called_adam(weight_decay: float, is_said: bool) -> None:
    axes = {"optimizer": ["adam", "adamw", "sgd"], "batch_per_rank": 16, "weight_decay": weight_decay}
    notes = make_table(results(axes, lambda values, repeat: 100.0)).notes
    assert any(note.startswith("Without weight decay, adamw is the same as adam") for note in notes) is is_said
    alone = make_table(results({**axes, "optimizer": ["adam", "sgd"]}, lambda values, repeat: 100.0)).notes
    assert not any("adamw" in note for note in alone)


def noisy_int8(kinds: list[str] | str, batches: list[int] | int) -> Results:
    axes = {"quantization": kinds, "batch_per_rank": batches, "inference_batch": 32}
    runs = results(axes, lambda values, repeat: 100.0 * values["batch_per_rank"])
    for record in runs.records:
        if record.config["quantization"] == "static":
            record.metrics["fp32_test_accuracy"] = 0.9
            record.metrics["int8_test_accuracy"] = 0.9 + (-0.2, 0.1, 0.0)[record.repeat]
    runs.until = Until()
    return runs


def test_the_sweep_runs_repeats_for_int8() -> None:
    axes = {"quantization": ["off", "static"], "batch_per_rank": [16, 32], "inference_batch": 32}
    runs, plan = noisy_int8(["off", "static"], [16, 32]), make_plan(axes, repeats=30)
    state = NextRuns(plan, Options(axis="quantization"), runs.records, lambda: runs)
    assert {run.repeat for run in state.missing} == {3, 4}


def test_one_kind_of_quantization_alone_has_its_comparison_with_fp32() -> None:
    alone = SweepSummary(noisy_int8("static", 16), SweepQuestion(axis="quantization"))
    assert [pair_label(claim.pair) for claim in alone.decision.claims] == ["int8 by static vs fp32"]
    (effect,) = alone.answer.answer.lead
    assert (pair_label(effect.pair), effect.verdict) == ("int8 by static vs fp32", "open")


def test_int8_of_ranks_that_trained_apart_is_no_comparison() -> None:
    runs = noisy_int8(["off", "static"], 16)
    for record in runs.records:
        record.independent_ranks = "no collectives in 6 optimizer steps"
    assert not SweepSummary(runs, SweepQuestion(varied=("quantization",), axis="quantization")).decision.claims
