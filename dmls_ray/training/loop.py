"""The training loop: what one rank does from assignment to result, in plain PyTorch.

A launcher calls `run_trial` on every rank of a run, with the process group in place; nothing here knows who
launched it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from dmls_ray.config import TrialConfig
from dmls_ray.rank import Emit, RankInfo
from dmls_ray.record import EpochRecord, Outcome
from dmls_ray.training.data.loaders import Batch, Loader, make_loader
from dmls_ray.training.data.sharding import Pass, steps_of
from dmls_ray.training.measure import MemoryMeter, PhaseClock, StepTimer, device_name
from dmls_ray.training.models import find_model
from dmls_ray.training.optim import make_optimizer
from dmls_ray.training.process import Collective, prepare_process, seed_rank


def run_trial(config: TrialConfig, rank: RankInfo, emit: Emit) -> dict[str, Any]:
    """Train and test one configuration on this rank.

    Args:
        config: what to train; its seed is this run's seed.
        rank: who this rank is. At world size above 1 the default process group exists.
        emit: rank 0 tells it each epoch as it ends: `{"kind": "epoch", ...}` with the fields of `EpochRecord`.

    Returns:
        `RankRecord`'s fields, this rank's own; `outcome`, `ok` or `diverged`; and under `run` what is equal on all
        ranks: device, backend, parameters, steps, and the epochs over all ranks.

    Raises:
        ConfigError, UnknownNameError, UserCodeError, DataError: the model or the data cannot be built.
        torch.OutOfMemoryError: the device's memory did not suffice.
    """
    clock = PhaseClock(device := torch.device(rank.device), rank.assigned_at)
    with clock.phase("setup_s"):
        prepare_process(config, rank)
        memory = MemoryMeter(device)
        everyone = Collective(rank, device)
        loader = make_loader(config, rank, device)
        model = find_model(config.model)(loader.shape, loader.classes).to(device)
        trained = DistributedDataParallel(model) if rank.world_size > 1 else model
        optimizer = make_optimizer(config, model.parameters())
        seed_rank(config, rank)
    steps = config.epochs * steps_of(loader.train_samples, config)
    # At most half: a short run still has steps to count.
    warmup_steps = min(config.warmup_steps, steps // 2)
    timer = StepTimer(device, warmup_steps)
    epochs: list[EpochRecord] = []
    own_epochs: list[dict[str, Any]] = []
    outcome = Outcome.OK
    try:
        for number in range(1, config.epochs + 1):
            epoch = EpochRecord(epoch=number)
            own: dict[str, Any] = {"epoch": number}
            everyone.barrier()
            sums = Sums(device)
            timer.begin_epoch()
            train_epoch(trained, optimizer, loader.train(number - 1), sums, timer)
            warmup_s, train_s, images = timer.end_epoch()
            clock.add("warmup_s", warmup_s)
            clock.add("train_s", train_s)
            epoch.warmup_s, epoch.train_s = everyone.max([warmup_s, train_s])
            _, epoch.train_loss, epoch.train_accuracy = sums.means(own, "train", everyone)
            epoch.images = int(everyone.sum([images])[0])
            epoch.images_per_s = epoch.images / epoch.train_s if epoch.images and epoch.train_s else None
            if math.isfinite(epoch.train_loss):
                before = clock.seconds["eval_s"]
                with clock.phase("eval_s"):
                    everyone.share_buffers(model)
                    sums = test_epoch(model, loader, device)
                own |= {"train_s": train_s, "warmup_s": warmup_s, "eval_s": clock.seconds["eval_s"] - before}
                epoch.eval_s = everyone.max([own["eval_s"]])[0]
                tested, epoch.test_loss, epoch.test_accuracy = sums.means(own, "test", everyone)
                assert tested == loader.test_samples, (tested, loader.test_samples)
            if not (math.isfinite(epoch.train_loss) and math.isfinite(epoch.test_loss or 0.0)):
                # All ranks have the same sums, so all stop here together.
                outcome = Outcome.DIVERGED
            epochs.append(epoch)
            own_epochs.append(own)
            if rank.rank == 0:
                emit({"kind": "epoch", **vars(epoch)})
            if outcome is Outcome.DIVERGED:
                break
    finally:
        loader.close()
    reason = f"the loss is not finite in epoch {len(epochs)}" if outcome is Outcome.DIVERGED else ""
    return {
        "outcome": outcome.value,
        "reason": reason,
        "rank": rank.rank,
        "machine": rank.machine,
        "device": rank.device,
        "pid": os.getpid(),
        **clock.seconds,
        "total_s": clock.total_s,
        **timer.percentiles(),
        **memory.read(),
        **{name: own_epochs[-1].get(name) for name in ("train_loss", "train_accuracy", "test_loss", "test_accuracy")},
        "epochs": own_epochs,
        "run": {
            "device": device_name(device),
            "backend": rank.backend or "",
            "parameters": sum(item.numel() for item in model.parameters() if item.requires_grad),
            "scaled_lr": config.scaled_lr,
            "train_samples": loader.train_samples,
            "test_samples": loader.test_samples,
            "steps": steps_of(loader.train_samples, config) * len(epochs),
            "warmup_steps": warmup_steps,
            "epochs": [vars(epoch) for epoch in epochs],
        },
    }


def train_epoch(
    model: nn.Module,
    optimizer: Optimizer,
    batches: Iterator[tuple[Pass, Batch]],
    sums: Sums,
    timer: StepTimer,
) -> None:
    """One pass over the training samples; nothing in it waits for the device."""
    model.train()
    for item, (images, labels) in batches:
        with _without_reduction(model, item):
            logits = model(images)
            loss = F.cross_entropy(logits, labels, reduction="sum")
            (loss * item.scale).backward()
        if item.count:
            sums.add(loss, logits, labels)
        timer.add_images(item.count)
        if item.ends_step:
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            timer.step()


@torch.inference_mode()
def test_epoch(model: nn.Module, loader: Loader, device: torch.device) -> Sums:
    """This rank's share of the test samples, on the bare model: shards may be uneven, so no collective may run
    inside.
    """
    model.eval()
    sums = Sums(device)
    for images, labels in loader.test():
        logits = model(images)
        sums.add(F.cross_entropy(logits, labels, reduction="sum"), logits, labels)
    return sums


class Sums:
    """Loss, hits and count of samples, summed on the device and read once an epoch."""

    def __init__(self, device: torch.device) -> None:
        self._loss = torch.zeros((), dtype=torch.float64, device=device)
        self._hits = torch.zeros((), dtype=torch.int64, device=device)
        self._count = 0

    def add(self, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        """Add a batch: its summed loss, and which of its largest logits stand at the label."""
        self._loss += loss.detach()
        self._hits += (logits.detach().argmax(1) == labels).sum()
        self._count += len(labels)

    def means(self, own: dict[str, Any], split: str, everyone: Collective) -> tuple[int, float, float]:
        """Samples, mean loss and accuracy over all ranks; this rank's own go into `own` under `<split>_loss` and
        `_accuracy`.
        """
        values = [float(self._loss), float(self._hits), float(self._count)]
        if self._count:
            own |= {f"{split}_loss": values[0] / values[2], f"{split}_accuracy": values[1] / values[2]}
        loss, hits, count = everyone.sum(values)
        return int(count), loss / count, hits / count


def _without_reduction(model: nn.Module, item: Pass) -> AbstractContextManager[None]:
    """DDP adds gradients up locally until the pass that ends the step, and reduces them there, once."""
    if isinstance(model, DistributedDataParallel) and not item.ends_step:
        return model.no_sync()
    return nullcontext()
