from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dmls_ray.util.errors import UserCodeError
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.model_builder import build_model, find_model
from dmls_ray.workloads.classification.models import MODELS
from dmls_ray.workloads.classification.workload import ClassificationWorkload
from tests.conftest import SMALL
from tests.new_processes import run_inline, run_ranks

MODULE = "tests.workloads.classification.test_model_builder"


def layers(model: nn.Module) -> list[str]:
    """The leaves of a model in short: C3-32 a convolution, L a linear layer, R, P, D and F the others."""
    short = []
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            assert (module.kernel_size, module.stride, module.padding) == ((3, 3), (1, 1), (1, 1))
            short.append(f"C{module.in_channels}-{module.out_channels}")
        elif isinstance(module, nn.Linear):
            short.append(f"L{module.in_features}-{module.out_features}")
        elif isinstance(module, nn.ReLU | nn.MaxPool2d | nn.Dropout | nn.Flatten):
            short.append({nn.ReLU: "R", nn.MaxPool2d: "P", nn.Dropout: "D", nn.Flatten: "F"}[type(module)])
    return short


@pytest.mark.parametrize(
    ("name", "shape", "expected"),
    [
        (
            "convnet",
            (3, 32, 32),
            "C3-32 R C32-64 R P C64-128 R C128-256 R P C256-256 R C256-256 R P F L4096-256 R L256-32 R L32-10",
        ),
        ("simplecnn", (3, 128, 128), "C3-32 R P C32-64 R P C64-128 R P F L32768-512 D L512-10"),
        ("mnist_convnet", (1, 28, 28), "C1-4 R P C4-8 R P F L392-10"),
    ],
)
def test_the_models_of_the_reports_are_theirs_layer_for_layer(
    name: str, shape: tuple[int, int, int], expected: str
) -> None:
    assert layers(find_model(name)(shape, 10)) == expected.split()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shape", [(1, 8, 8), (3, 33, 20), (2, 64, 64)])
def test_every_model_takes_any_image_shape(name: str, shape: tuple[int, int, int]) -> None:
    assert find_model(name)(shape, 7)(torch.zeros(2, *shape)).shape == (2, 7)


@pytest.mark.parametrize(("function", "outputs"), [("more_logits", 9), ("shaped", 7), ("configured", 7)])
def test_a_user_defined_model_gets_the_arguments_that_it_names(function: str, outputs: int) -> None:
    assert find_model(f"{MODULE}:{function}")((1, 8, 8), 7)(torch.zeros(2, 1, 8, 8)).shape == (2, outputs)


@pytest.mark.parametrize(("function", "message"), [("number", "returned int"), ("broken", "RuntimeError: no weights")])
def test_a_function_that_returns_no_model_is_refused(function: str, message: str) -> None:
    with pytest.raises(UserCodeError, match=message):
        find_model(f"{MODULE}:{function}")((1, 8, 8), 7)


def test_models_with_auxiliary_classifiers_train_without_them() -> None:
    model = find_model("torchvision:googlenet")((3, 32, 32), 10)
    assert isinstance(model.train()(torch.zeros(2, 3, 32, 32)), torch.Tensor)


def trial(**changes: object) -> TrialConfig:
    return TrialConfig(**{"batch_per_rank": 8, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", MODELS)
def test_batch_norm_follows_each_convolution_of_a_built_in_model(name: str) -> None:
    model = build_model(trial(model=name, batch_norm="on"), (3, 32, 32), 10)
    layers = list(model.features)  # type: ignore[arg-type]
    convolutions = [number for number, layer in enumerate(layers) if isinstance(layer, nn.Conv2d)]
    assert convolutions
    for number in convolutions:
        after = layers[number + 1]
        assert isinstance(after, nn.BatchNorm2d)
        assert after.num_features == layers[number].out_channels
    assert model(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_dropout_sets_the_layers_there_are_or_puts_one_before_the_last() -> None:
    simple = build_model(trial(model="simplecnn", dropout=0.2), (3, 32, 32), 10)
    assert [layer.p for layer in simple.modules() if isinstance(layer, nn.Dropout)] == [0.2]
    assert [layer.p for layer in build_model(trial(model="simplecnn"), (3, 32, 32), 10).modules()
            if isinstance(layer, nn.Dropout)] == [0.5]  # fmt: skip
    put = build_model(trial(model="convnet", dropout=0.3), (3, 32, 32), 10).classifier
    assert isinstance(put, nn.Sequential)
    assert isinstance(put[-2], nn.Dropout)
    assert isinstance(put[-1], nn.Linear)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_norm": "on"}, "batch_norm=on puts layers into built-in models"),
        ({"dropout": 0.5}, "dropout=0.5: model=torchvision:resnet18 has no dropout layer"),
    ],
)
def test_a_model_without_a_place_for_a_regulariser_is_infeasible(changes: dict[str, object], message: str) -> None:
    config = trial(model="torchvision:resnet18", dataset="synthetic", **changes)
    assert ClassificationWorkload().infeasible_reason(config).startswith(message)


def test_sync_batch_norm_takes_the_place_of_the_layers_there_are() -> None:
    model = build_model(trial(model="torchvision:resnet18", batch_norm="sync"), (3, 32, 32), 10)
    kinds = {type(layer) for layer in model.modules()}
    assert nn.SyncBatchNorm in kinds
    assert nn.BatchNorm2d not in kinds


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


def shaped(shape: tuple[int, int, int], classes: int) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[1] * shape[2], classes))


def configured(classes: int = 3, **options: Any) -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes, **options))


def number() -> int:
    return 3


def broken() -> nn.Module:
    raise RuntimeError("no weights")


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
    ("one_too_few", "shape (8, 3) for 8 images of 4 classes; return the logits, a tensor of shape (8, 4)"),
    ("in_tuple", "returned a tuple"),
    ("only_in_training", "returned a tuple"),
    ("frozen", "no parameter requires grad"),
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
