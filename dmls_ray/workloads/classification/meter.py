"""Loss and accuracy of a split, summed on the device."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from dmls_ray.training.process import Collective
from dmls_ray.training.task import Means
from dmls_ray.workloads.classification.data.batches import Batch


class LossAccuracyMeter:
    """Sums of loss, correct predictions and samples, read once at the end of an epoch.

    Args:
        device: where the sums are.
        together: batches that are summed at once.
        smoothed: the training loss has label smoothing. The meter reports it without, so that it compares with the
            test loss.
    """

    def __init__(self, device: torch.device, together: int, smoothed: bool) -> None:
        self._together, self._smoothed = together, smoothed
        self._loss = torch.zeros((), dtype=torch.float64, device=device)
        self._correct = torch.zeros((), dtype=torch.int64, device=device)
        self._samples = 0
        self._waiting: list[tuple[Tensor, Tensor, Tensor]] = []

    def add_training(self, loss: Tensor, outputs: Tensor, batch: Batch) -> None:
        if self._smoothed:
            loss = F.cross_entropy(outputs.detach().float(), batch[1], reduction="sum")
        self._add(loss, outputs, batch[1])

    def add_evaluation(self, outputs: Tensor, batch: Batch) -> None:
        self._add(F.cross_entropy(outputs.float(), batch[1], reduction="sum"), outputs, batch[1])

    def means(self, collective: Collective) -> Means:
        self._sum_up()
        sums = [float(self._loss), float(self._correct), float(self._samples)]
        local = {"loss": sums[0] / sums[2], "accuracy": sums[1] / sums[2]} if self._samples else {}
        loss, correct, samples = collective.sum(sums)
        return Means(int(samples), local, {"loss": loss / samples, "accuracy": correct / samples})

    def _add(self, loss: Tensor, logits: Tensor, labels: Tensor) -> None:
        self._waiting.append((loss.detach(), logits.detach(), labels))
        self._samples += len(labels)
        if len(self._waiting) == self._together:
            self._sum_up()

    def _sum_up(self) -> None:
        if not self._waiting:
            return
        losses, logits, labels = zip(*self._waiting, strict=True)
        # Not in place: tensors made in inference mode must not be changed outside of it.
        self._loss = self._loss + torch.stack(losses).double().sum()
        self._correct = self._correct + (torch.cat(logits).argmax(1) == torch.cat(labels)).sum()
        self._waiting.clear()
