"""What only shows on several ranks: one pair of processes runs all trials of this file."""

from __future__ import annotations

import time
from typing import Any
from unittest import mock

import pytest
import torch
from torch.distributed.optim import ZeroRedundancyOptimizer

from dmls_ray.records.run_events import RankResult
from dmls_ray.training.ddp import warmup_steps
from dmls_ray.workloads.classification.config import TrialConfig
from tests.new_processes import run_ranks
from tests.records.test_model import recorded
from tests.training.probes import train_and_return_weights
from tests.training.test_engine import UNEVEN, run_each, weights


def config(**changes: Any) -> TrialConfig:
    base = {"model": "tests.training.probes:watched", "batch_per_rank": 8, "dataset": UNEVEN, "epochs": 3}
    return TrialConfig(**{**base, "device": "cpu", "world_size": 2, "optimizer": "sgd", "lr": 0.1, **changes})


EXACT: dict[str, dict[str, Any]] = {
    "plain": {},
    "small buckets": {"bucket_cap_mib": 0.001},
    "views": {"gradient_as_bucket_view": True},
    "static graph": {"static_graph": True},
    "zero": {"zero_redundancy": True},
    "noise": {"noise_scale": True},
}
"""Options that must not change what is computed."""

OTHER: dict[str, dict[str, Any]] = {
    "fp16": {"compression": "fp16"},
    "bf16": {"compression": "bf16"},
    "noise and fp16": {"compression": "fp16", "noise_scale": True},
    "zero and adam": {"zero_redundancy": True, "optimizer": "adam", "lr": 0.01},
    "adam": {"optimizer": "adam", "lr": 0.01},
    "amp": {"precision": "amp-bf16"},
    "fp16 amp": {"precision": "amp-fp16"},
    "stopping": {"early_stopping": "test_accuracy", "patience": 1, "epochs": 30},
    "validation": {"validation_share": 0.2, "early_stopping": "validation_accuracy", "epochs": 10},
    "norm": {"model": "tests.training.probes:normed"},
    "noise and accumulation": {"accum_steps": 2, "noise_scale": True},
    "zero and accumulation": {"accum_steps": 2, "zero_redundancy": True},
    "accumulation": {"accum_steps": 2},
    "late": {"model": "tests.training.probes:late", "epochs": 1},
}


@pytest.fixture(scope="module")
def trained() -> dict[str, list[dict[str, Any]]]:
    names = EXACT | OTHER
    return dict(zip(names, run_each(*(config(**changes) for changes in names.values())), strict=True))


def losses(ranks: list[dict[str, Any]]) -> list[float]:
    return [epoch["train_loss"] for epoch in ranks[0]["run"]["epochs"]]


@pytest.mark.parametrize("name", [name for name in EXACT if name != "plain"])
def test_an_option_that_only_moves_gradients_differently_changes_no_result(name: str, trained: Any) -> None:
    torch.testing.assert_close(weights(trained[name]), weights(trained["plain"]), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("name", "base"),
    [("zero and adam", "adam"), ("zero and accumulation", "accumulation"), ("noise and accumulation", "accumulation")],
)
def test_options_go_together_without_changing_a_result(name: str, base: str, trained: Any) -> None:
    torch.testing.assert_close(weights(trained[name]), weights(trained[base]), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["fp16", "bf16", "noise and fp16", "amp", "fp16 amp"])
def test_rounded_gradients_converge_as_exact_ones_do(name: str, trained: Any) -> None:
    plain = losses(trained["plain"])
    assert losses(trained[name]) != plain, "something must have been rounded"
    assert losses(trained[name]) == pytest.approx(plain, rel=0.15)
    weights(trained[name])


@pytest.mark.parametrize("name", ["stopping", "validation"])
def test_all_ranks_stop_after_the_same_epoch_with_the_same_weights(name: str, trained: Any) -> None:
    first, second = trained[name]
    assert first["run"]["best_epoch"] == second["run"]["best_epoch"]
    assert len(first["run"]["epochs"]) == len(second["run"]["epochs"]) < config(**OTHER[name]).epochs
    weights(trained[name])


def test_communication_is_measured_on_every_rank_and_hidden_communication_is_subtracted(trained: Any) -> None:
    for rank in trained["plain"]:
        assert rank["comm_ms"] > 0
        assert 0 <= rank["overlap_ms"] <= rank["comm_ms"]
        assert rank["exposed_comm_ms"] == pytest.approx(rank["comm_ms"] - rank["overlap_ms"])
        assert rank["forward_ms"] > 0
        assert rank["backward_ms"] >= 0
        parts = ("data_wait_ms", "forward_ms", "backward_ms", "exposed_comm_ms", "optimizer_ms", "rest_ms")
        counted = rank["run"]["steps"] - rank["run"]["warmup_steps"]
        share = sum(rank[part] for part in parts) / (rank["train_s"] / counted * 1e3)
        assert share > 0.95
        # Communication is sampled in some passes. On a busy machine it can be more than the mean backward pass, of
        # which nothing is left then.
        assert share < 1.05 or rank["backward_ms"] == 0


def test_a_rank_that_waits_for_a_slower_one_does_not_count_the_wait_as_communication(trained: Any) -> None:
    """Rank 1 computes 100 ms longer in each pass, so rank 0 waits as long in its reduction."""
    waits = ({"exposed_comm_ms": item["exposed_comm_ms"]} for item in trained["late"])
    metrics = recorded(*(RankResult(rank=rank, values=item) for rank, item in enumerate(waits))).metrics
    exposed_ms, wait_ms = metrics["exposed_comm_ms"], metrics["straggler_wait_ms"]
    assert exposed_ms == trained["late"][1]["exposed_comm_ms"] < 50 < wait_ms


def train_with_slow_broadcasts(trial: TrialConfig, rank: Any, emit: Any) -> dict[str, Any]:
    """Train while each of ZeRO's broadcasts takes 200 ms longer."""
    broadcast: Any = ZeroRedundancyOptimizer._sync_params

    def slow(optimizer: Any) -> None:
        time.sleep(0.2)
        broadcast(optimizer)

    with mock.patch.object(ZeroRedundancyOptimizer, "_sync_params", slow):
        return {"run": {"returned": train_and_return_weights(trial, rank, emit)}}


def test_what_zero_broadcasts_counts_as_communication() -> None:
    ranks = run_ranks(config(epochs=1, zero_redundancy=True), train=train_with_slow_broadcasts)
    assert [rank.outcome for rank in ranks] == ["ok", "ok"], ranks[0].traceback
    for rank in ranks:
        returned = rank.run["returned"]
        assert returned["comm_ms"] > 200
        assert returned["exposed_comm_ms"] == pytest.approx(returned["comm_ms"] - returned["overlap_ms"])


def test_uncompressed_steps_at_the_start_of_powersgd_count_in_no_rate() -> None:
    compressed = config(compression="powersgd", device="cuda")
    assert [warmup_steps(samples, compressed) for samples in (1000, 16 * 4)] == [10, 6]
    assert warmup_steps(1000, compressed.replace(warmup_steps=12)) == 12
    assert [warmup_steps(samples, config()) for samples in (1000, 16)] == [5, 1]


def test_the_evaluation_on_training_samples_is_over_all_ranks(trained: Any) -> None:
    first, second = (rank["run"] for rank in trained["plain"])
    assert first["train_eval_samples"] == first["test_samples"] == 37
    assert all(first[name] == second[name] for name in ("train_eval_loss", "train_eval_accuracy"))


def test_all_ranks_test_the_same_running_statistics(trained: Any) -> None:
    first, second = trained["norm"]
    assert first["buffers"] == second["buffers"] != []


def test_the_noise_scale_is_reported_if_configured(trained: Any) -> None:
    for name in ("noise", "noise and fp16", "noise and accumulation"):
        assert all(rank["run"]["gradient_noise_scale"] != 0 for rank in trained[name])
    assert trained["plain"][0]["run"]["gradient_noise_scale"] is None


def compare_noise(trial: TrialConfig, rank: Any, emit: Any) -> dict[str, Any]:
    """The noise scale by the meter, and by its definition from the gradient of each sample, at fixed weights."""
    from dmls_ray.workloads.classification.data.loaders import normalize
    from dmls_ray.workloads.classification.train import rank_trainer

    made = rank_trainer(trial, rank)
    model = made.model
    images, labels = made.task.loader._train  # type: ignore[attr-defined]
    gradients = []
    for image, label in zip(images, labels, strict=True):
        model.zero_grad()
        torch.nn.functional.cross_entropy(model(normalize(image[None])), label[None]).backward()
        gradients.append(torch.cat([item.grad.flatten() for item in model.parameters()]).double())
    each = torch.stack(gradients)
    made.model.zero_grad()
    made.run(lambda event: None)
    assert made.noise is not None
    return {
        "metered": made.noise.read(made.collective.sum),
        "defined": float(each.var(0).sum() / each.mean(0).square().sum()),
    }


@pytest.mark.slow
def test_the_noise_scale_is_the_variance_of_gradients_over_their_squared_mean() -> None:
    many = "synthetic:shape=1x8x8,classes=4,train=512,test=8,seed=3"
    trial = config(dataset=many, batch_per_rank=4, epochs=20, lr=1e-9, noise_scale=True)
    for changed in (trial, trial.replace(accum_steps=2)):
        ranks = run_ranks(changed, train=compare_noise)
        assert [item.outcome for item in ranks] == ["ok", "ok"], ranks[0].traceback
        assert ranks[0].values["metered"] == pytest.approx(ranks[0].values["defined"], rel=0.25)
