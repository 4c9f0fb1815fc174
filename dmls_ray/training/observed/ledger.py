"""`Ledger`: the metrics and facts of a run that follow from what was seen of its steps."""

from __future__ import annotations

import functools
import math
from typing import Any

from dmls_ray.training.compat import compile_counters
from dmls_ray.training.observed.contents import MOST_LEAVES
from dmls_ray.training.observed.evaluations import doubtful_ms
from dmls_ray.training.observed.observer import ObservedSteps
from dmls_ray.training.observed.samples import samples_of
from dmls_ray.training.observed.seen_steps import (
    SeenSamples,
    SeenStep,
    elements_by_form,
    have_other_data_now_and_then,
    loaded_in,
    tokens_of,
    trained,
)
from dmls_ray.training.observed.without_effect import precision_in_vain

_PART = 0.9
"""Share of what was read below which a rank trains a part of it."""
_SAME_SIZE = 0.02
"""Share by which what a model is given may differ, where the operations of a step stand for those of all."""
_DOUBTFUL = 0.05
"""Share of the time up to which rates are the same, whether it was a test or not."""
_TAKES_TURNS = "several optimizers make ten or more steps in turn, so it is not clear what a step is"
"""Why neither samples nor times of a step are known."""


class Ledger:
    """What follows from the steps up to here.

    Args:
        seen: the steps.
    """

    def __init__(self, seen: ObservedSteps) -> None:
        self._seen = seen
        self._timer = seen.timer

    @functools.cached_property
    def _first_counted(self) -> int:
        """The index of the first step that counts; of a run that ended within its warm-up, of the later half."""
        half = (len(self._seen.warm_up.seconds) + 1) // 2
        # The step whose operations were counted took longer; of two steps it is the only one to count.
        after = len(self._seen.steps) - self._seen.operations.number
        return len(self._seen.steps) - (len(self._timer.step_ms) or min(half, after) or half)

    @functools.cached_property
    def _counted_s(self) -> float:
        """Seconds of the steps that count; infinite where they are not known."""
        if self._timer.step_ms:
            return math.fsum(self._timer.step_ms) / 1e3
        # On a GPU the host only issues the steps.
        if self._seen.meter.device.type == "cuda" or not self._seen.warm_up.seconds:
            return math.inf
        return math.fsum(self._seen.warm_up.seconds[self._first_counted - len(self._seen.steps) :])

    @property
    def _timed_ms(self) -> float:
        """Milliseconds from the warm-up to the end of the last step."""
        return math.fsum(self._timer.step_ms) + self._timer.left_out_ms

    @functools.cached_property
    def _doubtful_share(self) -> float:
        """The share of the time that may be tests, and may be a part of the training; 0 where it is small."""
        if self._seen.tests.meaning != "auto" or not self._timed_ms:
            return 0.0
        share = doubtful_ms(self._seen.tests.found, self._trained) / self._timed_ms
        return share if share > _DOUBTFUL else 0.0

    @functools.cached_property
    def _time_unknown(self) -> str:
        """Why it is not known what a step takes: a reason, or the share of the time that may be tests; else empty."""
        if self._seen.rule.takes_turns or any(step.is_of_several for step in self._seen.steps[self._first_counted :]):
            return _TAKES_TURNS
        return f"{self._doubtful_share:.0%}" if self._doubtful_share else ""

    @functools.cached_property
    def _trained(self) -> list[SeenStep]:
        return trained(self._seen.steps)

    @functools.cached_property
    def samples(self) -> SeenSamples:
        """The samples of the steps that count."""
        if not self._seen.steps:
            return SeenSamples()
        if self._time_unknown == _TAKES_TURNS:
            return SeenSamples(unknown=_TAKES_TURNS)
        if have_other_data_now_and_then(self._seen.steps[self._first_counted :]):
            return SeenSamples(unknown="another optimizer trains on other data in some of the steps")
        return samples_of(self._trained, self._first_counted, is_sequence_first=self._seen.models.has_sequences_first)

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
            "given_elements": elements_by_form(window).total() / steps or None,
            "step_ms_mean": seconds * 1e3 / steps if math.isfinite(seconds) else None,
            "counted_share": 1 - self._timer.left_out_ms / self._timed_ms if self._timer.step_ms else None,
            "backward_passes": self._backward_passes or None,
            "unseen_collectives": self._seen.communication.unseen or None,
            "optimizers": max([step.optimizers for step in self._seen.steps], default=0) or None,
            "early_loss": self._seen.losses.early,
        }

    @property
    def _backward_passes(self) -> float:
        """Those of a step that counts: the first step may have fewer, as that of a leader with one of three passes."""
        window = self._seen.steps[self._first_counted :]
        if not self._seen.communication.backward_passes or not window:
            return 0.0
        return sum(len(step.passes) + len(step.dropped) - step.of_test for step in window) / len(window)

    @property
    def operations_unknown(self) -> str:
        """Why the operations of a step that counts are not known; empty if they are, or if there is no step."""
        operations = self._seen.operations
        if not self._seen.steps:
            return ""
        if operations.unknown:
            return operations.unknown
        window = self._trained[self._first_counted :]
        counted, forms = elements_by_form([self._trained[operations.number - 1]]), elements_by_form(window)
        given, usual = counted.total(), forms.total() / (len(window) or 1)
        if not usual:
            return "no call of a model with tensors was seen, so it is not known whether steps differ in size"
        if max(map(len, forms)) == MOST_LEAVES:
            return f"a model is given {MOST_LEAVES} tensors or more, and the shapes of the first {MOST_LEAVES} are seen"
        if abs(given - usual) > _SAME_SIZE * usual:
            seen = f"{given:,.0f} elements of input where operations were counted, else {usual:,.0f}"
            return f"steps differ in size: {seen}"
        if sum(forms[form] for form in counted) < (1 - _SAME_SIZE) * forms.total():
            return "inputs differ in shape from those where operations were counted"
        return ""

    def digests(self) -> list[int]:
        """Of the first batches of this rank; those that ranks share are equal on all of them.

        Ranks that read the same batch may train a part of it each.
        """
        if self._seen.first_batches is None:
            return []
        window = self._trained[self._first_counted :]
        trains_part = self.samples.total is not None and self.samples.total < _PART * loaded_in(window)
        return self._seen.first_batches.digests(trains_part=trains_part)

    def facts(self) -> dict[str, Any]:
        """What else was seen, by name; without what was not."""
        losses = self._seen.losses.of_steps
        facts = {
            "counted_by": self.samples.counted_by or ("tokens of the model" if tokens_of(self._trained) else ""),
            "samples_unknown": self.samples.unknown,
            "time_unknown": self._time_unknown,
            "number_format": self._seen.number_format.name,
            "first_loss": losses[0] if losses else None,
            "steps_made": len(self._seen.steps),
            "counted_steps": len(self._timer.step_ms),
            "without_effect": self._without_effect(),
            "parameters": self._seen.models.parameters or None,
            "buffer_elements": self._seen.models.buffers if self._seen.models.parameters else None,
            "no_mfu": self.operations_unknown,
            "observer_fault": self._seen.faults.first,
        }
        return {name: value for name, value in facts.items() if value not in ("", None)}

    def _without_effect(self) -> str:
        """What was asked for, and changed nothing."""
        found = []
        if self._seen.models.has_compiled and not compile_counters()["stats"]["unique_graphs"]:
            found.append("torch.compile (no graph was compiled)")
        if self._seen.pins_in_vain:
            found.append("pin_memory (no GPU is there)")
        if self._seen.orders.is_repeated:
            found.append("shuffle of a DistributedSampler (without another set_epoch, passes read in one order)")
        if precision := precision_in_vain(self._seen.meter.device):
            found.append(f"float32_matmul_precision={precision} (products have the error of fp32)")
        found += self._seen.communication.hooks_without_effect()
        return "; ".join(dict.fromkeys(found))

    @property
    def has_step_times(self) -> bool:
        """Whether it is known what a step takes."""
        return not self._time_unknown

    def parts_ms(self) -> dict[str, float]:
        """Milliseconds of the parts of a counted step, with its communication; none where they are in doubt."""
        return {} if self._time_unknown else self._seen.communication.parts_ms()
