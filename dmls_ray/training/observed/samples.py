"""How many samples the optimizer steps of a rank trained, by what its loaders gave and what its models were given.

The loader says how many samples a batch has; the model says how often a batch, or which part of it, was trained. Where
both contradict each other, the samples are not known, and the reason is said. All functions are pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from dmls_ray.training.observed.given import Given
from dmls_ray.training.observed.samples_by_loader import Read
from dmls_ray.training.observed.seen_steps import MOST, SeenSamples, SeenStep, new_passes


def samples_of(steps: Sequence[SeenStep], first: int, *, is_sequence_first: bool = False) -> SeenSamples:
    """The samples of the steps from the `first` on.

    Args:
        steps: all steps of a run, as `trained` gives them.
        first: the index of the first step to count.
        is_sequence_first: whether a model has a part that takes sequences as length x batch.
    """
    window = steps[first:]
    if any(step.counted_samples for step in window):
        return SeenSamples(total=sum(step.counted_samples for step in window), counted_by="user")
    if any(step.counted_tokens for step in window):
        return SeenSamples(counted_by="user")
    if any(step.dropped for step in steps):
        return SeenSamples(unknown="gradients of most steps were dropped before an optimizer applied them")
    if any(batch.size for step in steps for batch in step.batches):
        return Read(steps, first).samples()
    if any(given is not None and given.has_rows_twice for step in steps for given in step.passes):
        return SeenSamples(unknown="no loader, and a model that is given each row twice")
    return _by_model(window, is_sequence_first=is_sequence_first)


def _by_model(window: Sequence[SeenStep], *, is_sequence_first: bool) -> SeenSamples:
    """By the first dimension of what a model is given first in each backward pass."""
    passes = new_passes(window)
    seen = [given for given in passes if given is not None]
    if not seen or len(seen) < MOST * len(passes):
        return SeenSamples(unknown="no loader gave a batch, and no model was seen that was given one")
    if reason := _ambiguity(window, seen, is_sequence_first=is_sequence_first):
        return SeenSamples(unknown=reason)
    return SeenSamples(total=sum(given.size for given in seen), counted_by="model")


def _ambiguity(window: Sequence[SeenStep], seen: Sequence[Given], *, is_sequence_first: bool) -> str:
    """Why the first dimension of a tensor may be no number of samples; empty if nothing says so."""
    if any(given.tokens for given in seen):
        return "no loader, and a model of tokens, which may be batch x length or length x batch"
    if is_sequence_first and any(len(shape) > 1 for given in seen for shape in given.first.shapes[:1]):
        return "no loader, and a model of sequences that may be length x batch"
    if any(given.first.is_list or not given.size for given in seen):
        return "no loader, and the input of the model is not a single tensor"
    if any(shape and shape[0] != given.size for given in seen for shape in given.first.shapes):
        return "no loader, and tensors of several lengths"
    if others := [given for given in seen if given.first.rows not in (0, given.size)]:
        return f"no loader, and a model that returns {others[0].first.rows} rows for {others[0].size}"
    if any(len(given.sizes) > 1 for given in seen):
        return "no loader, and several tensors in the forward passes of a backward pass"
    if any(len(new_passes([step])) > 1 for step in window):
        return "no loader, and several backward passes a step, of one batch or of several"
    return ""
