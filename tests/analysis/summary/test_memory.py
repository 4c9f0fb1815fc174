from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dmls_ray.analysis.results import Results
from dmls_ray.analysis.summary.memory import memory_among, memory_change
from dmls_ray.analysis.summary.sweep_summary import answer_on_axis
from dmls_ray.analysis.table.build import make_table
from tests.analysis.samples import own_results, results, set_value, with_memory_kinds


def of_optimizers(size: Callable[[str, int], float], metric: str = "tensor_mem_mib") -> Results:
    """Runs of four optimizers with this memory each."""
    axes = {"optimizer": ["sgd", "adam", "adamw", "rmsprop"], "batch_per_rank": 16}
    runs = results(axes, lambda values, repeat: 100.0)
    for record in runs.records:
        record.metrics.pop("tensor_mem_mib", None)
        set_value(record, metric, size(record.config["optimizer"], record.repeat))
    return runs


def change(runs: Results) -> str:
    first, *_, last = make_table(runs).rows
    return memory_change(first, last)


def of_batches(**fields: Any) -> Results:
    runs = results({"batch_per_rank": [16, 64]}, lambda values, repeat: 100.0)
    for record in runs.records:
        for name, value in fields.items():
            set_value(record, name, value(record.config["batch_per_rank"], record.repeat))
    return runs


def test_the_kind_of_memory_that_grows_is_named() -> None:
    runs = with_memory_kinds(results({"batch_per_rank": [16, 64]}, lambda values, repeat: 100.0))
    assert change(runs) == "tensor memory from 116 to 164 MiB (activations 16.0 to 64.0)"


def test_no_kind_is_named_where_several_grow() -> None:
    runs = with_memory_kinds(results({"batch_per_rank": [16, 64]}, lambda values, repeat: 100.0))
    for record in runs.records:
        record.metrics["other_mem_mib"] = record.metrics["gradient_mem_mib"] = float(record.config["batch_per_rank"])
    assert change(runs) == "tensor memory from 116 to 164 MiB"


def test_memory_that_does_not_change_is_given_once() -> None:
    assert change(of_batches(tensor_mem_mib=lambda batch, repeat: 2.0)) == "tensor memory 2.00 MiB in both"


def test_a_resident_set_that_grew_by_chance_is_not_distinguished() -> None:
    def noisy(batch: int, repeat: int) -> float:
        return [1.3, 1.1, 2.0][repeat] if batch == 16 else [1.5, 3.1, 1.2][repeat]

    runs = of_batches(tensor_mem_mib=lambda batch, repeat: None, host_mem_mib=noisy)
    assert change(runs) == "growth of the resident set from 1.4 to 1.8 MiB (not distinguished: +0.5 [-5.8, +6.7])"


def test_a_change_that_is_of_no_use_is_said_to_be_small() -> None:
    def grown(batch: int, repeat: int) -> float:
        return (10.0 if batch == 16 else 12.0) + 0.01 * repeat

    runs = of_batches(tensor_mem_mib=lambda batch, repeat: None, host_mem_mib=grown)
    assert change(runs) == "growth of the resident set from 10.0 to 12.0 MiB (hardly differs)"
    runs = of_batches(tensor_mem_mib=lambda batch, repeat: 100.0 if batch == 16 else 101.0)
    assert change(runs) == "tensor memory from 100 to 101 MiB (hardly differs)"


def test_no_memory_is_known_and_none_is_named() -> None:
    runs = of_batches(tensor_mem_mib=lambda batch, repeat: None, peak_mem_mib=lambda batch, repeat: 877.0)
    assert change(runs) == ""
    assert "877" not in answer_on_axis(make_table(runs), "batch_per_rank").text


def test_all_choices_that_need_least_memory_are_named_and_all_that_need_most() -> None:
    table = make_table(of_optimizers(lambda name, repeat: {"sgd": 2.0, "rmsprop": 3.0}.get(name, 4.0)))
    sentence = "tensor memory is least with sgd, 2.00 MiB, and largest with adam, adamw, 4.00 MiB"
    assert memory_among(table.rows, "optimizer") == sentence
    assert answer_on_axis(table, "optimizer").text.endswith(f"memory: {sentence}")


def test_one_run_says_how_much_memory_its_tensors_need_and_not_how_much_its_process_does() -> None:
    for metric, sentence in (("tensor_mem_mib", "tensor memory is least with sgd, 20.0 MiB"), ("host_mem_mib", "")):
        runs = of_optimizers(lambda name, repeat: 20.0 if name == "sgd" else 40.0, metric)
        once = runs.of([record for record in runs.records if record.repeat == 0])
        assert memory_among(make_table(once).rows, "optimizer").startswith(sentence)
        assert bool(memory_among(make_table(once).rows, "optimizer")) == bool(sentence)


def test_a_user_functions_memory_is_followed_along_the_axis() -> None:
    runs = own_results({"width": [8, 16]}, lambda values, repeat: (1.0, {}))
    for record in runs.records:
        record.metrics["host_mem_mib"] = 10.0 * record.config["width"] + record.repeat
    text = answer_on_axis(make_table(runs), "width").text
    assert "memory: growth of the resident set from 81.0 to 161 MiB" in text


def test_choices_that_need_about_as_much_are_not_ranked_by_memory() -> None:
    for size in (lambda name, repeat: 100.0 + len(name) / 10, lambda name, repeat: 2.0):
        assert memory_among(make_table(of_optimizers(size)).rows, "optimizer") == ""


def test_choices_whose_resident_sets_vary_by_chance_are_not_ranked() -> None:
    noise = {"sgd": [20.0, 9.0, 14.0], "adam": [10.0, 25.0, 13.0]}
    runs = of_optimizers(lambda name, repeat: noise.get(name, [12.0, 12.0, 12.0])[repeat], "host_mem_mib")
    assert memory_among(make_table(runs).rows, "optimizer") == ""
