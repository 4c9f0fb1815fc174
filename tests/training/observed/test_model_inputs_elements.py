"""What models are given, as a witness of the batch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from dmls_ray.training.observed.model_inputs import ModelInputs


class OnGrid(nn.Module):
    """A model whose first argument is the same for each batch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 1)

    def forward(self, grid: Tensor, batch: Tensor) -> Tensor:
        output: Tensor = self.linear(batch).sum() + grid.sum()
        return output


def test_all_tensors_that_a_model_is_given_count() -> None:
    model = OnGrid()
    inputs = ModelInputs(lambda with_gradients, leaves: None, lambda: None, lambda error: None, "cpu")
    inputs.find()
    model(torch.zeros(5), torch.zeros(8, 3))
    given = inputs.take()
    assert given is not None
    assert given.elements == 5 + 24
