"""The training loop of one rank, in plain PyTorch. Nothing here depends on the launcher or the workload."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from torch.random import fork_rng

from dmls_ray.config.training import TrainingConfig
from dmls_ray.records.metrics import LEARNED
from dmls_ray.records.model import EpochRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import EpochEnded, Progress, RankResult
from dmls_ray.training.checkpoint import Checkpoints, save_weights
from dmls_ray.training.ddp import DDPModel, warm_up, warmup_steps
from dmls_ray.training.evaluation import Evaluator
from dmls_ray.training.gradient_noise_scale import NoiseMeter
from dmls_ray.training.optimizers import OptimizerStep
from dmls_ray.training.precision import autocast
from dmls_ray.training.process import Collective, mixed_seed, prepare_process, seed_process
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.training.rank_meter import RankMeter
from dmls_ray.training.sharding import check_batch, steps_per_epoch
from dmls_ray.training.stopping import EarlyStopping, Target
from dmls_ray.training.task import Means, Meter, TrainingTask

Task = TypeVar("Task", bound=TrainingTask)

MakeTask = Callable[[Any, RankInfo, torch.device], Task]
"""Makes the task of a workload from configuration, rank and device."""


class RankTrainer(Generic[Task]):
    """One rank of one run, set up and ready to train."""

    def __init__(self, config: TrainingConfig, rank: RankInfo, make_task: MakeTask[Task]) -> None:
        self.config, self.rank = config, rank
        self.meter = RankMeter(rank)
        self.device = self.meter.device
        self.clock = self.meter.clock
        with self.clock.phase("setup_s"):
            prepare_process(config, rank, tf32=config.precision == "tf32")
            self.meter.begin_memory()
            self.collective = Collective(rank, self.device)
            self.task = make_task(config, rank, self.device)
            check_batch(self.task.train_samples, config)
            self.model = self.task.model
            self.noise = NoiseMeter(config, self.device) if config.noise_scale else None
            self.ddp_model = DDPModel(self.model, config, self.noise)
            self.steps_per_epoch = steps_per_epoch(self.task.train_samples, config)
            steps = config.epochs * self.steps_per_epoch
            self.optimizer_step = OptimizerStep(config, list(self.model.parameters()), steps, self.noise)
            self.compiled = warm_up(self.ddp_model, self.task, config, rank.rank, self.device)
            # From here on each rank has different random numbers, for example for dropout.
            seed_process(mixed_seed(config.seed, rank.rank))
        self.warmup_steps = warmup_steps(self.task.train_samples, config)
        self.evaluator = Evaluator(config, self.device, self.task, self.ddp_model, self.collective)
        self.timer = self.meter.time_steps(self.warmup_steps, self.ddp_model.count_from_here)
        self.stopping = EarlyStopping(config, self.collective)
        self.target = Target(self.task, self.steps_per_epoch, self._elapsed_s)
        self.checkpoints = Checkpoints(rank, self.collective)
        self.epochs: list[EpochRecord] = []
        self.local_epochs: list[EpochRecord] = []  # of this rank, over its share of the samples
        self.resumed_epoch: int | None = None
        self.stopped_epoch: int | None = None
        self.finish_metrics: dict[str, Any] = {}
        self._shared: dict[str, Any] = {"stopping": self.stopping, "target": self.target}
        """Parts of a checkpoint whose state is equal on all ranks."""
        self._local: dict[str, Any] = {"update": self.optimizer_step, "clock": self.clock, "task": self.task}
        """Parts whose state is that of this rank."""
        if self.noise is not None:
            self._local["noise"] = self.noise

    def run(self, emit: Emit) -> RankResult:
        """Train and evaluate all epochs, or those after the newest checkpoint."""
        self.evaluator.emit = emit
        stop = self._resume()
        with self.meter:
            outcome = self._train_epochs(emit, stop)
        self._finish(outcome)
        return self._result(outcome)

    def _train_epochs(self, emit: Emit, stop: bool) -> Outcome:
        """Train and evaluate until `stop`, or up to the last epoch."""
        while not stop and len(self.epochs) < self.config.epochs:
            epoch = self._epoch(len(self.epochs) + 1)
            pruned = False
            if self.rank.rank == 0 or self.rank.prunable:
                pruned = emit(EpochEnded(epoch=epoch)) is False
            losses = [epoch.metrics[name] for name in ("train_loss", "test_loss") if name in epoch.metrics]
            if not all(math.isfinite(loss) for loss in losses):
                # All ranks have the same losses, so all of them stop here.
                return Outcome.DIVERGED
            stop = self.stopping.observe(epoch, self.model) or self.target.ends_run
            if pruned and epoch.epoch < self.config.epochs:
                self.stopped_epoch, stop = epoch.epoch, True
            if self.checkpoints.wanted:
                with self.clock.phase("checkpoint_s"):
                    self._save(stop)
        return Outcome.OK

    def _finish(self, outcome: Outcome) -> None:
        """Evaluate and save the weights of the best epoch."""
        self.stopping.load_best(self.model)
        if self.meter.agreement is not None:
            with self.clock.untimed():
                steps = self.steps_per_epoch * (len(self.epochs) - (self.resumed_epoch or 0))
                self.meter.agreement.end(steps, self.model.parameters())
        if outcome is Outcome.OK:
            with self.clock.phase("inference_s"):
                self.finish_metrics = self.task.finish(
                    lambda forward: self.evaluator.evaluate("test", forward).means(self.collective)
                )
        with self.clock.phase("checkpoint_s"):
            # The checkpoints stay until the driver has the record of the run.
            save_weights(self.task, self.rank, self._learned())
        if outcome is Outcome.OK and self.task.train_eval_samples:
            with self.clock.untimed():
                self.finish_metrics |= self.evaluator.on_training_samples()

    def _learned(self) -> dict[str, float]:
        """Losses and accuracies of the epoch that the weights are of, without those that are not finite."""
        metrics = self.epochs[(self.stopping.best_epoch or 0) - 1].metrics
        return {name: metrics[name] for name in LEARNED if name in metrics and math.isfinite(metrics[name])}

    def _epoch(self, number: int) -> EpochRecord:
        """Train over all training samples once, and evaluate."""
        epoch = EpochRecord(epoch=number)
        local = EpochRecord(epoch=number)
        # Before the clock of the steps starts: an exported model rewrites its graph, which takes as long as hundreds of
        # steps.
        self.model.train()
        with self.meter.memory.training():
            self.collective.barrier()
            meter = self.evaluator.meter()
            self.timer.begin_epoch()
            self._train(number, meter)
            warmup_s, train_s, samples = self.timer.end_epoch()

        self.clock.seconds["warmup_s"] += warmup_s
        self.clock.seconds["train_s"] += train_s
        metrics = epoch.metrics
        metrics["train_s"], metrics["warmup_s"] = self.collective.max([train_s, warmup_s])
        _store_means(epoch, local, "train", meter.means(self.collective))
        metrics["images"] = int(self.collective.sum([samples])[0])
        if metrics["images"] and metrics["train_s"]:
            metrics["images_per_s"] = metrics["images"] / metrics["train_s"]

        eval_s_before = self.clock.seconds["eval_s"]
        if math.isfinite(metrics["train_loss"]):
            self.evaluator.prepare()
            with self.clock.phase("eval_s"):
                meters = self.evaluator.test()
            for split, meter in meters.items():
                means = meter.means(self.collective)
                assert means.samples == getattr(self.task, f"{split}_samples"), (split, means.samples)
                _store_means(epoch, local, split, means)

        eval_s, ended_s = self.clock.seconds["eval_s"] - eval_s_before, self.clock.total_s
        local.metrics |= {"train_s": train_s, "warmup_s": warmup_s, "eval_s": eval_s, "ended_s": ended_s}
        metrics["eval_s"], metrics["ended_s"] = self.collective.max([eval_s, ended_s])
        self.epochs.append(epoch)
        self.local_epochs.append(local)
        self.target.observe(epoch, self.steps_per_epoch)
        return epoch

    def _train(self, number: int, meter: Meter) -> None:
        """One pass over the training samples, without waiting for the device but for tests within the epoch."""
        optimizer_step, phases = self.optimizer_step, self.timer.phases
        step = 0
        for micro_batch, batch in phases.waiting_for(self.task.train_batches(number - 1)):
            if self.noise is not None:
                self.noise.begin_pass(micro_batch, optimizer_step.loss_scale())

            with self.ddp_model.reducing(micro_batch.ends_step):
                with autocast(self.config, self.device):
                    outputs = self.task.predict(self.ddp_model.forward, batch)
                    loss = self.task.loss(outputs, batch)
                phases.after("forward")
                optimizer_step.backward(loss, micro_batch.scale)
                phases.after("backward")

            if self.noise is not None:
                self.noise.end_pass(optimizer_step.parameters, micro_batch)
            if micro_batch.count:
                meter.add_training(loss, outputs, batch)
            self.timer.add_samples(micro_batch.count)
            self.evaluator.emit(Progress())
            phases.after("rest")
            if micro_batch.ends_step:
                optimizer_step.step()
                phases.after("optimizer")
                self.timer.step()
                step += 1
                if self.target.is_due(step):
                    self._test_within_epoch(number, step)

    def _test_within_epoch(self, number: int, step: int) -> None:
        """Test for the target after a step. The training and its times stay as they are without this test."""
        tested = EpochRecord(epoch=number)
        with self.timer.paused(), self.clock.untimed(), self.meter.memory.outside_training(), fork_rng(devices=[]):
            self.evaluator.prepare()
            means = self.evaluator.test()["test"].means(self.collective)
            tested.metrics |= {f"test_{name}": value for name, value in means.overall.items()}
            self.model.train()
        self.target.observe(tested, step)

    def _elapsed_s(self) -> float:
        """Seconds since the run was assigned, of the last rank."""
        return self.collective.max([self.clock.total_s])[0]

    def _save(self, stop: bool) -> None:
        shared: dict[str, Any] = {name: part.state() for name, part in self._shared.items()}
        shared |= {"model": self.model.state_dict(), "epochs": [epoch.values for epoch in self.epochs], "stop": stop}
        local: dict[str, Any] = {name: part.state() for name, part in self._local.items()}
        local["epochs"] = [epoch.values for epoch in self.local_epochs]
        self.checkpoints.save(len(self.epochs), shared, local)

    def _resume(self) -> bool:
        """Load the newest checkpoint, if there is one; returns whether the run had stopped there."""
        checkpoint = self.checkpoints.load(self.device)
        if checkpoint is None:
            return False
        self.resumed_epoch, shared, local = checkpoint
        self.model.load_state_dict(shared["model"])
        self.epochs = list(map(_epoch_of, shared["epochs"]))
        self.local_epochs = list(map(_epoch_of, local["epochs"]))
        for name, part in self._shared.items():
            part.restore(shared[name])
        for name, part in self._local.items():
            part.restore(local[name])
        return bool(shared["stop"])

    def _result(self, outcome: Outcome) -> RankResult:
        """What was measured, without what further steps show."""
        result = self.meter.read(self.task.data_bytes)
        result.outcome = outcome
        if outcome is Outcome.DIVERGED:
            result.reason = f"the loss is not finite in epoch {len(self.epochs)}"

        communication = self.ddp_model.communication()
        kept = self.local_epochs[(self.stopping.best_epoch or 0) - 1]
        result.epochs = self.local_epochs
        result.add(self.clock.phases(result.metrics["total_s"]))
        result.add(communication)
        result.add(self.timer.phases.parts_ms(communication.get("exposed_comm_ms", 0.0)))
        result.add({name: kept.metrics.get(name) for name in LEARNED})

        run = result.run
        run.epochs = self.epochs
        run.add(
            {
                "parameters": sum(item.numel() for item in self.model.parameters() if item.requires_grad),
                "scaled_lr": self.config.scaled_lr,
                "train_samples": self.task.train_samples,
                "validation_samples": self.task.validation_samples,
                "test_samples": self.task.test_samples,
                "steps": self.steps_per_epoch * len(self.epochs),
                "warmup_steps": self.warmup_steps,
                "skipped_steps": self.optimizer_step.skipped_steps,
                "resumed_epoch": self.resumed_epoch,
                "stopped_epoch": self.stopped_epoch,
                "gradient_noise_scale": None if self.noise is None else self.noise.read(self.collective.sum),
                "best_epoch": self.stopping.best_epoch,
                "without_effect": "; ".join(self._without_effect()) or None,
            }
        )
        run.add(self.compiled)
        run.add(self.finish_metrics)
        run.add(self.target.reached)
        return result

    def _without_effect(self) -> list[str]:
        """Settings that were asked for, and changed nothing."""
        found = self.task.without_effect()
        if self.compiled and not self.compiled["compiled_graphs"]:
            found.append(f"compile={self.config.compile} (no graph was compiled)")
        passes = self.steps_per_epoch * len(self.epochs) * self.config.accum_steps
        return [*found, *self.ddp_model.hooks_without_effect(passes)]


def _store_means(epoch: EpochRecord, local: EpochRecord, split: str, means: Means) -> None:
    epoch.metrics |= {f"{split}_{name}": value for name, value in means.overall.items()}
    local.metrics |= {f"{split}_{name}": value for name, value in means.local.items()}


def _epoch_of(values: dict[str, Any]) -> EpochRecord:
    """An epoch of a checkpoint."""
    return EpochRecord(epoch=values.pop("epoch"), metrics=values)
