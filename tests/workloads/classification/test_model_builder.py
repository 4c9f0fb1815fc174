from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from dmls_ray.util.errors import ConfigError, UserCodeError
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.model_builder import build_model, check_fits, find_model
from dmls_ray.workloads.classification.models import MODELS
from dmls_ray.workloads.classification.workload import ClassificationWorkload


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


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "user_models.py").write_text(
        "from torch import nn\n"
        "def plain(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 5))\n"
        "def shaped(shape, classes): return nn.Sequential(nn.Flatten(), nn.Linear(shape[1] * shape[2], classes))\n"
        "def configured(classes=3, **options): return nn.Sequential(nn.Flatten(), nn.Linear(64, classes, **options))\n"
        "def number(): return 3\n"
        "def broken(): raise RuntimeError('no weights')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    return "user_models"


@pytest.mark.parametrize(("function", "outputs"), [("plain", 5), ("shaped", 7), ("configured", 7)])
def test_a_user_defined_model_gets_the_arguments_that_it_names(user_module: str, function: str, outputs: int) -> None:
    assert find_model(f"{user_module}:{function}")((1, 8, 8), 7)(torch.zeros(2, 1, 8, 8)).shape == (2, outputs)


@pytest.mark.parametrize(("function", "message"), [("number", "returned int"), ("broken", "RuntimeError: no weights")])
def test_a_function_that_returns_no_model_is_refused(user_module: str, function: str, message: str) -> None:
    with pytest.raises(UserCodeError, match=message):
        find_model(f"{user_module}:{function}")((1, 8, 8), 7)


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        ("torchvision:alexnet", (3, 32, 32), "does not take images of 3x32x32"),
        ("torchvision:vit_b_16", (3, 32, 32), "does not take images of 3x32x32"),
        ("torchvision:resnet18", (1, 8, 8), "does not take images of 1x8x8"),
    ],
)
def test_a_model_that_cannot_take_the_images_is_refused_before_it_is_trained(
    name: str, shape: tuple[int, int, int], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check_fits(name, shape, 10)


def test_models_with_auxiliary_classifiers_train_without_them() -> None:
    check_fits("torchvision:googlenet", (3, 32, 32), 10)
    model = find_model("torchvision:googlenet")((3, 32, 32), 10)
    assert isinstance(model.train()(torch.zeros(2, 3, 32, 32)), torch.Tensor)


def test_the_smallest_image_that_is_known_without_pytorch_is_the_smallest_that_builds() -> None:
    for name in MODELS:
        side = MODELS[name].min_image_side
        check_fits(name, (1, side, side), 10)
        with pytest.raises((ConfigError, UserWarning)):
            check_fits(name, (1, side - 1, side), 10)


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
