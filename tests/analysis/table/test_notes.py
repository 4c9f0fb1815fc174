from __future__ import annotations

from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.notes import held_fixed
from tests.analysis.samples import own_results, results


def test_model_data_epochs_and_whatever_is_not_usual_are_named() -> None:
    runs = results({"batch_per_rank": [16, 32], "clip_norm": 1.0}, lambda values, repeat: 100.0)
    assert held_fixed(make_table(runs)) == (
        "Held fixed: model digits_convnet, dataset digits, epochs 5, world_size 1, optimizer adam, lr 0.001, "
        "clip_norm 1.0."
    )


def test_what_varies_is_not_named_and_all_fields_of_a_function_are() -> None:
    text = held_fixed(make_table(results({"batch_per_rank": [16, 32], "lr": [0.1, 0.2]}, lambda values, repeat: 100.0)))
    assert "lr" not in text
    assert "batch" not in text
    runs = own_results({"depth": [1, 2], "width": 8}, lambda values, repeat: (1.0, {}))
    assert "width 8" in held_fixed(make_table(runs))
    assert held_fixed(make_table(runs.of([]), ())) == ""
