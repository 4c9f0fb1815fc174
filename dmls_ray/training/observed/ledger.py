"""`Ledger`: what was seen of the steps of a training, and what follows from it."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch

from dmls_ray.training.clocks import StepTimer
from dmls_ray.training.compat import compile_counters
from dmls_ray.training.ddp import DDPTimers, with_exposed
from dmls_ray.training.observed.collectives import Collectives
from dmls_ray.training.observed.contents import digest_of
from dmls_ray.training.observed.evaluations import Evaluation, doubtful_ms
from dmls_ray.training.observed.leader import StepRule
from dmls_ray.training.observed.losses import StepLosses
from dmls_ray.training.observed.model_inputs import ModelInputs
from dmls_ray.training.observed.samples import samples_of
from dmls_ray.training.observed.seen_steps import (
    Samples,
    SeenStep,
    elements_of,
    have_other_data_now_and_then,
    loaded_in,
    tokens_of,
    trained,
)
from dmls_ray.training.observed.without_effect import precision_in_vain

_WITHOUT_BACKWARD = ("data_wait_ms", "optimizer_ms", "rest_ms")
"""Parts of a step that are known without a backward pass."""
_PART = 0.9
"""Share of what was read below which a rank trains a part of it."""
_DOUBTFUL = 0.05
"""Share of the time up to which rates are the same, whether it was a test or not."""
_TAKES_TURNS = "several optimizers make ten or more steps in turn, so it is not clear what a step is"
"""Why neither samples nor times of a step are known."""
_DIGESTS = 4
"""First batches that ranks are compared by."""


class Ledger:
    """What the observer writes down, and the metrics and facts of a run that follow from it.

    Args:
        device: the rank's device.
        timer: of the steps.
        inputs: of the models.
        collectives: what the rank waits for of them.
        are_tests_sure: whether the user says what times are that look like tests.
    """

    def __init__(
        self,
        device: torch.device,
        timer: StepTimer,
        inputs: ModelInputs,
        collectives: Collectives,
        *,
        are_tests_sure: bool = False,
    ) -> None:
        self._device, self._timer, self._inputs, self._collectives = device, timer, inputs, collectives
        self._are_tests_sure = are_tests_sure
        self.evaluations: list[Evaluation] = []
        self.steps: list[SeenStep] = []
        self.losses = StepLosses()
        self.rule = StepRule()
        self.ddp: list[DDPTimers] = []
        self.backward_passes = 0
        self.pins_in_vain = False
        """Whether a loader was to copy its batches to pinned memory, and does not."""
        self.early_s: list[float] = []
        """Seconds of the steps of the warm-up, by the host's clock."""
        self.fault = ""
        """What failed in looking at the program; empty if nothing did."""
        self._digests: dict[str, list[int]] = {"loader": [], "model": []}
        """Of the first batches that loaders gave, and that models were given."""

    def take_digest(self, source: str, leaves: list[Any]) -> None:
        """Note which samples the first batches of a `loader` or a `model` have."""
        if len(self._digests[source]) < _DIGESTS:
            self._digests[source].append(digest_of(leaves))

    @functools.cached_property
    def _first_counted(self) -> int:
        """The index of the first step that counts; of a run that ended within its warm-up, of the later half."""
        counted = len(self._timer.step_ms) or (len(self.early_s) + 1) // 2
        return len(self.steps) - counted

    @functools.cached_property
    def _counted_s(self) -> float:
        """Seconds of the steps that count; infinite where they are not known."""
        if self._timer.step_ms:
            return math.fsum(self._timer.step_ms) / 1e3
        # On a GPU the host only issues the steps.
        if self._device.type == "cuda" or not self.early_s:
            return math.inf
        return math.fsum(self.early_s[self._first_counted - len(self.steps) :])

    @property
    def _timed_ms(self) -> float:
        """Milliseconds from the warm-up to the end of the last step."""
        return math.fsum(self._timer.step_ms) + self._timer.left_out_ms

    @functools.cached_property
    def _doubtful_share(self) -> float:
        """The share of the time that may be tests, and may be a part of the training; 0 where it is small."""
        if self._are_tests_sure or not self._timed_ms:
            return 0.0
        share = doubtful_ms(self.evaluations, self._trained) / self._timed_ms
        return share if share > _DOUBTFUL else 0.0

    @functools.cached_property
    def _time_unknown(self) -> str:
        """Why it is not known what a step takes: a reason, or the share of the time that may be tests; else empty."""
        if self.rule.takes_turns or any(step.is_of_several for step in self.steps[self._first_counted :]):
            return _TAKES_TURNS
        return f"{self._doubtful_share:.0%}" if self._doubtful_share else ""

    @functools.cached_property
    def _trained(self) -> list[SeenStep]:
        return trained(self.steps)

    @functools.cached_property
    def samples(self) -> Samples:
        """The samples of the steps that count."""
        if not self.steps:
            return Samples()
        if self._time_unknown == _TAKES_TURNS:
            return Samples(unknown=_TAKES_TURNS)
        if have_other_data_now_and_then(self.steps[self._first_counted :]):
            return Samples(unknown="another optimizer trains on other data in some of the steps")
        return samples_of(self._trained, self._first_counted, is_sequence_first=self._inputs.has_sequences_first)

    def rates(self) -> dict[str, float | None]:
        """Samples, tokens and backward passes of a step of this rank, its rates, and the loss of its first steps."""
        window = self._trained[self._first_counted :]
        steps, seconds = len(window) or 1, math.inf if self._time_unknown else self._counted_s
        samples, tokens = self.samples.total or 0.0, tokens_of(window)
        return {
            "samples_per_step": samples / steps or None,
            "tokens_per_step": tokens / steps or None,
            "samples_per_s": samples / seconds or None,
            "tokens_per_s": tokens / seconds or None,
            "loaded_per_step": loaded_in(window) / steps,
            "given_elements": elements_of(window) / steps or None,
            "step_ms_mean": seconds * 1e3 / steps if math.isfinite(seconds) else None,
            "counted_share": 1 - self._timer.left_out_ms / self._timed_ms if self._timer.step_ms else None,
            "backward_passes": self._backward_passes or None,
            "unseen_collectives": self._collectives.unseen or None,
            "optimizers": max([step.optimizers for step in self.steps], default=0) or None,
            "early_loss": self.losses.early,
        }

    @property
    def _backward_passes(self) -> float:
        """Those of a step that counts: the first step may have fewer, as that of a leader with one of three passes."""
        window = self.steps[self._first_counted :]
        if not self.backward_passes or not window:
            return 0.0
        return sum(len(step.passes) + len(step.dropped) - step.of_test for step in window) / len(window)

    def digests(self) -> list[int]:
        """Of the first batches of this rank; those that ranks share are equal on all of them.

        Ranks that read the same batch may train a part of it each.
        """
        of_loader, of_model = self._digests["loader"], self._digests["model"]
        window = self._trained[self._first_counted :]
        trains_part = self.samples.total is not None and self.samples.total < _PART * loaded_in(window)
        return of_model if trains_part else of_loader or of_model

    def facts(self) -> dict[str, Any]:
        """What else was seen, by name; without what was not."""
        losses = self.losses.values
        facts = {
            "counted_by": self.samples.counted_by or ("tokens of the model" if tokens_of(self._trained) else ""),
            "samples_unknown": self.samples.unknown,
            "time_unknown": self._time_unknown,
            "number_format": self._inputs.number_format,
            "first_loss": losses[0] if losses else None,
            "steps_made": len(self.steps),
            "counted_steps": len(self._timer.step_ms),
            "without_effect": self._without_effect(),
            "parameters": self._inputs.parameters or None,
            "buffer_elements": self._inputs.buffers if self._inputs.parameters else None,
            "observer_fault": self.fault,
        }
        return {name: value for name, value in facts.items() if value not in ("", None)}

    def _without_effect(self) -> str:
        """What was asked for, and changed nothing."""
        found = []
        if self._inputs.has_compiled and not compile_counters()["stats"]["unique_graphs"]:
            found.append("torch.compile (no graph was compiled)")
        if self.pins_in_vain:
            found.append("pin_memory (no GPU is there)")
        if precision := precision_in_vain(self._device):
            found.append(f"float32_matmul_precision={precision} (products have the error of fp32)")
        for timers in self.ddp:
            found += timers.hooks_without_effect(self.backward_passes)
        return "; ".join(dict.fromkeys(found))

    @property
    def has_step_times(self) -> bool:
        """Whether it is known what a step takes."""
        return not self._time_unknown

    def parts_ms(self) -> dict[str, float]:
        """Milliseconds of the parts of a counted step, with communication under DDP; none where they are in doubt.

        Without a backward pass that was seen, what precedes the optimizer is in `rest_ms` alone.
        """
        if self._time_unknown:
            return {}
        communication = self._ddp_ms()
        parts = self._timer.phases.parts_ms(communication.get("exposed_comm_ms", 0.0))
        if not parts:
            return {}
        if waits := self._collectives.mean_ms():
            communication |= waits
            communication["exposed_comm_ms"] = communication.get("exposed_comm_ms", 0.0) + sum(waits.values())
            for phase, ms in self._collectives.mean_ms_of_phases().items():
                parts[f"{phase}_ms"] = max(parts[f"{phase}_ms"] - ms, 0.0)
        seen = parts if self.backward_passes else {name: parts[name] for name in parts if name in _WITHOUT_BACKWARD}
        return {**communication, **seen}

    def _ddp_ms(self) -> dict[str, float]:
        """Milliseconds of an optimizer step, over all models that were under DDP; empty without."""
        steps = len(self._timer.step_ms)
        sums = {"comm_ms": 0.0, "overlap_ms": 0.0}
        for model in self.ddp:
            for name, ms in model.pass_ms().items():
                sums[name] += ms * model.passes
        return with_exposed({name: ms / steps for name, ms in sums.items()}) if steps else {}
