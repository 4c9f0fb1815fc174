from __future__ import annotations

import pytest

from dmls_ray.analysis.answer import answer
from dmls_ray.analysis.published import match, published
from dmls_ray.analysis.tables import make_table
from tests.analysis.samples import results


def test_the_published_figures_are_all_here() -> None:
    runs = published()
    assert len(runs) == 26
    assert len(runs.rank_epochs) == 344
    assert set(runs.runs["dataset"]) == {"cifar10", "stl10", "mnist"}


def test_they_give_report_as_sentence_on_two_gpus_against_one() -> None:
    told = answer(make_table(published("cifar10")), "world_size")
    at_32, at_256 = told.split("; ")
    assert "t batch_per_rank 32, " in at_32
    assert "from world_size 1 to 2 a run went from 161 to 634 s, 3.95 times as long" in at_32
    assert "at batch_per_rank 256, " in at_256
    assert "a run went from 153 to 214 s, 1.40 times as long" in at_256


def test_they_give_report_bs_sentence_for_each_backend() -> None:
    told = answer(make_table(published("stl10")), "world_size")
    assert (
        "at batch_per_rank 32, backend nccl, from world_size 1 to 2 a run went from 179 to 63.9 s, 2.81 times" in told
    )
    assert (
        "at batch_per_rank 32, backend gloo, from world_size 1 to 2 a run went from 179 to 87.3 s, 2.05 times" in told
    )


def test_they_give_report_cs_sentence_on_machines() -> None:
    told = answer(make_table(published("mnist")), "machines")
    assert "ranks_per_machine 1, backend gloo, from machines 1 to 2 a run went from 186 to 99.0 s, 1.88 times" in told


def test_losses_that_were_summed_over_batches_are_means_over_samples() -> None:
    (run,) = [item for item in published().records if item.run_id == "cifar10-convnet-1gpu-bs256"]
    # Ten classes and a first epoch: close to the logarithm of ten, in steps of 0.001 x 256.
    assert run.epochs[0].train_loss == pytest.approx(0.007 * 256)
    assert run.epochs[-1].test_accuracy == pytest.approx(0.7187)
    assert run.overfit_epoch is not None


def test_an_epoch_of_ours_stands_beside_the_published_one_of_the_same_configuration() -> None:
    ours = results(
        {"batch_per_rank": 32, "world_size": [1, 2], "model": "convnet", "dataset": "cifar10", "lr": 5e-4},
        lambda values, repeat: 100.0,
        repeats=1,
    )
    for record in ours.records:
        record.backend = "gloo" if record.config["world_size"] > 1 else ""
    found = [match(record) for record in ours.records]
    by_size = {record.config["world_size"]: item for record, item in zip(ours.records, found, strict=True)}
    assert by_size[1] is not None
    assert by_size[2] is not None
    assert by_size[1].record.run_id == "cifar10-convnet-1gpu-bs32"
    assert by_size[2].record.run_id == "cifar10-convnet-2gpu-gloo-bs32"
    assert by_size[1].hardware == "NVIDIA GeForce RTX 3090"
    assert "epochs 5 / 20" in by_size[1].differs_in
    assert "lr" not in by_size[1].differs_in


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_per_rank", 64),
        ("model", "simplecnn"),
        ("precision", "amp-bf16"),
        ("batch_norm", "on"),
        ("dataset", "mnist"),
    ],
)
def test_what_is_not_of_the_same_configuration_stands_beside_nothing(name: str, value: object) -> None:
    axes = {"batch_per_rank": 32, "model": "convnet", "dataset": "cifar10"} | {name: value}
    (record,) = results(axes, lambda values, repeat: 100.0, repeats=1).records
    assert match(record) is None
