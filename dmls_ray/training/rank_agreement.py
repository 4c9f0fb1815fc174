"""What shows whether the ranks of a run trained one model: sketches of each rank's parameters, and its collectives.

Ranks that know nothing of one another train a model each, and then a row of 2 ranks would show the result of one.
`dmls_ray.records.aggregate` compares the ranks.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from dmls_ray.training.compat import groups_made, is_part_of_parameter, sequence_numbers

_CHUNK = 2**18
"""Elements that are multiplied at once, with 2 MiB of signs."""
_SAMPLED = 2**14
"""Elements of each parameter that are compared in training."""
_SEED = 0
_KEPT_OPTIMIZERS = 4
"""Optimizers whose parameters are kept until the end; more than one, since several may take turns."""


class AgreementMeter:
    """Collectives and optimizer steps of one run on this rank, and its parameters in training and in the end.

    Made before the training starts.
    """

    def __init__(self) -> None:
        self._before, self._made = sequence_numbers(), groups_made()
        self._steps: Counter[int] = Counter()
        self._groups: dict[int, list[dict[str, Any]]] = {}
        """The groups of parameters of each optimizer, without its state."""
        self._next, self._after_next = 1, 2
        """Steps that are sampled: Fibonacci numbers, which fall on every phase of a period of averaging."""
        self.sampled: list[float] = []
        """As `RankRecord.sampled_parameters`."""
        self.sketch: list[float] = []
        """`parameter_sketch` of the parameters at the end."""
        self._ended: dict[str, int | None] = {}

    def step(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer has made a step."""
        self._steps[id(optimizer)] += 1
        self._groups[id(optimizer)] = optimizer.param_groups
        if len(self._groups) > _KEPT_OPTIMIZERS:
            del self._groups[next(iter(self._groups))]

    @property
    def is_due(self) -> bool:
        """Whether to call `sample` after this step."""
        return self._steps.total() == self._next

    def sample(self, optimizer: torch.optim.Optimizer) -> None:
        """Sketch the parameters that an optimizer has changed. It waits for the device."""
        self._next, self._after_next = self._after_next, self._next + self._after_next
        parameters = _comparable(_parameters_of(optimizer.param_groups))
        if parameters:
            heads = [parameter.detach().flatten()[:_SAMPLED] for parameter in parameters]
            squares, product, _ = _sums(heads).tolist()
            self.sampled.append(product / (math.sqrt(squares) or 1.0))

    def read(self) -> dict[str, int | None]:
        """The metrics `collectives` and `optimizer_steps`. Where `end` was not called, the training ends here, with the
        steps and the parameters of the optimizers, which are released.
        """
        if not self._ended:
            # Where each parameter has an optimizer, their steps are more than the collectives.
            steps = max(self._steps.values(), default=0)
            parameters = {id(item): item for groups in self._groups.values() for item in _parameters_of(groups)}
            self._groups.clear()
            self.end(steps, parameters.values())
        return self._ended

    def end(self, steps: int, parameters: Iterable[Tensor]) -> None:
        """The training has ended, after so many steps and with these parameters."""
        after = sequence_numbers()
        collectives = None
        if after is not None and self._before is not None:
            # A group that was made during the run starts at 0.
            collectives = sum(number - self._before.get(group, 0) for group, number in after.items())
            is_complete = groups_made() - self._made == len(after.keys() - self._before.keys())
            if not is_complete and collectives < steps:
                collectives = None  # those of a group that is no longer there are not known
        self._ended = {"collectives": collectives, "optimizer_steps": steps}
        self.sketch = parameter_sketch(parameters)


def parameter_sketch(parameters: Iterable[Tensor]) -> list[float]:
    """The number of elements, their sum of squares, and their products with two fixed random signs.

    The products of two ranks differ by about the distance of their parameters. The order of the parameters does not
    matter. Empty if there are none, or if they are sharded, so that each rank has others.
    """
    comparable = _comparable(parameters)
    if not comparable:
        return []
    count = sum(parameter.numel() for parameter in comparable)
    return [float(count), *_sums(comparable).tolist()]


def _parameters_of(groups: Iterable[dict[str, Any]]) -> list[Tensor]:
    return [parameter for group in groups for parameter in group["params"]]


def _comparable(parameters: Iterable[Tensor]) -> list[Tensor]:
    """The parameters of floating point; none if some are parts, so that each rank has others."""
    parameters = [parameter for parameter in parameters if parameter.is_floating_point()]
    return [] if any(is_part_of_parameter(item) for item in parameters) else parameters


@torch.no_grad()
def _sums(tensors: Sequence[Tensor]) -> Tensor:
    """The sum of squares of all elements, and their products with two fixed random signs, in float64."""
    sums = torch.zeros(3, dtype=torch.float64, device=tensors[0].device)
    for tensor in tensors:
        for chunk in tensor.detach().flatten().split(_CHUNK):
            values = chunk.float()
            products = _signs(values.device)[:, : len(values)] @ values
            sums += torch.cat([values.dot(values)[None], products]).to(sums)
    return sums


@functools.cache
def _signs(device: torch.device) -> Tensor:
    generator = torch.Generator().manual_seed(_SEED)
    return (torch.randint(2, (2, _CHUNK), generator=generator) * 2.0 - 1.0).to(device)
