"""Evaluation of a model on one rank: the test of an epoch, validation, and training samples in the way of the test."""

from __future__ import annotations

from typing import Any

import torch

from dmls_ray.config.training import TrainingConfig
from dmls_ray.records.run_events import Progress
from dmls_ray.training.ddp import DDPModel
from dmls_ray.training.precision import autocast
from dmls_ray.training.process import Collective
from dmls_ray.training.rank import Emit
from dmls_ray.training.task import EvalSplit, Forward, Meter, TrainingTask

_SUMMED_TOGETHER = 32
"""Batches whose losses and outputs are summed at once, since a call per batch would cost more than its work."""


class Evaluator:
    """Evaluates this rank's share of a split; all ranks call its methods together.

    Args:
        config: has the precision, which applies to the evaluation, too.
        device: of this rank.
        task: gives the samples.
        ddp_model: the model.
        collective: of the ranks.
    """

    def __init__(
        self,
        config: TrainingConfig,
        device: torch.device,
        task: TrainingTask,
        ddp_model: DDPModel,
        collective: Collective,
    ) -> None:
        self._config = config
        self._device = device
        self._task = task
        self._ddp_model = ddp_model
        self._collective = collective
        self._tested: Forward | None = None  # the forward pass that was tested after the last epoch
        self.emit: Emit = lambda event: None
        """Takes `Progress` after each pass."""

    def meter(self) -> Meter:
        """A new meter of training or evaluation."""
        # max-autotune replays CUDA graphs, and each replay overwrites the outputs of the previous one.
        overwrites = self._device.type == "cuda" and self._config.compile == "max-autotune"
        return self._task.meter(together=1 if overwrites else _SUMMED_TOGETHER)

    def prepare(self) -> None:
        """Make the model ready for `test`: equal buffers on all ranks, eval mode, conversion if the task has one.

        Call it outside of all clocks: an exported model is rewritten, which takes as long as hundreds of steps.
        """
        self._collective.broadcast_buffers(self._task.model)
        self._tested = self._task.evaluation_forward(self._ddp_model.bare)
        self._task.model.eval()

    def test(self) -> dict[EvalSplit, Meter]:
        """Evaluate after `prepare`: on the test samples, and on those for validation if there are any."""
        forward = self._tested
        assert forward is not None
        meters: dict[EvalSplit, Meter] = {"test": self.evaluate("test", forward)}
        if self._task.validation_samples:
            meters["validation"] = self.evaluate("validation", forward)
        return meters

    @torch.inference_mode()
    def evaluate(self, split: EvalSplit, forward: Forward) -> Meter:
        """Evaluate this rank's share of a split.

        `forward` must not contain DDP: the shares differ in size, so a collective would deadlock.
        """
        self._task.model.eval()
        meter = self.meter()
        for batch in self._task.evaluation_batches(split):
            with autocast(self._config, self._device):
                outputs = self._task.predict(forward, batch)
            meter.add_evaluation(outputs, batch)
            self.emit(Progress())
        return meter

    def on_training_samples(self) -> dict[str, Any]:
        """The trained model on training samples, in the way of the test: the metrics of an epoch are means over its
        steps, with dropout and augmentation, while the weights change.
        """
        forward = self._tested
        if forward is None or self._config.early_stopping != "off":
            # The weights are not those that were tested last.
            forward = self._task.evaluation_forward(self._ddp_model.bare)
        means = self.evaluate("train", forward).means(self._collective)
        assert means.samples == self._task.train_eval_samples, means.samples
        values = {f"train_eval_{name}": value for name, value in means.overall.items()}
        return {**values, "train_eval_samples": means.samples}
