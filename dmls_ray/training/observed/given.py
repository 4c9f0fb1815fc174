"""`Given`: what models were given in the forward passes of one backward pass."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from dmls_ray.training.observed.contents import Content, Shape


@dataclass(slots=True)
class Input:
    """What a model is given in a forward pass; most passes have the same."""

    shapes: tuple[Shape, ...]
    """Shapes of the tensors."""
    lengths: tuple[int, ...] = ()
    """Lengths of the lists."""
    is_list: bool = False
    """Whether the first argument is a list or a tuple, of samples or of parts of a sample."""
    tokens: int = 0
    """Integers in two dimensions: those of a tensor whose first dimension is that of the first tensor."""
    elements: int = 0
    rows: int = 0
    """The first dimension of the tensor that the model returned; 0 where it returned none."""

    @property
    def size(self) -> int:
        """The first dimension of the first tensor; 0 without one."""
        return self.shapes[0][0] if self.shapes and self.shapes[0] else 0


@dataclass(slots=True)
class Given:
    """What the models were given in the forward passes of one backward pass."""

    inputs: list[Input]
    """Of each forward pass with other tensors."""
    is_again: bool = False
    """Whether the step had been given the same tensor before, as in a further pass of a closure."""
    is_of_another: bool = False
    """Whether an optimizer that does not end a step has applied the gradients of the pass."""
    end: int = 0
    """Number of the first node of the graph that was made after the forward passes and the loss."""
    has_rows_twice: bool = False
    """Whether the first tensor has each row twice; of the first steps, else False."""

    @property
    def first(self) -> Input:
        """What was given first."""
        return self.inputs[0]

    @property
    def size(self) -> int:
        """The first dimension of the first tensor; 0 without one."""
        return self.inputs[0].size

    @property
    def sizes(self) -> list[int]:
        """The same of each forward pass with other tensors."""
        return [input_.size for input_ in self.inputs]

    @property
    def tokens(self) -> int:
        """As of all inputs together."""
        return sum(input_.tokens for input_ in self.inputs)


def input_of(content: Content, *, is_list: bool) -> Input:
    """The input that consists of these tensors and lists."""
    input_ = Input(tuple([leaf.shape for leaf in content.leaves]), tuple(content.lengths), is_list)
    size = input_.size
    tensors = [leaf for leaf in content.leaves if isinstance(leaf, Tensor)]
    tokens = [leaf.numel() for leaf in tensors if leaf.ndim == 2 and len(leaf) == size and not leaf.is_floating_point()]
    input_.tokens = sum(tokens[:1])
    input_.elements = sum(leaf.numel() for leaf in tensors)
    return input_


def together(parts: list[Given]) -> Given | None:
    """What was given in all of the forward passes of a backward pass."""
    if not parts:
        return None
    first, *others = parts
    for given in others:
        first.inputs += given.inputs
        first.end = given.end
    return first
