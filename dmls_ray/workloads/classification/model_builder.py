"""Models by name: built-in models, those of torchvision, and user-defined models."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from dmls_ray.util.errors import ConfigError, InputError, UnknownNameError, UserCodeError
from dmls_ray.util.importing import is_reference, missing_extra
from dmls_ray.util.text import first_line
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.data.decoded_images import peek_dataset
from dmls_ray.workloads.classification.models import MODELS, ModelBuilder, Shape
from dmls_ray.workloads.user_function.sent import SentName, load_named

# Without this option, these models return the logits of auxiliary classifiers as well.
_WITHOUT_AUX = {name: {"aux_logits": False, "init_weights": True} for name in ("googlenet", "inception_v3")}


_DROPOUT_LAYERS = (
    nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout,
)  # fmt: skip


def find_model(name: str) -> ModelBuilder:
    """The builder of a model.

    Args:
        name: a built-in name; `torchvision:NAME`, any of torchvision's classification models, without weights; or
            `module:function` of the user, or the name of a function that was sent along. That function gets the
            arguments `shape` and `classes` if it names them, and returns a module that maps images
            (batch x channels x height x width) to logits (batch x classes).

    Raises:
        UnknownNameError: there is no such model; the message lists the existing ones.
        UserCodeError: the user's module failed to import or to build.
    """
    if name in MODELS:
        return MODELS[name]
    if name.startswith("torchvision:"):
        if reason := missing_extra("torchvision", "vision", f"model={name}"):
            raise UnknownNameError(reason)
        from torchvision import models

        names = models.list_models(module=models)
        if name.removeprefix("torchvision:") not in names:
            raise UnknownNameError(f"model={name} is unknown; torchvision has {', '.join(names)}.")
        return functools.partial(_build_torchvision_model, name.removeprefix("torchvision:"))
    if isinstance(name, SentName) or is_reference(name):
        return functools.partial(_build_user_model, name, _user_function(name))
    raise UnknownNameError(
        f"model={name} is unknown; choose from {', '.join(MODELS)}, torchvision:NAME (for example "
        "torchvision:resnet18), "
        "or a user-defined module:function."
    )


def build_model(config: TrialConfig, shape: Shape, classes: int) -> nn.Module:
    """The configured model with the configured batch normalisation and dropout.

    Raises:
        ConfigError: the model has no place for them.
        UnknownNameError, UserCodeError: as `find_model`.
    """
    model = find_model(config.model)(shape, classes)
    if config.batch_norm != "off" and config.model in MODELS:
        _insert_batch_norm(model)
    if config.batch_norm == "sync":
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    if config.dropout is not None:
        _set_dropout(model, config.dropout, config.model)
    return model


@functools.cache
def check_fits(name: str, shape: Shape, classes: int) -> None:
    """Refuse a built-in model or one of torchvision that does not take images of this shape.

    Raises:
        ConfigError: with PyTorch's reason.
    """
    if name not in MODELS and not name.startswith("torchvision:"):
        return
    # Without data on a device, and without a warning about layers of no size.
    with torch.device("meta"), warnings.catch_warnings(action="ignore"):
        try:
            model = find_model(name)(shape, classes)
            model(torch.empty(2, *shape))
        except NotImplementedError:
            return  # RegNet reads numbers while it is built, and there are none
        except (RuntimeError, ValueError, AssertionError) as error:
            size = "x".join(map(str, shape))
            reason = f"model={name} does not take images of {size} ({first_line(error)})"
            raise ConfigError(f"{reason}; set image_size, or use another model.") from error


@functools.cache
def own_dropout(name: str, dataset: str, data_dir: str | None, image_size: int | None) -> list[float] | None:
    """The rates of a model's dropout layers as it is built; None where it cannot be built on this machine."""
    try:
        shape, classes, _ = peek_dataset(dataset, data_dir, image_size)
        return dropout_rates(find_model(name)(shape, classes))
    except InputError:
        # It may need a GPU or files that only the machines of the ranks have: an error is theirs to report.
        return None


def building_code(config: TrialConfig, shape: Shape, classes: int) -> list[str]:
    """Lines of Python that assign to `model` a new model with the parameters of the configured one.

    Those of a built-in model need dmls_ray, and `about`, the content of weights.json.
    """
    if config.model in MODELS:
        return [
            "from dmls_ray.workloads.classification.config import TrialConfig",
            "from dmls_ray.workloads.classification.model_builder import build_model",
            'model = build_model(TrialConfig(**about["config"]), about["shape"], len(about["classes"]))',
        ]
    module, _, function = config.model.partition(":")
    if module == "torchvision":
        given = {"name": repr(function), "weights": None, "num_classes": classes, **_WITHOUT_AUX.get(function, {})}
        first, function = "import torchvision", "torchvision.models.get_model"
    else:
        given = _arguments_of(load_named(config.model, flag="model"), shape, classes)
        first = f"from {module} import {function.partition('.')[0]}"
    if isinstance(config.model, SentName):
        first, function = f"# net is the model {config.model}, as it was given to sweep()", "net"
    arguments = ", ".join(f"{key}={value}" for key, value in given.items())
    return [first, f"model = {function}({arguments})"]


def _build_torchvision_model(name: str, shape: Shape, classes: int) -> nn.Module:
    from torchvision import models

    model: nn.Module = models.get_model(name, weights=None, num_classes=classes, **_WITHOUT_AUX.get(name, {}))
    return model


def _user_function(name: str) -> Callable[..., object]:
    """The user's function, or class, that makes a model.

    Raises:
        UnknownNameError, UserCodeError: there is none, or it takes other arguments than `shape` and `classes`.
    """
    function = load_named(name, flag="model")
    try:
        inspect.signature(function).bind(**_arguments_of(function, (1, 1, 1), 1))
    except (TypeError, ValueError) as error:
        raise UserCodeError(
            f"model={name} cannot be called with shape and classes ({error}); name a function that returns a model."
        ) from error
    return function


def _arguments_of(function: Callable[..., object], shape: Shape, classes: int) -> dict[str, Any]:
    """`shape` and `classes`, if the user's function names them."""
    parameters = inspect.signature(function).parameters
    given = {"shape": shape, "classes": classes}
    return {key: value for key, value in given.items() if key in parameters}


def _build_user_model(name: str, function: Callable[..., object], shape: Shape, classes: int) -> nn.Module:
    try:
        module = function(**_arguments_of(function, shape, classes))
        if isinstance(module, nn.Module) and any(is_lazy(item) for item in module.parameters()):
            # Its layers get their sizes from a forward pass.
            with torch.no_grad():
                module.eval()(torch.zeros(2, *shape))
            module.train()
    except Exception as error:
        raise UserCodeError(f"model={name}: your function failed: {type(error).__name__}: {error}.") from error
    if not isinstance(module, nn.Module):
        raise UserCodeError(f"model={name}: your function returned {type(module).__name__}; return a torch.nn.Module.")
    if not any(parameter.requires_grad for parameter in module.parameters()):
        raise UserCodeError(f"model={name}: no parameter requires grad, so nothing is trained; leave one that does.")
    return module


def _insert_batch_norm(model: nn.Module) -> None:
    """Add a batch normalisation after each convolution, before its ReLU (Ioffe & Szegedy, arXiv 1502.03167)."""
    features = model.features
    assert isinstance(features, nn.Sequential)
    layers: list[nn.Module] = []
    for layer in features:
        layers.append(layer)
        if isinstance(layer, nn.Conv2d):
            layers.append(nn.BatchNorm2d(layer.out_channels))
    model.features = nn.Sequential(*layers)


def dropout_layers(model: nn.Module) -> list[Any]:
    """The layers whose rate the field dropout sets."""
    return [layer for layer in model.modules() if isinstance(layer, _DROPOUT_LAYERS)]


def dropout_rates(model: nn.Module) -> list[float]:
    """The rates of these layers."""
    return [float(layer.p) for layer in dropout_layers(model)]


def _set_dropout(model: nn.Module, rate: float, name: str) -> None:
    """Set the rate of all dropout layers; a built-in model without any gets one before its last linear layer."""
    layers = dropout_layers(model)
    for layer in layers:
        layer.p = rate
    if layers:
        return
    if name not in MODELS:
        raise ConfigError(f"dropout={rate}: model={name} has no dropout layer; use dropout none, or another model.")
    classifier = model.classifier
    assert isinstance(classifier, nn.Sequential)
    model.classifier = nn.Sequential(*classifier[:-1], nn.Dropout(rate), classifier[-1])
