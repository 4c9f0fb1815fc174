"""Training of an image classifier on one rank: cross entropy, accuracy, and int8 inference after the last epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dmls_ray.records.model import EpochRecord
from dmls_ray.records.run_events import RankResult
from dmls_ray.training.engine import RankTrainer
from dmls_ray.training.precision import has_vnni
from dmls_ray.training.process import Collective
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.training.run_training import run_training
from dmls_ray.training.sharding import MicroBatch
from dmls_ray.training.task import EvalSplit, Forward, Means, Meter, TrainingTask
from dmls_ray.util.errors import UserCodeError
from dmls_ray.workloads.base import check_data
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.data.loaders import (
    MEMORY_FORMATS,
    Batch,
    make_loader,
    normalize,
    to_memory_format,
)
from dmls_ray.workloads.classification.model_builder import build_model, building_code, dropout_rates
from dmls_ray.workloads.classification.quantization import QuantizedModel, check_available, measure_inference
from dmls_ray.workloads.classification.workload import ClassificationWorkload


def train_rank(config: TrialConfig, rank: RankInfo, emit: Emit) -> RankResult:
    """Train and evaluate one configuration on this rank: the workload's entry point, see `run_training`."""
    check_data(ClassificationWorkload(), config, rank)
    return run_training(config, rank, emit, ClassificationTask)


def rank_trainer(config: TrialConfig, rank: RankInfo) -> RankTrainer[ClassificationTask]:
    """One rank of one run, set up and ready to train."""
    return RankTrainer(config, rank, ClassificationTask)


class ClassificationTask(TrainingTask):
    """Model, images, loss and evaluation of one run on one rank."""

    def __init__(self, config: TrialConfig, rank: RankInfo, device: torch.device) -> None:
        check_available(config)
        self.config, self.rank, self.device = config, rank, device
        self.loader = make_loader(config, rank, device)
        model = build_model(config, self.loader.shape, self.loader.classes).to(device)
        model.to(memory_format=MEMORY_FORMATS[config.memory_format])
        self._dropout = max(dropout_rates(model), default=None)
        self._vnni = None
        if config.quantization != "off":
            # All ranks have the same int8 model.
            (lacks,) = Collective(rank, device).max([has_vnni() is False])
            self._vnni = False if lacks else has_vnni()
        self.quantized = QuantizedModel(config, model, self.loader.shape, reduce_range=self._vnni is False)
        self.model = self.quantized.trained
        self.train_samples = self.loader.train_samples
        self.validation_samples = self.loader.validation_samples
        self.test_samples = self.loader.test_samples
        self.train_eval_samples = self.loader.train_eval_samples
        self.data_bytes = self.loader.data_bytes
        self._fp32_accuracy: float | None = None
        self.stops_at_target, self.target_tests = config.stop_at_target, config.target_tests

    def without_effect(self) -> list[str]:
        memory_format = self.config.memory_format
        weights = [weight for weight in self.model.parameters() if weight.ndim == 4 and not weight.is_contiguous()]
        if memory_format == "contiguous" or weights:
            return []
        return [f"memory_format={memory_format} (no weight has its strides)"]

    def train_batches(self, epoch: int) -> Iterator[tuple[MicroBatch, Batch]]:
        return self.loader.train(epoch)

    def evaluation_batches(self, split: EvalSplit) -> Iterator[Batch]:
        return self.loader.evaluation(split)

    def example_batch(self, samples: int) -> Batch:
        # Not zeros: what a model computes, and keeps, may depend on its images.
        generator = torch.Generator(self.device).manual_seed(0)
        images = torch.empty(samples, *self.loader.shape, device=self.device).uniform_(-1, 1, generator=generator)
        return to_memory_format(images, self.config), torch.zeros(samples, dtype=torch.int64, device=self.device)

    def predict(self, forward: Forward, batch: Batch) -> Tensor:
        logits: Tensor = forward(batch[0])
        samples, classes = len(batch[1]), self.loader.classes
        shape: tuple[int, ...] = tuple(getattr(logits, "shape", ()))
        if len(shape) != 2 or shape[0] != samples or shape[1] < classes:
            raise UserCodeError(
                f"model={self.config.model} returned a {type(logits).__name__} of shape {shape} for {samples} images "
                f"of {classes} classes; return the logits, a tensor of shape {(samples, classes)} here."
            )
        return logits

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return F.cross_entropy(outputs, batch[1], reduction="sum", label_smoothing=self.config.label_smoothing)

    def meter(self, together: int) -> LossAccuracyMeter:
        return LossAccuracyMeter(self.device, together, smoothed=self.config.label_smoothing > 0)

    def evaluation_forward(self, forward: Forward) -> Forward:
        return self.quantized.forward() if self.config.quantization == "qat" else forward

    def reached_target(self, epoch: EpochRecord) -> bool:
        target, accuracy = self.config.target_accuracy, epoch.metrics.get("test_accuracy")
        return target is not None and accuracy is not None and accuracy >= target

    def finish(self, evaluate: Callable[[Forward], Means]) -> dict[str, Any]:
        """Facts of data and model, accuracies of the fp32 and the int8 model, and latency of inference."""
        metrics: dict[str, Any] = {"test_classes": self.loader.classes, "model_dropout": self._dropout}
        if self.config.quantization != "off":
            self._fp32_accuracy = evaluate(self.quantized.fp32()).overall["accuracy"]
            metrics["fp32_test_accuracy"] = self._fp32_accuracy
            metrics["int8_test_accuracy"] = evaluate(self.quantized.forward()).overall["accuracy"]
            metrics["quantize_s"] = self.quantized.seconds
            metrics["vnni"] = self._vnni
        if self.config.inference_batch is not None and self.rank.rank == 0:
            pixels = torch.randint(256, (self.config.inference_batch, *self.loader.shape), dtype=torch.uint8)
            images = to_memory_format(normalize(pixels.to(self.device)), self.config)
            metrics |= measure_inference(self.quantized.fp32(), self.quantized.converted, images)
        return metrics

    def plain_model(self) -> nn.Module:
        return self.quantized.fp32() if self.config.quantization == "qat" else self.model

    def describe_weights(self, metrics: dict[str, float]) -> dict[str, Any]:
        """The content of weights.json. `python` is a list of lines that run in the folder of the file."""
        if self.config.quantization == "qat":
            # Its tests are of int8, and the weights are of fp32.
            metrics = {} if self._fp32_accuracy is None else {"test_accuracy": self._fp32_accuracy}
        shape, classes = self.loader.shape, self.loader.class_names
        sides = " x ".join(map(str, shape))
        return {
            "config": self.config.canonical(),
            "shape": list(shape),
            "input": "uint8 from 0 to 255 as pixels / 127.5 - 1, that is mean 0.5 and std 0.5; float32 as it is",
            "classes": classes,
            "metrics": metrics,
            "python": [
                "import json, pathlib, torch",
                'about = json.loads(pathlib.Path("weights.json").read_text())',
                *building_code(self.config, shape, len(classes)),
                'model.load_state_dict(torch.load("weights.pt", map_location="cpu", weights_only=True))',
                "model.eval()",
                "@torch.no_grad()",
                f"def predict(pixels):  # batch x {sides}; gives indices of about['classes']",
                "    images = pixels if pixels.is_floating_point() else pixels / 127.5 - 1",
                "    return model(images).argmax(1)",
            ],
        }

    def state(self) -> dict[str, Any]:
        return {"quantize_s": self.quantized.seconds}

    def restore(self, state: dict[str, Any]) -> None:
        self.quantized.seconds = state["quantize_s"]

    def close(self) -> None:
        self.loader.close()


class LossAccuracyMeter(Meter):
    """Sums of loss, correct predictions and samples, read once at the end of an epoch.

    Args:
        device: where the sums are.
        together: batches that are summed at once.
        smoothed: the training loss has label smoothing. The meter reports it without, so that it compares with the
            test loss.
    """

    def __init__(self, device: torch.device, together: int, smoothed: bool) -> None:
        super().__init__(lambda outputs, batch: F.cross_entropy(outputs.float(), batch[1], reduction="sum"))
        self._together, self._smoothed = together, smoothed
        self._is_of_training = False
        self._loss = torch.zeros((), dtype=torch.float64, device=device)
        self._correct = torch.zeros((), dtype=torch.int64, device=device)
        self._waiting: list[tuple[Tensor, Tensor, Tensor]] = []

    def add_training(self, loss: Tensor, outputs: Tensor, batch: Batch) -> None:
        self._is_of_training = True
        self._add(loss, outputs, batch[1])

    def add_evaluation(self, outputs: Tensor, batch: Batch) -> None:
        self._add(self._loss_of(outputs, batch), outputs, batch[1])

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
        outputs, classes = torch.cat(logits), torch.cat(labels)
        if self._smoothed and self._is_of_training:
            # Once for many batches, since this work belongs to no training step.
            loss = F.cross_entropy(outputs.float(), classes, reduction="none").double().sum()
        else:
            loss = torch.stack(losses).double().sum()
        # Not in place: tensors made in inference mode must not be changed outside of it.
        self._loss = self._loss + loss
        self._correct = self._correct + (outputs.argmax(1) == classes).sum()
        self._waiting.clear()
