"""What is said of a user's model that is no classifier of the data set, on one rank and on two."""

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

MODULE = "tests.workloads.classification.test_model_contract"


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


class Skipping(Net):
    """With a block that every second pass skips."""

    def __init__(self) -> None:
        super().__init__()
        self.block, self.passes = nn.Linear(4, 4), 0

    def forward(self, images: Tensor) -> Any:
        self.passes += 1
        outputs = super().forward(images)
        return outputs + self.block(outputs) if self.passes % 2 else outputs


def one_too_few(classes: int) -> nn.Module:
    return Net(classes - 1)


def one_logit() -> nn.Module:
    return Net(1)


def more_logits() -> nn.Module:
    return Net(9)


def in_tuple() -> nn.Module:
    return Net(change=lambda outputs: (outputs, outputs))


def in_dict() -> nn.Module:
    return Net(change=lambda outputs: {"logits": outputs})


def transposed() -> nn.Module:
    return Net(change=lambda outputs: outputs.T)


def of_an_image() -> nn.Module:
    return Net(change=lambda outputs: outputs[:, :, None, None])


def of_chosen_classes() -> nn.Module:
    return Net(change=lambda outputs: outputs.argmax(1, keepdim=True).expand(-1, 4))


def detached() -> nn.Module:
    return Net(change=lambda outputs: outputs.detach())


def only_in_training() -> nn.Module:
    model = Net()
    model.change = lambda outputs: outputs if model.training else (outputs,)
    return model


def double() -> nn.Module:
    return Net().double()


def double_of_its_own() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Identity(), _Cast(), nn.Linear(64, 4).double())


class _Cast(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        return images.double()


def frozen() -> nn.Module:
    return Net().requires_grad_(False)


def without_parameters() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4))[:1]


def lazy(classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.LazyLinear(8), nn.LazyBatchNorm1d(), nn.LazyLinear(classes))


def lazy_and_unused() -> nn.Module:
    model = Net()
    model.spare = nn.LazyLinear(3)
    return model


def lazy_and_wrong() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(4), nn.Linear(9, 4))


def needs_width(width: int, classes: int) -> nn.Module:
    return nn.Linear(width, classes)


def config(model: str, **changes: Any) -> TrialConfig:
    base = {"dataset": SMALL, "batch_per_rank": 8, "epochs": 1, "device": "cpu", "model": f"{MODULE}:{model}"}
    return TrialConfig(**{**base, **changes})


WRONG = [
    ("one_too_few", "returned 3 logits and the data set has 4 classes; return one for each"),
    ("one_logit", "returned 1 logit and the data set has 4 classes"),
    ("in_tuple", "returned a tuple; return the logits, a tensor of 8 images x 4 classes here."),
    ("in_dict", "returned a dict; return the logits"),
    ("transposed", "returned a tensor of 4x8; return the logits"),
    ("of_an_image", "returned a tensor of 8x4x1x1; return the logits"),
    ("of_chosen_classes", "returned torch.int64, which has no gradient; return the logits"),
    ("detached", "returned logits without a gradient; leave out detach() and no_grad()"),
    ("only_in_training", "returned a tuple; return the logits"),
    ("double", "has parameters of torch.float64 and images are of torch.float32"),
    ("frozen", "no parameter requires a gradient, so there is nothing to train"),
    ("without_parameters", "no parameter requires a gradient"),
    ("lazy_and_unused", "has a lazy layer that its forward pass does not use"),
    ("lazy_and_wrong", "its lazy layers get their sizes from images of 1x8x8, which it does not take (RuntimeError"),
]


@pytest.mark.parametrize(("model", "message"), WRONG)
def test_a_model_that_breaks_the_contract_is_told_what_it_did_and_what_is_expected(model: str, message: str) -> None:
    result = run_inline(config(model))
    assert result.outcome == "error"
    assert f"UserCodeError: model={MODULE}:{model}" in result.reason
    assert message in result.reason


@pytest.mark.parametrize("model", ["one_too_few", "frozen", "double"])
def test_two_ranks_are_told_the_same(model: str) -> None:
    message = dict(WRONG)[model]
    for result in run_ranks(config(model, world_size=2)):
        assert message in result.reason or result.is_symptom


@pytest.mark.parametrize("model", ["lazy", "more_logits", "double_of_its_own", "Spare", "Skipping"])
def test_a_model_that_can_be_trained_is(model: str) -> None:
    result = run_inline(config(model))
    assert result.outcome == "ok", result.traceback


def test_lazy_layers_are_the_same_on_all_ranks_and_leave_the_statistics_alone() -> None:
    model = find_model(f"{MODULE}:lazy")((1, 8, 8), 4)
    assert isinstance(model, nn.Sequential)
    assert model.training
    assert torch.equal(model[2].running_mean, torch.zeros(8))
    results = run_ranks(config("lazy", world_size=2, batch_norm="off"))
    assert [result.outcome for result in results] == ["ok", "ok"], results[0].traceback


@pytest.mark.parametrize(("model", "helps"), [("Spare", True), ("Skipping", False)])
def test_a_model_with_unused_parameters_is_told_the_flag_that_helps(model: str, helps: bool) -> None:
    for result in run_ranks(config(model, world_size=2)):
        assert result.outcome == "error"
        assert "if they never have, as in a head that is not used, give --static-graph true;" in result.reason
    after = [result.outcome for result in run_ranks(config(model, world_size=2, static_graph=True))]
    assert (after == ["ok", "ok"]) == helps


@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (f"{MODULE}:needs_width", "your function needs width, and gets shape and classes only"),
        ("builtins:iter", "cannot be called"),
    ],
)
def test_a_function_that_needs_other_arguments_is_refused_before_anything_starts(reference: str, message: str) -> None:
    with pytest.raises(UserCodeError, match=message):
        find_model(reference)
