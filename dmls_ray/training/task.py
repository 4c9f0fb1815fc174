"""`TrainingTask`: what differs between workloads in the training loop. The engine does the rest."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

from torch import Tensor, nn

from dmls_ray.records.model import EpochRecord
from dmls_ray.training.process import Collective
from dmls_ray.training.sharding import MicroBatch

EvalSplit = Literal["test", "validation", "train"]
"""Samples that are evaluated; `train` are training samples without augmentation, once the model is trained."""

Forward = Callable[..., Any]
"""The forward pass: the model, under DDP and compiled as configured, or a converted form of it."""


@dataclass(frozen=True)
class Means:
    """Mean values of a split, by name: `loss`, `accuracy`, ..."""

    samples: int
    """Samples over all ranks."""
    local: dict[str, float]
    """Means over this rank's samples; empty without samples."""
    overall: dict[str, float]
    """Means over the samples of all ranks."""


class Meter:
    """Sums of losses and samples of a split, read once at the end of an epoch; a subclass may have further values.

    Args:
        loss: the summed loss of outputs and a batch, whose last part are its labels.
    """

    def __init__(self, loss: Callable[[Any, Any], Tensor]) -> None:
        self._loss_of = loss
        self._loss_sum, self._samples = 0.0, 0

    def add_training(self, loss: Tensor, outputs: Any, batch: Any) -> None:
        """Add a micro-batch with its summed loss."""
        self._loss_sum += loss.item()
        self._samples += len(batch[-1])

    def add_evaluation(self, outputs: Any, batch: Any) -> None:
        """Add a batch of an evaluation."""
        self.add_training(self._loss_of(outputs, batch), outputs, batch)

    def means(self, collective: Collective) -> Means:
        """The means so far; all ranks call it together."""
        loss, samples = collective.sum([self._loss_sum, self._samples])
        local = {"loss": self._loss_sum / self._samples} if self._samples else {}
        return Means(int(samples), local, {"loss": loss / samples})


class TrainingTask(ABC):
    """The model, data, loss and evaluation of one run on one rank."""

    model: nn.Module
    """The model to train, on the device of the rank."""
    train_samples: int
    validation_samples: int
    test_samples: int
    train_eval_samples: int = 0
    """Size of the split `train`: as many as there are test samples, or all training samples; 0 if the task has none."""
    stops_at_target: bool = False
    """Whether training ends after the epoch that reaches the target."""
    target_tests: int = 1
    """Tests of an epoch that look for the target; all but the last lie within the epoch."""
    data_bytes: int = 0
    """Size of the data set that lies on the device for the whole run."""

    @abstractmethod
    def train_batches(self, epoch: int) -> Iterator[tuple[MicroBatch, Any]]:
        """This rank's micro-batches of an epoch (from 0), each with its data on the device."""

    @abstractmethod
    def evaluation_batches(self, split: EvalSplit) -> Iterator[Any]:
        """This rank's share of a split, in batches on the device."""

    @abstractmethod
    def example_batch(self, samples: int) -> Any:
        """A batch on the device that is the same in each run, for the compiler and for the memory of a step."""

    @abstractmethod
    def predict(self, forward: Forward, batch: Any) -> Any:
        """Outputs of the model for a batch; called under autocast."""

    @abstractmethod
    def loss(self, outputs: Any, batch: Any) -> Tensor:
        """The loss to train on, summed over the samples of a batch; called under autocast."""

    def meter(self, together: int) -> Meter:
        """A new meter, which may keep the outputs of this number of batches before it sums them; by default, of the
        loss alone.
        """
        return Meter(self.loss)

    def evaluation_forward(self, forward: Forward) -> Forward:
        """The forward pass to evaluate after an epoch; by default, that of the trained model."""
        return forward

    def reached_target(self, epoch: EpochRecord) -> bool:
        """Whether this epoch reaches the configured target."""
        return False

    def without_effect(self) -> list[str]:
        """The settings of this task that have no effect on this model: each as `name=value`, and how that is seen."""
        return []

    def finish(self, evaluate: Callable[[Forward], Means]) -> dict[str, Any]:
        """Work after the last epoch; returns further metrics of the run.

        Args:
            evaluate: evaluates a forward pass on the test samples of all ranks; all ranks call it together.
        """
        return {}

    def plain_model(self) -> nn.Module:
        """The trained model with the parameters that it was built with: what weights are saved of."""
        return self.model

    def describe_weights(self, metrics: dict[str, float]) -> dict[str, Any]:
        """What opens the saved weights in plain PyTorch, and what they reach: the content of weights.json.

        Args:
            metrics: losses and accuracies of the epoch that the weights are of; finite ones.
        """
        return {"metrics": metrics}

    def state(self) -> dict[str, Any]:
        """Further state of this rank for a checkpoint."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state`."""
        return

    def close(self) -> None:
        """Release worker processes and files."""
        return
