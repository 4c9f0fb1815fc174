"""What models are given: their samples, and which backward passes are of it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dmls_ray.training.observed.contents import content_of
from dmls_ray.training.observed.model_inputs import ModelInputs
from dmls_ray.training.observed.models import Models


class OnGrid(nn.Module):
    """A model whose first argument is the same for each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 1)

    def forward(self, grid: Tensor, batch: Tensor) -> Tensor:
        output: Tensor = self.linear(batch).sum() + grid.sum()
        return output


def watched() -> ModelInputs:
    """What the models that there are now are given."""
    inputs = ModelInputs()

    def forward_began(module: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor]) -> None:
        inputs.forward_began(module, content_of(args), is_list=False)

    Models(forward_began).find(is_first=True)
    return inputs


def test_all_tensors_that_a_model_is_given_count() -> None:
    model = OnGrid()
    inputs = watched()
    model(torch.zeros(5), torch.zeros(8, 3))
    given, unused = inputs.backward_began()
    assert given is not None
    assert not unused
    assert sum(input_.elements for input_ in given.inputs) == 5 + 24


def test_forward_passes_that_no_backward_pass_is_of_are_told_by_its_graph() -> None:
    model = nn.Linear(3, 1)
    inputs = watched()
    left_out = model(torch.randn(4, 3))
    inputs.batch_read()
    trained = model(torch.randn(8, 3)).sum()
    given, unused = inputs.backward_began([trained])
    assert given is not None
    assert given.sizes == [8]
    assert [one.sizes for one in unused] == [[4]]

    first = model(torch.randn(4, 3))
    inputs.batch_read()
    both = model(torch.randn(8, 3)).sum() + first.sum()
    given, unused = inputs.backward_began([both])
    assert given is not None
    assert given.sizes == [4, 8]
    assert not unused
    del left_out


def test_a_second_loss_of_one_forward_pass_is_of_the_same_samples() -> None:
    model = nn.Linear(3, 2)
    inputs = watched()
    returned = model(torch.randn(4, 3))
    first, _ = inputs.backward_began([returned[:, 0].sum()])
    second, _ = inputs.backward_began([returned[:, 1].sum()])
    assert first is not None
    assert not first.is_again
    assert second is not None
    assert second.is_again
    of_no_model, _ = inputs.backward_began([torch.ones(3, requires_grad=True).sum()])
    assert of_no_model is None
