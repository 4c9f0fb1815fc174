"""What only shows on several ranks: one pair of processes runs all trials of this file."""

from __future__ import annotations

import gc
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel

from dmls_ray.records.run_events import RankResult
from dmls_ray.training.compat import compile_counters
from dmls_ray.training.ddp import SAMPLED_EVERY, DDPTimers, _batch_sizes, compile_mode, warmup_steps, with_exposed
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.train import rank_trainer
from tests.new_processes import run_inline, run_ranks, run_spawned
from tests.records.test_model import recorded
from tests.run_results import returning
from tests.training.test_engine import UNEVEN, run_each, weights


def config(**changes: Any) -> TrialConfig:
    base = {"model": "tests.training.probes:watched", "batch_per_rank": 8, "dataset": UNEVEN, "epochs": 3}
    return TrialConfig(**{**base, "device": "cpu", "world_size": 2, "optimizer": "sgd", "lr": 0.1, **changes})


GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

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
def trained() -> dict[str, list[RankResult]]:
    names = EXACT | OTHER
    return dict(zip(names, run_each(*(config(**changes) for changes in names.values())), strict=True))


def losses(ranks: list[RankResult]) -> list[float]:
    return [epoch.metrics["train_loss"] for epoch in ranks[0].run.epochs]


@pytest.mark.parametrize(
    ("name", "base"),
    [
        *((name, "plain") for name in EXACT if name != "plain"),
        ("zero and adam", "adam"),
        ("zero and accumulation", "accumulation"),
        ("noise and accumulation", "accumulation"),
    ],
)
def test_an_option_that_only_moves_gradients_differently_changes_no_result(name: str, base: str, trained: Any) -> None:
    torch.testing.assert_close(weights(trained[name]), weights(trained[base]), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["fp16", "bf16", "noise and fp16", "amp", "fp16 amp"])
def test_rounded_gradients_converge_as_exact_ones_do(name: str, trained: Any) -> None:
    plain = losses(trained["plain"])
    assert losses(trained[name]) != plain, "something must have been rounded"
    assert losses(trained[name]) == pytest.approx(plain, rel=0.15)
    assert trained[name][0].run.metrics["skipped_steps"] == 0
    weights(trained[name])


@pytest.mark.parametrize("name", ["stopping", "validation"])
def test_all_ranks_stop_after_the_same_epoch_with_the_same_weights(name: str, trained: Any) -> None:
    first, second = trained[name]
    assert first.run.metrics["best_epoch"] == second.run.metrics["best_epoch"]
    assert len(first.run.epochs) == len(second.run.epochs) < config(**OTHER[name]).epochs
    weights(trained[name])


def test_communication_is_measured_on_every_rank_and_hidden_communication_is_subtracted(trained: Any) -> None:
    for result in trained["plain"]:
        rank, run = result.metrics, result.run.metrics
        assert rank["comm_ms"] > 0
        assert 0 <= rank["overlap_ms"] <= rank["comm_ms"]
        assert rank["exposed_comm_ms"] == pytest.approx(rank["comm_ms"] - rank["overlap_ms"])
        assert rank["forward_ms"] > 0
        assert rank["backward_ms"] >= 0
        parts = ("data_wait_ms", "forward_ms", "backward_ms", "exposed_comm_ms", "optimizer_ms", "rest_ms")
        counted = run["steps"] - run["warmup_steps"]
        share = sum(rank[part] for part in parts) / (rank["train_s"] / counted * 1e3)
        assert share > 0.95
        # Communication is sampled in some passes. On a busy machine it can be more than the mean backward pass, of
        # which nothing is left then.
        assert share < 1.05 or rank["backward_ms"] == 0


def test_a_rank_that_waits_for_a_slower_one_does_not_count_the_wait_as_communication(trained: Any) -> None:
    """Rank 1 computes 100 ms longer in each pass, so rank 0 waits as long in its reduction."""
    waits = ({"exposed_comm_ms": item.metrics["exposed_comm_ms"]} for item in trained["late"])
    metrics = recorded(*(RankResult(rank=rank, metrics=item) for rank, item in enumerate(waits))).metrics
    exposed_ms, wait_ms = metrics["exposed_comm_ms"], metrics["straggler_wait_ms"]
    assert exposed_ms == trained["late"][1].metrics["exposed_comm_ms"] < 50 < wait_ms


def test_uncompressed_steps_at_the_start_of_powersgd_count_in_no_rate() -> None:
    compressed = config(compression="powersgd", device="cuda")
    assert [warmup_steps(samples, compressed) for samples in (1000, 16 * 4)] == [10, 6]
    assert warmup_steps(1000, compressed.replace(warmup_steps=12)) == 12
    assert [warmup_steps(samples, config()) for samples in (1000, 16)] == [5, 1]


def test_the_evaluation_on_training_samples_is_over_all_ranks(trained: Any) -> None:
    first, second = (rank.run.metrics for rank in trained["plain"])
    assert first["train_eval_samples"] == first["test_samples"] == 37
    assert all(first[name] == second[name] for name in ("train_eval_loss", "train_eval_accuracy"))


def test_all_ranks_test_the_same_running_statistics(trained: Any) -> None:
    first, second = trained["norm"]
    assert first.run.reported["buffers"] == second.run.reported["buffers"] != []


def test_the_noise_scale_is_reported_if_configured(trained: Any) -> None:
    for name in ("noise", "noise and fp16", "noise and accumulation"):
        assert all(rank.run.metrics.get("gradient_noise_scale") != 0 for rank in trained[name])
    assert "gradient_noise_scale" not in trained["plain"][0].run.metrics


def compare_noise(trial: TrialConfig, rank: Any, emit: Any) -> RankResult:
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
    defined = float(each.var(0).sum() / each.mean(0).square().sum())
    return returning({"metered": made.noise.read(made.collective.sum), "defined": defined})


@pytest.mark.slow
def test_the_noise_scale_is_the_variance_of_gradients_over_their_squared_mean() -> None:
    many = "synthetic:shape=1x8x8,classes=4,train=512,test=8,seed=3"
    trial = config(dataset=many, batch_per_rank=4, epochs=20, lr=1e-9, noise_scale=True)
    for changed in (trial, trial.replace(accum_steps=2)):
        ranks = run_ranks(changed, train=compare_noise)
        assert [item.outcome for item in ranks] == ["ok", "ok"], ranks[0].traceback
        scales = ranks[0].run.reported["returned"]
        assert scales["metered"] == pytest.approx(scales["defined"], rel=0.25)


class TimersOfDDP:
    """DDP's timers at a given rate, as PyTorch 2.14 has them: means over the first 10 passes and each n-th one."""

    def __init__(self, every: int) -> None:
        self.every = every
        self.seen: list[float] = []
        self.last = 0

    def add(self, number: int, comm_ms: float) -> None:
        self.last = number
        if number <= 10 or number % self.every == 0:
            self.seen.append(comm_ms)

    def read(self, ddp: Any) -> dict[str, Any]:
        return {"iteration": self.last, "avg_backward_comm_time": sum(self.seen) / max(len(self.seen), 1) * 1e6}


def test_cold_passes_of_the_warm_up_are_in_no_communication_time(group: None, monkeypatch: pytest.MonkeyPatch) -> None:
    ddp = DistributedDataParallel(torch.nn.Linear(2, 2))
    shown = TimersOfDDP(SAMPLED_EVERY["cpu"])
    monkeypatch.setattr("dmls_ray.training.ddp.ddp_logging_data", shown.read)
    timers = DDPTimers(ddp)
    for number in range(1, 31):
        shown.add(number, 100.0 if number <= 5 else 2.0)
        if number == 5:
            timers.count_from_here()
    assert timers.pass_ms()["comm_ms"] == pytest.approx(2.0, rel=1e-4)
    assert timers.passes == 25
    timers.count_from_here()
    assert timers.pass_ms() == {}, "nothing was measured since"


def test_times_of_a_model_that_is_gone_are_those_that_were_read_last(group: None) -> None:
    ddp = DistributedDataParallel(torch.nn.Linear(4, 4))
    timers = DDPTimers(ddp)
    for _ in range(4):
        ddp(torch.ones(2, 4)).sum().backward()
    timers.read()
    read = timers.pass_ms()
    assert read["comm_ms"] > 0
    assert timers.passes == 3, "DDP logs a pass when the next one begins"
    del ddp
    gc.collect()
    assert timers._ddp() is None, "the timers keep no model"
    assert timers.pass_ms() == read


def test_exposed_communication_is_what_no_computation_hides() -> None:
    assert with_exposed({"comm_ms": 3.0, "overlap_ms": 1.0})["exposed_comm_ms"] == 2.0
    assert with_exposed({"comm_ms": 1.0, "overlap_ms": 1.5})["exposed_comm_ms"] == 0.0
    assert with_exposed({"comm_ms": 0.0, "overlap_ms": 0.0}) == {}


def compiled_config(**changes: Any) -> TrialConfig:
    base = {"model": "digits_convnet", "batch_per_rank": 16, "dataset": UNEVEN, "epochs": 2, "batch_norm": "on"}
    return TrialConfig(**{**base, "device": "cpu", "compile": "default", **changes})


def losses_of_tests(result: RankResult) -> list[float]:
    return [epoch.metrics["test_loss"] for epoch in result.run.epochs]


@pytest.mark.slow
def test_a_compiled_model_learns_what_the_eager_one_does_and_is_compiled_in_set_up() -> None:
    def recompiled(trial: TrialConfig, rank: Any, emit: Any) -> RankResult:
        made = rank_trainer(trial, rank)
        stats = compile_counters()["stats"]
        before = stats["unique_graphs"]
        result = made.run(emit)
        result.run.reported["later"] = stats["unique_graphs"] - before
        return result

    compiled, eager = run_inline(compiled_config(), train=recompiled), run_inline(compiled_config(compile="off"))
    assert compiled.outcome == "ok", compiled.traceback
    assert losses_of_tests(compiled) == pytest.approx(losses_of_tests(eager), rel=1e-3)
    assert compiled.run.reported["later"] == 0, "no shape is left for a timed step to compile"
    assert 0 < compiled.run.metrics["compile_s"] <= compiled.values["setup_s"]
    assert compiled.run.facts["compile_cache"] in ("cold", "warm", "mixed")
    again = run_inline(compiled_config())
    assert again.run.facts["compile_cache"] == "warm"
    assert losses_of_tests(again) == losses_of_tests(compiled)


@pytest.mark.parametrize(
    ("device", "accum_steps", "mode"),
    [("cuda", 1, "max-autotune"), ("cuda", 2, "max-autotune-no-cudagraphs"), ("cpu", 2, "max-autotune")],
)
def test_gradients_that_accumulate_on_a_gpu_lie_in_no_cuda_graph(device: str, accum_steps: int, mode: str) -> None:
    trial = compiled_config(compile="max-autotune", accum_steps=accum_steps)
    assert compile_mode(trial, torch.device(device)) == mode
    assert compile_mode(trial.replace(compile="default"), torch.device(device)) is None


@pytest.mark.parametrize(
    ("mode", "changes", "rel"),
    [
        pytest.param("max-autotune", {"epochs": 1}, 1e-3, marks=pytest.mark.slow),
        *(
            pytest.param(mode, {"device": "cuda", "accum_steps": steps}, 1e-2, marks=GPU)
            for mode in ("default", "max-autotune")
            for steps in (1, 2)
        ),
    ],
)
def test_every_mode_learns_what_the_eager_one_does(mode: str, changes: dict[str, Any], rel: float) -> None:
    compiled, eager = (run_inline(compiled_config(**changes, compile=name)) for name in (mode, "off"))
    assert compiled.outcome == "ok", compiled.traceback
    assert losses_of_tests(compiled) == pytest.approx(losses_of_tests(eager), rel=rel)


@pytest.mark.slow
def test_a_compiled_model_trains_under_ddp() -> None:
    compiled, eager = (run_spawned(compiled_config(world_size=2, compile=mode)) for mode in ("default", "off"))
    assert [item.outcome for item in compiled] == ["ok", "ok"], compiled[0].traceback
    assert all(item.run.metrics["compiled_graphs"] > 0 for item in compiled)
    assert not any(item.run.facts.get("without_effect") for item in compiled)
    assert losses_of_tests(compiled[0]) == pytest.approx(losses_of_tests(eager[0]), rel=1e-3)


def test_without_a_compiler_a_run_is_skipped_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    result = run_inline(compiled_config())
    assert result.outcome == "skipped"
    assert "compile=default needs a C++ compiler" in result.reason


def test_a_model_is_compiled_for_the_batches_that_a_rank_tests() -> None:
    task: Any = SimpleNamespace(test_samples=10, validation_samples=0)
    trial = TrialConfig(batch_per_rank=2, world_size=2)
    assert [_batch_sizes(task, trial, rank, training=False) for rank in (0, 1)] == [[1, 2], [1, 2]]
    assert _batch_sizes(task, trial.replace(test_batch_per_rank=8), 1, training=False) == [5]
