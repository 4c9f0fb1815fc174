"""What the answer says of int8, over whole tables."""

from __future__ import annotations

from dmls_ray.analysis.results import Results
from dmls_ray.analysis.summary.quantization import quantization_headline
from dmls_ray.analysis.summary.sweep_summary import SweepQuestion, SweepSummary, answer_on_axis
from dmls_ray.analysis.table.build import make_table
from dmls_ray.config.until import Until
from dmls_ray.execution.blocks import blocks_of
from dmls_ray.execution.planning import make_plan
from tests.analysis.samples import results


def test_the_answer_on_quantization_says_what_int8_does_to_accuracy_size_and_latency() -> None:
    runs = results(
        {"quantization": ["off", "static"], "batch_per_rank": 16, "inference_batch": 32}, lambda values, repeat: 100.0
    )
    for record in runs.records:
        record.metrics["fp32_compiled_ms_p50"] = 0.2
        if record.config["quantization"] == "static":
            record.metrics["fp32_test_accuracy"], record.metrics["int8_test_accuracy"] = 0.9, 0.89
            record.metrics["fp32_checkpoint_bytes"], record.metrics["int8_checkpoint_bytes"] = 27_221, 10_943
            record.metrics["int8_compiled_ms_p50"] = 0.25
    found = answer_on_axis(make_table(runs), "quantization")
    assert found.headline == (
        "int8 by static quantization loses 1.0 points of test accuracy and infers 0.80x as fast as fp32."
    )
    assert {item.topic: item.text for item in found.findings}["static"] == (
        "0.890 in int8, -1.0 points [-1.0, -1.0] against fp32, 10,943 bytes for 27,221, inference of 32 images 0.80x "
        "[0.80, 0.80] as fast, both compiled"
    )


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


def test_int8_against_fp32_is_a_comparison_that_the_sweep_repeats_for() -> None:
    runs = results({"quantization": ["off", "static"], "batch_per_rank": 16}, lambda values, repeat: 100.0)
    static = [record for record in runs.records if record.config["quantization"] == "static"]
    for record, change in zip(static, (-0.2, 0.1, 0.0), strict=True):
        record.metrics["fp32_test_accuracy"], record.metrics["int8_test_accuracy"] = 0.9, 0.9 + change
    runs.until = Until()
    look = SweepSummary(runs, SweepQuestion(varied=("quantization",), axis="quantization")).look
    assert look is not None
    assert [claim.pair for claim in look.open] == ["int8 by static quantization against fp32"]
    assert look.goes_on


def test_the_headline_on_quantization_names_no_change_that_is_within_chance() -> None:
    runs = results({"quantization": ["off", "static"], "batch_per_rank": 16}, lambda values, repeat: 100.0)
    static = [record for record in runs.records if record.config["quantization"] == "static"]
    for record, change, ratio in zip(static, (-0.02, 0.01, 0.0), (0.8, 1.3, 1.0), strict=True):
        record.metrics["fp32_test_accuracy"], record.metrics["int8_test_accuracy"] = 0.9, 0.9 + change
        record.metrics["fp32_compiled_ms_p50"], record.metrics["int8_compiled_ms_p50"] = 0.2, 0.2 * ratio
    assert quantization_headline(make_table(runs).rows, Until()) == (
        "int8 by static quantization is not distinguished from fp32 in test accuracy (-0.3 points [-7.1, +6.4]) and is "
        "not distinguished from fp32 in inference (1.0x [0.3, 2.9])."
    )


def noisy_int8(kinds: list[str] | str, batches: list[int] | int) -> Results:
    axes = {"quantization": kinds, "batch_per_rank": batches, "inference_batch": 32}
    runs = results(axes, lambda values, repeat: 100.0 * values["batch_per_rank"])
    for record in runs.records:
        if record.config["quantization"] == "static":
            record.metrics["fp32_test_accuracy"], record.metrics["int8_test_accuracy"] = (
                0.9,
                0.9 + (-0.2, 0.1, 0.0)[record.repeat],
            )
    runs.until = Until()
    return runs


def test_the_sweep_that_runs_repeats_for_int8_as_its_answer_says() -> None:
    axes = {"quantization": ["off", "static"], "batch_per_rank": [16, 32], "inference_batch": 32}
    runs, plan = noisy_int8(["off", "static"], [16, 32]), make_plan(axes, repeats=30)
    finished = {record.run_id for record in runs.records}
    blocks = blocks_of(plan, runs.until, "quantization", finished, lambda: runs)
    assert {run.repeat for run in blocks.next()} == {3, 4}
    assert "int8 by static quantization against fp32 at batch_per_rank " in blocks.reason


def test_one_kind_of_quantization_alone_has_its_comparison_with_fp32() -> None:
    summary = SweepSummary(noisy_int8("static", 16), SweepQuestion(axis="quantization"))
    assert summary.look is not None
    assert [claim.pair for claim in summary.look.claims] == ["int8 by static quantization against fp32"]
    assert summary.answer.headline.startswith("int8 by static quantization is not distinguished from fp32")


def test_int8_of_ranks_that_trained_apart_is_no_comparison() -> None:
    runs = noisy_int8(["off", "static"], 16)
    for record in runs.records:
        record.independent_ranks = "no collectives in 6 optimizer steps"
    look = SweepSummary(runs, SweepQuestion(varied=("quantization",), axis="quantization")).look
    assert look is not None
    assert look.claims == []
