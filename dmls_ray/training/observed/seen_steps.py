"""`SeenStep`: what was seen of an optimizer step, and what follows from some of them without a doubt.

All functions are pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from dmls_ray.training.observed.contents import Shape
from dmls_ray.training.observed.given import Given
from dmls_ray.training.observed.loaders import Batch

MOST = 0.9
"""Share of the steps, or of the backward passes, that show what a program does in each."""


@dataclass(slots=True)
class SeenStep:
    """What was seen of an optimizer step."""

    batches: list[Batch] = field(default_factory=list)
    """Batches that loaders gave, without those of tests."""
    passes: list[Given | None] = field(default_factory=list)
    """What models were given, for each backward pass; None where no model was seen."""
    unused: Sequence[Given] = ()
    """What models were given in forward passes that no backward pass was of."""
    dropped: Sequence[Given | None] = ()
    """As `passes`, of backward passes whose gradients no optimizer has applied."""
    of_test: int = 0
    """How many of these were in evaluation mode, as in a test."""
    optimizers: int = 1
    """Optimizers that made steps."""
    is_of_several: bool = False
    """Whether it is of several steps of an optimizer that leads from then on."""
    counted_samples: float = 0.0
    """Samples that the code counted itself."""
    counted_tokens: float = 0.0


@dataclass(frozen=True, kw_only=True)
class SeenSamples:
    """Samples of some steps."""

    total: float | None = None
    """Of all steps together; None where it is not known."""
    counted_by: str = ""
    """How it is known; empty where it is not."""
    unknown: str = ""
    """Why it is not known."""


def trained(steps: Sequence[SeenStep]) -> list[SeenStep]:
    """The steps without what they were not trained on, and without the batches of it.

    A program that drops gradients in most steps, of as many backward passes each time, keeps them elsewhere, as one
    that clips those of each sample: all of its passes train. Where their number changes, it is not known what it
    trains: they stay in `dropped`.
    """
    with_dropped = [step for step in steps if step.dropped]
    if len(with_dropped) * 2 > len(steps):
        counts = Counter(len(step.passes) + len(step.dropped) for step in steps)
        if max(counts.values()) < MOST * len(steps):
            return [*steps]
        steps = [replace(step, passes=[*step.dropped, *step.passes], dropped=()) for step in steps]
    return [_without_unused(step) for step in steps]


def _without_unused(step: SeenStep) -> SeenStep:
    unused = [*step.unused, *step.dropped]
    if not unused:
        return step
    batches = [*step.batches]
    for given in unused:
        if len(batches) <= len(step.passes):
            break  # it was of a batch that is trained, or that was read in another step
        shapes = set(given.first.shapes if given is not None else ())
        of_it = (place for place, batch in enumerate(batches) if not shapes.isdisjoint(batch.shapes))
        del batches[next(of_it, 0)]
    return replace(step, batches=batches, unused=(), dropped=())


def have_other_data_now_and_then(steps: Sequence[SeenStep]) -> bool:
    """Whether another optimizer trains on other data in some of the steps, as a probe of a model's features does."""
    shared = [step for step in steps if step.optimizers > 1]
    if len(shared) >= MOST * len(steps):
        return False
    usual = {batch.dataset for step in steps if step.optimizers == 1 for batch in step.batches}
    return any(batch.dataset not in usual for step in shared for batch in step.batches)


def tokens_of(steps: Sequence[SeenStep]) -> float:
    """The tokens of some steps; 0 where none were seen."""
    counted = sum(step.counted_tokens for step in steps)
    if counted:
        return counted
    sizes = {batch.size for step in steps for batch in step.batches}
    seen = [given for given in new_passes(steps) if given is not None]
    # Integers without a dimension for samples are others, as the edges of graphs.
    return sum(given.tokens for given in seen if not sizes or not sizes.isdisjoint((given.first.shapes or [()])[0][:2]))


def elements_by_form(steps: Sequence[SeenStep]) -> Counter[tuple[Shape, ...]]:
    """The elements of the tensors that models were given, by the shapes of the samples in them."""
    elements: Counter[tuple[Shape, ...]] = Counter()
    for given in new_passes(steps):
        for input_ in given.inputs if given is not None else ():
            elements[tuple([shape[1:] for shape in input_.shapes])] += input_.elements
    return elements


def loaded_in(steps: Sequence[SeenStep]) -> float:
    """The samples that loaders gave in some steps."""
    return sum(batch.size for step in steps for batch in step.batches)


def new_passes(steps: Iterable[SeenStep]) -> list[Given | None]:
    """The backward passes of some steps, without those of what a step was given before."""
    return [given for step in steps for given in step.passes if given is None or not given.is_again]
