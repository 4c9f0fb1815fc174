"""A user's model that is no classifier of the data set, on one rank and on two."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dmls_ray.launchers.inline import run_inline
from dmls_ray.util.errors import UserCodeError
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.model_builder import find_model
from tests.conftest import SMALL
from tests.new_processes import run_ranks

MODULE = "tests.workloads.classification.test_user_model"


class Net(nn.Module):
    """A linear classifier of images of 1x8x8, whose output another function changes."""

    def __init__(self, logits: int = 4, change: Any = None) -> None:
        super().__init__()
        self.linear = nn.Linear(64, logits)
        self.change = change

    def forward(self, images: Tensor) -> Any:
        outputs = self.linear(images.flatten(1))
        return self.change(outputs) if self.change is not None else outputs


class Spare(Net):
    """With a head that no pass uses."""

    def __init__(self) -> None:
        super().__init__()
        self.spare = nn.Linear(64, 7)


def one_too_few(classes: int) -> nn.Module:
    return Net(classes - 1)


def more_logits() -> nn.Module:
    return Net(9)


def in_tuple() -> nn.Module:
    return Net(change=lambda outputs: (outputs, outputs))


def only_in_training() -> nn.Module:
    model = Net()
    model.change = lambda outputs: outputs if model.training else (outputs,)
    return model


def frozen() -> nn.Module:
    return Net().requires_grad_(False)


def lazy(classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.LazyLinear(classes))


def needs_width(width: int, classes: int) -> nn.Module:
    return nn.Linear(width, classes)


def config(model: str, **changes: Any) -> TrialConfig:
    base = {"dataset": SMALL, "batch_per_rank": 8, "epochs": 1, "device": "cpu", "model": f"{MODULE}:{model}"}
    return TrialConfig(**{**base, **changes})


WRONG = [
    ("one_too_few", "shape (8, 3); return the logits, a tensor of 8 images x 4 classes"),
    ("in_tuple", "returned a tuple"),
    ("only_in_training", "returned a tuple"),
    ("frozen", "optimizer got an empty parameter list"),
]


@pytest.mark.parametrize(("model", "message"), WRONG)
def test_a_model_that_breaks_the_contract_ends_in_an_error(model: str, message: str) -> None:
    result = run_inline(config(model))
    assert result.outcome == "error"
    assert message in result.reason


@pytest.mark.parametrize("model", ["more_logits", "Spare"])
def test_a_model_that_can_be_trained_is(model: str) -> None:
    result = run_inline(config(model))
    assert result.outcome == "ok", result.traceback


def test_lazy_layers_are_the_same_on_all_ranks_and_leave_the_statistics_alone() -> None:
    model = find_model(f"{MODULE}:lazy")((1, 8, 8), 4)
    assert isinstance(model, nn.Sequential)
    assert model.training
    assert torch.equal(model[2].running_mean, torch.zeros(8))
    results = run_ranks(config("lazy", world_size=2))
    assert [result.outcome for result in results] == ["ok", "ok"], results[0].traceback


def test_a_model_with_unused_parameters_names_the_flag_that_helps() -> None:
    for result in run_ranks(config("Spare", world_size=2)):
        assert result.outcome == "error"
        assert "--static-graph true" in result.reason
    after = run_ranks(config("Spare", world_size=2, static_graph=True))
    assert [result.outcome for result in after] == ["ok", "ok"]


@pytest.mark.parametrize("reference", [f"{MODULE}:needs_width", "builtins:iter"])
def test_a_function_that_needs_other_arguments_is_refused_before_anything_starts(reference: str) -> None:
    with pytest.raises(UserCodeError, match="cannot be called with shape and classes"):
        find_model(reference)
