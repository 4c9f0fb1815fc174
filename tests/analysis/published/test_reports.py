from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.analysis.findings.question import answer_on_axis
from dmls_ray.analysis.published.reports import match_training, published
from dmls_ray.analysis.table.build import make_table
from dmls_ray.records.model import RunRecord
from tests.analysis.samples import results


def test_the_published_figures_are_all_here() -> None:
    runs = published()
    assert len(runs) == 26
    assert len(runs.rank_epochs) == 344
    assert set(runs.runs["dataset"]) == {"cifar10", "stl10", "mnist"}


def ratios(dataset: str, axis: str) -> dict[str, float]:
    """The speed of the most ranks or machines against that of one, by what the trials share."""
    comparisons = answer_on_axis(make_table(published(dataset)), axis).comparisons
    speeds = [comparison[0] for comparison in comparisons if comparison[0].pair.field == axis]
    return {effect.pair.where: round(effect.contrast.centre, 2) for effect in speeds}


def test_they_give_the_ratios_of_the_reports() -> None:
    assert ratios("cifar10", "world_size") == {
        "batch_per_rank 32, backend gloo": 0.25,
        "batch_per_rank 256, backend gloo": 0.71,
    }
    of_b = ratios("stl10", "world_size").values()
    assert (min(of_b), max(of_b)) == (2.05, 2.81)
    assert ratios("mnist", "machines")["1 rank/machine, backend gloo"] == 1.88


def of_ours(**fields: Any) -> RunRecord:
    """One run of ours, as report A's on two GPUs but for these fields."""
    axes = {"batch_per_rank": 256, "world_size": 2, "model": "convnet", "dataset": "cifar10", "lr": 5e-4, "epochs": 20,
            "weight_decay": 5e-4, "shuffle": False, "loader": "dataloader"}  # fmt: skip
    (record,) = results(axes | fields, lambda values, repeat: 100.0, repeats=1).records
    record.backend = "gloo" if record.config["world_size"] > 1 else ""
    return record


def test_the_published_run_that_differs_least_matches() -> None:
    for epochs, run_id in ((10, "cifar10-convnet-2gpu-gloo-bs256-fp32-10ep"), (20, "cifar10-convnet-2gpu-gloo-bs256")):
        matched = match_training(of_ours(epochs=epochs))
        assert (matched.record.run_id, matched.differs_in) == (run_id, "")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("epochs", 5, "epochs 5 / 20"),
        ("weight_decay", 0.0, "weight_decay 0.0 / 0.0005"),
        ("dropout", 0.5, "dropout 0.5 / not reported"),
        ("validation_share", 0.1, "validation_share 0.1 / not reported"),
        ("early_stopping", "test_loss", "early_stopping test_loss / off"),
        ("loader", "resident", "loader resident / dataloader"),
        ("seed", 7, ""),
        ("target_accuracy", 0.7, ""),
    ],
)
def test_fields_that_affect_training_are_listed_if_they_differ(name: str, value: object, expected: str) -> None:
    assert match_training(of_ours(**{name: value})).differs_in == expected


def test_what_counts_with_another_field_alone_differs_with_that_alone() -> None:
    stopped = {"batch_norm": "on", "early_stopping": "test_loss", "epochs": 6}
    for patience, expected in ((2, False), (5, True)):
        assert ("patience 5 / 2" in match_training(of_ours(**stopped, patience=patience)).differs_in) == expected
    # Without scaling there is no batch at which lr holds.
    record = of_ours()
    record.config = {**record.config, "lr_base_batch": 64}
    assert match_training(record).differs_in == ""


@pytest.mark.parametrize("dropout", [None, 0.5])
def test_the_dropout_of_regularised_runs_is_listed_as_unknown(dropout: float | None) -> None:
    matched = match_training(of_ours(batch_norm="on", early_stopping="test_loss", epochs=6, dropout=dropout))
    assert matched.record.run_id == "cifar10-convnet-reg-2gpu-gloo-bs256"
    ours = "none" if dropout is None else "0.5"
    assert matched.differs_in == f"dropout {ours} / of a rate that is not reported"


@pytest.mark.parametrize(("name", "value"), [("batch_per_rank", 64), ("model", "simplecnn"), ("dataset", "mnist")])
def test_another_configuration_matches_no_published_run(name: str, value: object) -> None:
    axes = {"batch_per_rank": 32, "model": "convnet", "dataset": "cifar10"} | {name: value}
    (record,) = results(axes, lambda values, repeat: 100.0, repeats=1).records
    assert match_training(record) is None
