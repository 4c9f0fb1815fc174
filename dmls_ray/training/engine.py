"""The training loop: what one rank does from assignment to result, in plain PyTorch.

A launcher calls `train_rank` on every rank of a run, with the process group in place; nothing here knows who
launched it.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from dmls_ray.records.model import EpochRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.training_metrics import LEARNED
from dmls_ray.training.checkpoint import Checkpoints, save_weights
from dmls_ray.training.clocks import MemoryMeter, PhaseClock, StepTimer, device_name
from dmls_ray.training.compile_warmup import warm_up
from dmls_ray.training.data.loaders import MEMORY_FORMATS, Held, Loader, laid_out, make_loader, normalized
from dmls_ray.training.data.sharding import steps_of
from dmls_ray.training.ddp import DDPModel
from dmls_ray.training.early_stopping import EarlyStopping
from dmls_ray.training.gradient_noise_scale import NoiseMeter
from dmls_ray.training.models import build_model
from dmls_ray.training.optimizer_step import Update
from dmls_ray.training.precision import autocast, has_fast_units
from dmls_ray.training.process import Collective, prepare_process, seed_rank
from dmls_ray.training.quantization import Int8, check_available, measure_inference
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.training.utilization import UtilizationSampler
from dmls_ray.workloads.classification.config import TrialConfig

_SUMMED_TOGETHER = 32
"""Batches that are summed at once: one by one, the calls would cost more than their work."""


def train_rank(config: TrialConfig, rank: RankInfo, emit: Emit) -> dict[str, Any]:
    """Train and test one configuration on this rank.

    Args:
        config: what to train; its seed is this run's seed.
        rank: who this rank is. At world size above 1 the default process group exists.
        emit: rank 0 tells it each epoch as it ends: `{"kind": "epoch", ...}` with the fields of `EpochRecord`; where
            `rank.prunable`, all ranks do, and stop if the answer is False. All ranks tell it `{"kind": "progress"}`
            after each pass of training and of testing.

    Returns:
        `RankRecord`'s fields, this rank's own; `outcome`, `ok` or `diverged`; and under `run` what is equal on all
        ranks: device, backend, parameters, steps, and the epochs over all ranks.

    Raises:
        ConfigError, UnknownNameError, UserCodeError, DataError: the model or the data cannot be built.
        torch.OutOfMemoryError: the device's memory did not suffice.
    """
    trial = Trial(config, rank)
    try:
        with UtilizationSampler(trial.device) as utilization:
            outcome = trial.run(emit)
    finally:
        trial.loader.close()
    return {**trial.result(outcome), "utilization": utilization.series}


class Trial:
    """One rank's part in one run, set up and ready to train."""

    def __init__(self, config: TrialConfig, rank: RankInfo) -> None:
        self.config, self.rank = config, rank
        self.device = torch.device(rank.device)
        self.clock = PhaseClock(self.device, rank.assigned_at)
        with self.clock.phase("setup_s"):
            check_available(config)
            prepare_process(config, rank, tf32=config.precision == "tf32")
            self.memory = MemoryMeter(self.device)
            self.everyone = Collective(rank, self.device)
            self.loader: Loader = make_loader(config, rank, self.device)
            self.model = build_model(config, self.loader.shape, self.loader.classes).to(self.device)
            self.model.to(memory_format=MEMORY_FORMATS[config.memory_format])
            self.int8 = Int8(config, self.model, self.loader.shape)
            self.model = self.int8.trained
            self.noise = NoiseMeter(config, self.device) if config.noise_scale else None
            self.replica = DDPModel(self.model, config, self.device, self.noise)
            self.steps = config.epochs * steps_of(self.loader.train_samples, config)
            self.update = Update(config, list(self.model.parameters()), self.steps, self.device, self.noise)
            self.compiled = warm_up(self.replica, self.loader, config, rank.rank, self.device)
            seed_rank(config, rank)
        # At most half: a short run still has steps to count.
        self.warmup_steps = min(config.warmup_steps, self.steps // 2)
        self.timer = StepTimer(self.device, self.warmup_steps)
        self.stopping = EarlyStopping(config, self.everyone)
        self.checkpoints = Checkpoints(config, rank, self.everyone)
        self.epochs: list[EpochRecord] = []
        self.own_epochs: list[dict[str, Any]] = []
        self.reached: dict[str, Any] = {}
        """When the target accuracy was first reached."""
        self.resumed_epoch: int | None = None
        self.stopped_epoch: int | None = None
        self.inference: dict[str, float] = {}
        self._tell_progress: Callable[[], object] = lambda: None

    def run(self, emit: Emit) -> Outcome:
        """Train and test every epoch that is still to come."""
        self._tell_progress = functools.partial(emit, {"kind": "progress"})
        outcome = Outcome.OK
        stop = self._resume()
        while not stop and len(self.epochs) < self.config.epochs:
            epoch = self._epoch(len(self.epochs) + 1)
            goes_on = True
            if self.rank.rank == 0 or self.rank.prunable:
                goes_on = emit({"kind": "epoch", **asdict(epoch)}) is not False
            if not (math.isfinite(epoch.train_loss or 0.0) and math.isfinite(epoch.test_loss or 0.0)):
                # All ranks have the same sums, so all stop here together.
                outcome = Outcome.DIVERGED
                break
            stop = self.stopping.observe(epoch, self.model)
            if not goes_on and epoch.epoch < self.config.epochs:
                self.stopped_epoch, stop = epoch.epoch, True
            if self.checkpoints:
                with self.clock.phase("checkpoint_s"):
                    self._save(stop)
        self.stopping.restore(self.model)
        if outcome is Outcome.OK:
            with self.clock.phase("inference_s"):
                self._finish_int8()
        with self.clock.phase("checkpoint_s"):
            save_weights(self.model, self.rank)
            self.checkpoints.remove()
        return outcome

    def _epoch(self, number: int) -> EpochRecord:
        """Train over all training samples once, and test."""
        epoch = EpochRecord(epoch=number)
        own: dict[str, Any] = {"epoch": number}
        self.everyone.barrier()
        sums = self._sums()
        self.timer.begin_epoch()
        self._train(number - 1, sums)
        warmup_s, train_s, images = self.timer.end_epoch()
        self.clock.add("warmup_s", warmup_s)
        self.clock.add("train_s", train_s)
        epoch.train_s, epoch.warmup_s = self.everyone.max([train_s, warmup_s])
        _, epoch.train_loss, epoch.train_accuracy = sums.means(own, "train", self.everyone)
        epoch.images = int(self.everyone.sum([images])[0])
        epoch.images_per_s = epoch.images / epoch.train_s if epoch.images and epoch.train_s else None
        before = self.clock.seconds["eval_s"]
        if math.isfinite(epoch.train_loss):
            with self.clock.phase("eval_s"):
                self.everyone.share_buffers(self.model)
                forward = self.int8.forward() if self.config.quantization == "qat" else self.replica.test_forward
                tested = {"test": self._test("test", forward)}
                if self.loader.validation_samples:
                    tested["validation"] = self._test("validation", forward)
            for split, sums in tested.items():
                count, loss, accuracy = sums.means(own, split, self.everyone)
                assert count == getattr(self.loader, f"{split}_samples"), (split, count)
                setattr(epoch, f"{split}_loss", loss)
                setattr(epoch, f"{split}_accuracy", accuracy)
        own |= {"train_s": train_s, "warmup_s": warmup_s, "eval_s": self.clock.seconds["eval_s"] - before}
        epoch.eval_s = self.everyone.max([own["eval_s"]])[0]
        self.epochs.append(epoch)
        self.own_epochs.append(own)
        self._note_target(epoch)
        return epoch

    def _train(self, number: int, sums: Sums) -> None:
        """One pass over the training samples; nothing in it waits for the device."""
        config, update, forward = self.config, self.update, self.replica.forward
        parameters = update.parameters
        self.model.train()
        for item, (images, labels) in self.loader.train(number):
            if self.noise is not None:
                self.noise.begin_pass(item, update.loss_scale())
            if item.ends_step:
                loss, logits = self._pass(forward, images, labels, item.scale)
            else:
                with self.replica.without_reduction():
                    loss, logits = self._pass(forward, images, labels, item.scale)
            if self.noise is not None:
                self.noise.end_pass(parameters, item)
            if item.count:
                if config.label_smoothing:
                    # Reported without the smoothing, to stand beside the test loss.
                    loss = F.cross_entropy(logits.detach().float(), labels, reduction="sum")
                sums.add(loss, logits, labels)
            self.timer.add_images(item.count)
            if item.ends_step:
                update.step()
                self.timer.step()
            self._tell_progress()

    def _sums(self) -> Sums:
        # max-autotune replays CUDA graphs, and each replay writes over the logits of the one before.
        overwritten = self.device.type == "cuda" and self.config.compile == "max-autotune"
        return Sums(self.device, together=1 if overwritten else _SUMMED_TOGETHER)

    def _pass(self, forward: Any, images: Tensor, labels: Tensor, scale: float) -> tuple[Tensor, Tensor]:
        """Forward and backward; returns the summed loss and the logits."""
        with autocast(self.config, self.device):
            logits = forward(images)
            loss = F.cross_entropy(logits, labels, reduction="sum", label_smoothing=self.config.label_smoothing)
        self.update.backward(loss, scale)
        return loss, logits

    @torch.inference_mode()
    def _test(self, split: Held, forward: Any) -> Sums:
        """This rank's share of the samples, on the bare model: shards are uneven, so no collective may run inside."""
        self.model.eval()
        sums = self._sums()
        for images, labels in self.loader.test(split):
            with autocast(self.config, self.device):
                logits = forward(images)
            sums.add(F.cross_entropy(logits.float(), labels, reduction="sum"), logits, labels)
            self._tell_progress()
        return sums

    def _finish_int8(self) -> None:
        """What is told of the int8 model, and of inference, once the run is over."""
        if self.config.quantization != "off":
            fp32, int8 = (self._test("test", forward).means({}, "test", self.everyone)[2]
                          for forward in (self.int8.fp32(), self.int8.forward()))  # fmt: skip
            self.inference |= {"fp32_test_accuracy": fp32, "int8_test_accuracy": int8}
            self.inference["quantize_s"] = self.int8.seconds
        if self.config.inference_batch is not None and self.rank.rank == 0:
            raw = torch.randint(256, (self.config.inference_batch, *self.loader.shape), dtype=torch.uint8)
            images = laid_out(normalized(raw.to(self.device)), self.config)
            folder = None if self.rank.artifacts is None else Path(self.rank.artifacts.folder)
            self.inference |= measure_inference(self.int8.fp32(), self.int8.converted, images, folder)

    def _note_target(self, epoch: EpochRecord) -> None:
        target, accuracy = self.config.target_accuracy, epoch.test_accuracy
        if target is not None and accuracy is not None and accuracy >= target and not self.reached:
            (seconds,) = self.everyone.max([self.clock.total_s])
            self.reached = {
                "target_epoch": epoch.epoch,
                "target_steps": epoch.epoch * steps_of(self.loader.train_samples, self.config),
                "target_s": seconds,
            }

    def _save(self, stop: bool) -> None:
        shared = {
            "model": self.model.state_dict(),
            "update": self.update.state(),
            "stopping": self.stopping.state(),
            "epochs": [asdict(epoch) for epoch in self.epochs],
            "reached": self.reached,
            "stop": stop,
        }
        own = {
            "epochs": self.own_epochs,
            "seconds": self.clock.seconds,
            "total_s": self.clock.total_s,
            "step_ms": self.timer.step_ms,
            "noise": None if self.noise is None else self.noise.state(),
            "quantize_s": self.int8.seconds,
        }
        self.checkpoints.save(len(self.epochs), shared, own)

    def _resume(self) -> bool:
        """Go on after the newest checkpoint, if there is one; returns whether the run was to stop there."""
        found = self.checkpoints.load(self.device)
        if found is None:
            return False
        self.resumed_epoch, shared, own = found
        self.model.load_state_dict(shared["model"])
        self.update.restore(shared["update"])
        self.stopping.resume(shared["stopping"])
        self.epochs = [EpochRecord(**epoch) for epoch in shared["epochs"]]
        self.reached = shared["reached"]
        self.own_epochs = own["epochs"]
        self.clock.resume(own["seconds"], own["total_s"])
        self.timer.step_ms = own["step_ms"]
        if self.noise is not None:
            self.noise.restore(own["noise"])
        self.int8.seconds = own["quantize_s"]
        return bool(shared["stop"])

    def result(self, outcome: Outcome) -> dict[str, Any]:
        """What `train_rank` returns."""
        rank, loader = self.rank, self.loader
        reason = f"the loss is not finite in epoch {len(self.epochs)}" if outcome is Outcome.DIVERGED else ""
        kept = self.own_epochs[self.stopping.best_epoch - 1] if self.stopping.best_epoch else self.own_epochs[-1]
        return {
            "outcome": outcome.value,
            "reason": reason,
            "rank": rank.rank,
            "machine": rank.machine,
            "device": rank.device,
            "pid": os.getpid(),
            **self.clock.seconds,
            "total_s": self.clock.total_s,
            **self.timer.percentiles(),
            **self.memory.read(),
            **self.replica.communication(),
            **{name: kept.get(name) for name in LEARNED},
            "epochs": self.own_epochs,
            "run": {
                "device": device_name(self.device),
                "backend": rank.backend or "",
                "parameters": sum(item.numel() for item in self.model.parameters() if item.requires_grad),
                "scaled_lr": self.config.scaled_lr,
                "train_samples": loader.train_samples,
                "validation_samples": loader.validation_samples,
                "test_samples": loader.test_samples,
                "steps": steps_of(loader.train_samples, self.config) * len(self.epochs),
                "warmup_steps": self.warmup_steps,
                "skipped_steps": self.update.skipped_steps,
                "fast_units": has_fast_units(self.config.precision, self.device),
                "resumed_epoch": self.resumed_epoch,
                "stopped_epoch": self.stopped_epoch,
                "gradient_noise_scale": None if self.noise is None else self.noise.read(self.everyone.sum),
                "best_epoch": self.stopping.best_epoch,
                **self.compiled,
                **self.inference,
                **self.reached,
                "epochs": [asdict(epoch) for epoch in self.epochs],
            },
        }


class Sums:
    """Loss, hits and count of samples, summed on the device and read once an epoch."""

    def __init__(self, device: torch.device, together: int) -> None:
        self._together = together
        self._loss = torch.zeros((), dtype=torch.float64, device=device)
        self._hits = torch.zeros((), dtype=torch.int64, device=device)
        self._count = 0
        self._waiting: list[tuple[Tensor, Tensor, Tensor]] = []

    def add(self, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Add a batch: its summed loss, and which of its largest logits stand at the label."""
        self._waiting.append((loss.detach(), logits.detach(), labels))
        self._count += len(labels)
        if len(self._waiting) == self._together:
            self._sum_up()

    def means(self, own: dict[str, Any], split: str, everyone: Collective) -> tuple[int, float, float]:
        """Samples, mean loss and accuracy over all ranks; this rank's own go into `own` under `<split>_loss` and
        `_accuracy`.
        """
        self._sum_up()
        values = [float(self._loss), float(self._hits), float(self._count)]
        if self._count:
            own |= {f"{split}_loss": values[0] / values[2], f"{split}_accuracy": values[1] / values[2]}
        loss, hits, count = everyone.sum(values)
        return int(count), loss / count, hits / count

    def _sum_up(self) -> None:
        if not self._waiting:
            return
        losses, logits, labels = zip(*self._waiting, strict=True)
        # Not in place: what was made in inference mode may not be changed outside of it.
        self._loss = self._loss + torch.stack(losses).double().sum()
        self._hits = self._hits + (torch.cat(logits).argmax(1) == torch.cat(labels)).sum()
        self._waiting.clear()
