"""Which models of a program are looked at."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dmls_ray.training.observed.models import Models
from dmls_ray.training.observed.number_format import SeenFormat


def test_the_outermost_model_is_found_once_and_its_parameters_count_where_the_training_begins() -> None:
    calls: list[nn.Module] = []
    models = Models(lambda module, args, kwargs: calls.append(module))
    model = nn.Sequential(nn.LSTM(2, 3), nn.BatchNorm1d(3))
    frozen = nn.Linear(2, 2).requires_grad_(False)
    assert [id(owner) for owner in models.find(is_first=True)] == [id(model[0])]
    assert models.find(is_first=True) == []
    later = nn.Linear(2, 1)
    assert [id(owner) for owner in models.find(is_first=False)] == [id(later)]
    assert models.parameters == 4 * 3 * (2 + 3 + 2) + 6
    assert models.buffers == 7
    assert models.has_sequences_first
    assert not models.has_compiled
    for module in (later, frozen):
        module(torch.ones(1, 2))
    assert calls == [later]


def test_nothing_within_a_compiled_model_is_looked_at() -> None:
    inner = nn.Linear(2, 1)
    held = nn.Sequential(nn.Sequential(inner))
    compiled = torch.compile(held)
    models = Models(lambda *_: None)
    models.find(is_first=True)
    assert models.has_compiled
    assert not any(part._forward_pre_hooks for part in held.modules())
    del compiled, held
    plain = nn.Sequential(nn.Sequential(inner))
    models.find(is_first=True)
    assert all(part._forward_pre_hooks for part in plain.modules())


def test_the_number_format_is_that_of_most_products_of_the_first_forward_pass() -> None:
    model, bfloat16, plain = nn.Linear(2, 1), SeenFormat("cpu"), SeenFormat("cpu")
    bfloat16.forward_began(model)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        model(torch.ones(1, 2))
    plain.forward_began(model)
    model(torch.ones(1, 2))
    model.double()
    plain.forward_began(model)
    model(torch.ones(1, 2, dtype=torch.float64))
    assert (bfloat16.name, plain.name) == ("autocast bfloat16", "float32")


@pytest.mark.filterwarnings("ignore:`torch.jit.trace:FutureWarning")
def test_a_model_is_traced_as_without_an_observer() -> None:
    model, seen = nn.Linear(2, 1), SeenFormat("cpu")
    handle = model.register_forward_pre_hook(lambda module, args: seen.forward_began(module))
    assert torch.jit.trace(model, torch.ones(1, 2))(torch.ones(1, 2)).shape == (1, 1)
    model(torch.ones(1, 2))
    assert seen.name == "float32"
    handle.remove()
