from __future__ import annotations

import functools
import math
import time
from typing import Any

import msgspec
import pytest
import torch
import torch.nn.functional as F
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from dmls_ray.records.model import STEP_QUANTILES
from dmls_ray.records.run_events import EpochEnded, Progress, RankEvent, RankResult
from dmls_ray.training import utilization
from dmls_ray.training.clocks import RUN_PHASES
from dmls_ray.training.evaluation import Evaluator
from dmls_ray.training.rank import RankInfo
from dmls_ray.training.sharding import evaluation_shards, hold_out, train_evaluation_samples
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.data.decoded_images import load_decoded
from dmls_ray.workloads.classification.data.loaders import normalize
from dmls_ray.workloads.classification.train import rank_trainer, train_rank
from tests.new_processes import run_inline, run_ranks
from tests.run_results import returning
from tests.training.probes import train_and_return_weights, watched

UNEVEN = "synthetic:shape=1x8x8,classes=4,train=101,test=37"
"""No batch divides these: the last window, its passes and the test shards are all short."""


def config(**changes: Any) -> TrialConfig:
    batch = {} if "global_batch" in changes else {"batch_per_rank": 8}
    return TrialConfig(**{**batch, "dataset": UNEVEN, "epochs": 2, "device": "cpu", **changes})


def train_each(trials: list[TrialConfig], trial: TrialConfig, rank: Any, emit: Any) -> RankResult:
    """Several trials in one set of processes, since a process takes seconds to load PyTorch."""
    return returning({"each": [train_and_return_weights(item, rank, emit) for item in trials]})


def run_each(*trials: TrialConfig) -> list[list[RankResult]]:
    """The results of trials of one world size: by trial, then by rank."""
    ranks = run_ranks(trials[0], train=functools.partial(train_each, list(trials)))
    assert [item.outcome for item in ranks] == ["ok"] * len(ranks), ranks[0].traceback
    each = [msgspec.convert(rank.run.reported["returned"]["each"], list[RankResult]) for rank in ranks]
    return [list(of_trial) for of_trial in zip(*each, strict=True)]


def weights(ranks: list[RankResult]) -> torch.Tensor:
    reported = [torch.tensor([value for part in item.run.reported["weights"] for value in part]) for item in ranks]
    assert all(torch.equal(rank, reported[0]) for rank in reported), "DDP keeps all ranks' parameters equal"
    return reported[0]


def watched_config(**changes: Any) -> TrialConfig:
    return config(model="tests.training.probes:watched", optimizer="sgd", lr=0.1, **changes)


def test_ranks_and_accumulation_reach_the_parameters_of_one_rank_with_the_whole_batch() -> None:
    base = watched_config(momentum=0.5, weight_decay=0.01, global_batch=32)
    alone = weights([train_and_return_weights(base, RankInfo(), print)])
    half = weights([train_and_return_weights(base.replace(epochs=1), RankInfo(), print)])
    assert not torch.allclose(alone, half, atol=1e-3), "training must move the parameters"
    two = base.replace(world_size=2, global_batch=32)
    accumulated = base.replace(world_size=2, accum_steps=2, global_batch=32)
    assert [item.batch_per_rank for item in (base, two, accumulated)] == [32, 16, 8]
    for ranks in run_each(two, accumulated):
        torch.testing.assert_close(weights(ranks), alone, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_ranks_and_accumulation_reach_the_same_parameters_under_every_optimizer_and_schedule() -> None:
    base = watched_config(global_batch=32)
    changed = [
        base.replace(**changes)
        for changes in (
            {"optimizer": "adam", "lr": 1e-3},
            {"optimizer": "adamw", "lr": 1e-3, "weight_decay": 0.1},
            {"optimizer": "rmsprop", "lr": 1e-3, "momentum": 0.5},
            {"lr_schedule": "one-cycle"},
            {"lr_schedule": "cosine", "lr_warmup_steps": 2, "clip_norm": 0.3, "l1": 1e-3, "label_smoothing": 0.1},
        )
    ]
    alone = [weights([train_and_return_weights(item, RankInfo(), print)]) for item in changed]
    many = [item.replace(world_size=2, accum_steps=steps, global_batch=32) for item in changed for steps in (1, 2)]
    for number, ranks in enumerate(run_each(*many)):
        torch.testing.assert_close(weights(ranks), alone[number // 2], rtol=1e-4, atol=1e-6)


def test_a_model_that_changes_its_input_harms_no_later_epoch_and_no_later_run() -> None:
    trial = config(model="tests.training.probes:doubling", dataset="tests.training.probes:floats", lr=1e-9, epochs=3)
    losses = [epoch.metrics["test_loss"] for _ in range(2) for epoch in run_inline(trial).run.epochs]
    assert losses == pytest.approx([losses[0]] * 6, rel=1e-4)


def test_one_step_is_the_mean_gradient_over_the_batch_worked_out_by_hand() -> None:
    trial = watched_config(epochs=1, global_batch=101)
    data = load_decoded(UNEVEN, None, None)
    torch.manual_seed(trial.seed)
    model = watched((1, 8, 8), 4)
    logits = model(normalize(torch.from_numpy(data.train_images)))
    F.cross_entropy(logits, torch.from_numpy(data.train_labels)).backward()
    expected = torch.cat([(item - 0.1 * item.grad).flatten() for item in model.parameters() if item.grad is not None])
    trained = weights([train_and_return_weights(trial, RankInfo(), print)])
    torch.testing.assert_close(trained, expected.detach(), rtol=1e-5, atol=1e-6)


def test_test_metrics_are_exact_at_uneven_shards_and_at_fewer_samples_than_ranks() -> None:
    trial = watched_config(world_size=3, batch_per_rank=5)
    few = trial.replace(dataset="synthetic:shape=1x8x8,classes=2,train=4,test=2", batch_per_rank=1)
    for item, samples, ranks in zip((trial, few), (37, 2), run_each(trial, few), strict=True):
        counts = [_samples_of(evaluation_shards(samples, item, rank), samples) for rank in range(3)]
        assert sum(counts) == samples == ranks[0].run.metrics["test_samples"]
        tested = [(rank, count) for rank, count in zip(ranks, counts, strict=True) if count]
        assert all("test_accuracy" not in rank.metrics for rank, count in zip(ranks, counts, strict=True) if not count)
        last = ranks[0].run.epochs[-1].metrics
        hits = sum(round(rank.metrics["test_accuracy"] * count) for rank, count in tested)
        assert last["test_accuracy"] == pytest.approx(hits / samples, abs=1e-12)
        loss = sum(rank.metrics["test_loss"] * count for rank, count in tested)
        assert last["test_loss"] == pytest.approx(loss / samples, rel=1e-9)


def test_every_epoch_is_emitted_as_it_ends() -> None:
    events: list[RankEvent] = []
    result = run_inline(config(epochs=3), emit=events.append)
    reported = [event.epoch for event in events if isinstance(event, EpochEnded)]
    assert [epoch.epoch for epoch in reported] == [1, 2, 3]
    assert events.count(Progress()) >= result.run.metrics["steps"], "each pass shows that the rank gets on"
    assert [epoch.metrics["test_accuracy"] for epoch in reported] == [
        item.metrics["test_accuracy"] for item in result.run.epochs
    ]


def test_phases_sum_up_to_the_total_and_rates_leave_the_warm_up_out() -> None:
    result = run_inline(config(warmup_steps=4))
    phases = [result.values[name] for name in (*RUN_PHASES, "between_s")]
    assert all(seconds >= 0 for seconds in phases)
    assert sum(phases) == pytest.approx(result.values["total_s"], rel=1e-9)
    steps = 2 * math.ceil(101 / 8)
    assert (result.run.metrics["steps"], result.run.metrics["warmup_steps"]) == (steps, 4)
    assert sum(item.metrics["images"] for item in result.run.epochs) == 2 * 101 - 4 * 8


@pytest.mark.parametrize("changes", [{}, {"early_stopping": "test_accuracy", "patience": 1}, {"validation_share": 0.2}])
@pytest.mark.parametrize("loader", ["resident", "dataloader"])
def test_train_accuracy_is_that_of_the_trained_model_without_dropout_and_augmentation(
    loader: str, changes: dict[str, Any]
) -> None:
    trial = config(model="digits_convnet", dataset="digits", image_size=None, dropout=0.3, augmentation="crop",
                   loader=loader, loader_workers=0, batch_per_rank=64, **changes)  # fmt: skip
    made = rank_trainer(trial, RankInfo())
    result = made.run(lambda event: None)
    run = result.run.metrics
    data = load_decoded("digits", None, None)
    kept, _ = hold_out(len(data.train_labels), trial)
    samples = kept[train_evaluation_samples(len(kept), len(data.test_labels), trial)]
    assert run["train_eval_samples"] == len(samples) == len(data.test_labels)
    images, labels = torch.from_numpy(data.train_images)[samples], torch.from_numpy(data.train_labels)[samples]
    with torch.no_grad():
        logits = made.model.eval()(normalize(images))
    assert run["train_eval_accuracy"] == pytest.approx((logits.argmax(1) == labels).float().mean().item(), abs=1e-6)
    assert run["train_eval_loss"] == pytest.approx(F.cross_entropy(logits, labels).item(), rel=1e-5)
    assert run["train_eval_accuracy"] != result.run.epochs[-1].metrics["train_accuracy"]


def test_the_evaluation_on_training_samples_is_in_no_phase_and_draws_no_random_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = rank_trainer(config(), RankInfo())
    batches = made.task.evaluation_batches
    states: list[torch.Tensor] = []

    def slow(split: Any) -> Any:
        if split == "train":
            states.append(torch.get_rng_state())
            time.sleep(0.3)
        return batches(split)

    monkeypatch.setattr(made.task, "evaluation_batches", slow)
    before = time.perf_counter()
    result = made.run(lambda event: None).metrics
    assert torch.equal(states[0], torch.get_rng_state())
    assert result["instruments_s"] >= 0.3
    assert result["total_s"] <= time.perf_counter() - made.rank.clock.assigned_at - 0.3
    assert result["eval_s"] < time.perf_counter() - before - 0.3


def test_utilization_is_sampled_until_the_training_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(evaluator: Evaluator) -> dict[str, Any]:
        time.sleep(0.5)
        return {}

    monkeypatch.setattr(utilization, "PERIOD_S", 0.01)
    monkeypatch.setattr(Evaluator, "on_training_samples", slow)
    result = train_rank(config(epochs=20), RankInfo(), lambda event: None)
    # Times of samples are rounded to hundredths.
    assert 0.0 < max(result.utilization["at_s"]) <= result.metrics["total_s"] - result.metrics["setup_s"] + 0.01


def test_a_batch_that_is_larger_than_the_data_is_not_measured_as_that_batch() -> None:
    assert run_inline(config(global_batch=101)).outcome == "ok"
    for changes in ({"global_batch": 102}, {"batch_per_rank": 51, "accum_steps": 2}):
        result = run_inline(config(**changes))
        assert result.outcome == "skipped"
        assert "global_batch=102 is larger than the training set of 101 samples; lower batch_per_rank" in result.reason


def test_a_short_run_still_has_steps_that_count() -> None:
    result = run_inline(config(warmup_steps=100, epochs=1, batch_per_rank=101))
    assert (result.run.metrics["steps"], result.run.metrics["warmup_steps"]) == (1, 0)
    assert result.values["step_ms_p50"] is not None
    assert len(result.values["step_ms_quantiles"]) == len(STEP_QUANTILES)


def test_a_loss_that_is_not_finite_ends_the_run_as_diverged_on_all_ranks() -> None:
    events: list[RankEvent] = []
    exploding = config(model="tests.training.probes:exploding", epochs=5, world_size=2)
    for result in run_ranks(exploding, emit=events.append):
        assert (result.outcome, result.reason) == ("diverged", "the loss is not finite in epoch 1")
    assert sum(isinstance(event, EpochEnded) for event in events) == 1


def test_the_same_seed_gives_the_same_losses_bit_for_bit_and_another_does_not() -> None:
    def losses(**changes: Any) -> list[float]:
        return [item.metrics["train_loss"] for item in run_inline(config(**changes)).run.epochs]

    assert losses() == losses()
    assert losses() != losses(seed=1)


def test_the_record_has_the_epoch_in_which_a_target_accuracy_was_first_reached() -> None:
    trial = config(dataset="digits", batch_per_rank=32, epochs=6, target_accuracy=0.8)
    result = run_inline(trial)
    run = result.run.metrics
    accuracies = [epoch.metrics["test_accuracy"] for epoch in result.run.epochs]
    first = next(number for number, accuracy in enumerate(accuracies, start=1) if accuracy >= 0.8)
    assert 1 < first < 6, "the target must lie inside the run"
    assert run["target_epoch"] == first
    assert run["target_steps"] == first * run["steps"] / 6
    assert result.values["setup_s"] < run["target_s"] < result.values["total_s"]
    assert "target_epoch" not in run_inline(trial.replace(target_accuracy=1.0)).run.metrics


def test_tests_within_epochs_find_the_steps_to_the_target_and_leave_the_training_as_it_was() -> None:
    trial = config(dataset="digits", batch_per_rank=32, epochs=4, target_accuracy=0.8, dropout=0.2)
    coarse = run_inline(trial)
    fine = run_inline(trial.replace(target_tests=45))  # as many as an epoch has steps
    steps = fine.run.metrics["target_steps"]
    last = coarse.run.metrics["target_steps"]
    assert last - 45 < steps < last, "the target must lie inside an epoch"
    assert fine.run.metrics["target_epoch"] == coarse.run.metrics["target_epoch"] == 1 + steps // 45
    for name in ("train_loss", "test_loss", "test_accuracy"):
        assert [item.metrics[name] for item in fine.run.epochs] == [item.metrics[name] for item in coarse.run.epochs]
    assert fine.values["instruments_s"] > coarse.values["instruments_s"]


def test_a_run_that_stops_at_its_target_trains_to_the_end_of_that_epoch() -> None:
    trial = config(dataset="digits", batch_per_rank=32, epochs=9, target_accuracy=0.8, stop_at_target=True)
    run = run_inline(trial.replace(target_tests=15)).run
    assert run.metrics["target_epoch"] == len(run.epochs) < 9
    assert run.metrics["target_steps"] % 3 == 0
    assert run.metrics["steps"] == 45 * len(run.epochs)


def test_two_ranks_find_the_same_steps_to_the_target() -> None:
    trial = config(dataset="digits", batch_per_rank=16, epochs=4, target_accuracy=0.8, target_tests=15, world_size=2)
    ranks = run_ranks(trial)
    assert [item.outcome for item in ranks] == ["ok", "ok"], ranks[0].traceback
    assert ranks[0].run.metrics["target_steps"] == ranks[1].run.metrics["target_steps"] < ranks[0].run.metrics["steps"]
    assert ranks[0].run.metrics["target_s"] == ranks[1].run.metrics["target_s"]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_reaches_the_accuracy_of_the_cpu_and_measures_its_memory() -> None:
    trial = config(dataset="synthetic:shape=1x8x8,classes=4,train=512,test=128", epochs=3, device="cuda")
    gpu, cpu = run_inline(trial), run_inline(trial.replace(device="cpu"))
    assert gpu.outcome == "ok", gpu.traceback
    assert gpu.run.epochs[-1].metrics["test_accuracy"] == pytest.approx(
        cpu.run.epochs[-1].metrics["test_accuracy"], abs=0.05
    )
    assert gpu.values["peak_reserved_mib"] >= gpu.values["peak_mem_mib"] > 0
    assert len(gpu.epochs) == 3
    assert gpu.values["step_ms_p50"] > 0


def _samples_of(shards: list[slice], samples: int) -> int:
    """How many of the samples of a split are in some slices of it."""
    return sum(len(range(*part.indices(samples))) for part in shards)


evaluation_shards.__test__ = False  # type: ignore[attr-defined]  # a function that tests use, and no test


def count_reductions(trial: TrialConfig, rank: Any, emit: Any) -> RankResult:
    """`train_rank`, with how often gradients were reduced and what dropout's random numbers were."""
    from torch.nn.parallel import DistributedDataParallel

    counted, real = [0], DistributedDataParallel.__init__

    def counting(self: Any, *args: Any, **options: Any) -> None:
        real(self, *args, **options)

        def hook(state, bucket):  # type: ignore[no-untyped-def]  # DDP refuses annotations as texts
            counted[0] += bucket.is_last()
            return allreduce_hook(torch.distributed.group.WORLD, bucket)

        self.register_comm_hook(None, hook)

    DistributedDataParallel.__init__ = counting  # type: ignore[method-assign]
    result = train_rank(trial, rank, emit)
    result.run.reported = {"reductions": counted[0], "random": float(torch.rand(()))}
    return result


def test_gradients_are_reduced_once_a_step_and_each_rank_draws_different_random_numbers() -> None:
    trial = config(world_size=2, accum_steps=3, epochs=2)
    ranks = run_ranks(trial, train=count_reductions)
    assert [item.outcome for item in ranks] == ["ok", "ok"], ranks[0].traceback
    assert [item.run.reported["reductions"] for item in ranks] == [ranks[0].run.metrics["steps"]] * 2
    assert ranks[0].run.reported["random"] != ranks[1].run.reported["random"]
