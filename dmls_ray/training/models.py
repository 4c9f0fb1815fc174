"""Models by name: the reports' own, a small one for digits, torchvision's, and the user's.

Every built-in model takes any image shape; its first linear layer follows.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import torch
from torch import Tensor, nn

from dmls_ray.util.errors import ConfigError, UnknownNameError, UserCodeError
from dmls_ray.util.importing import import_function, is_reference
from dmls_ray.util.text import first_line
from dmls_ray.workloads.classification.config import TrialConfig

Shape = tuple[int, int, int]
"""Channels, height, width."""


class ConvNet(nn.Module):
    """The light VGG of report A: three blocks of two 3x3 convolutions and a pooling, then three linear layers."""

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        channels, height, width = shape
        layers: list[nn.Module] = []
        for narrow, wide in ((32, 64), (128, 256), (256, 256)):
            layers += [_conv3(channels, narrow), nn.ReLU(), _conv3(narrow, wide), nn.ReLU(), nn.MaxPool2d(2)]
            channels = wide
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(channels * _pooled(height, 3) * _pooled(width, 3), 256),
            nn.ReLU(),
            nn.Linear(256, 32),
            nn.ReLU(),
            nn.Linear(32, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.classifier(self.features(images))
        return out


class SimpleCNN(nn.Module):
    """The model of report B. The report gives no dropout rate; 0.5 is Srivastava et al.'s, JMLR 2014."""

    def __init__(self, shape: Shape, classes: int) -> None:
        super().__init__()
        channels, height, width = shape
        layers: list[nn.Module] = []
        for wide in (32, 64, 128):
            layers += [_conv3(channels, wide), nn.ReLU(), nn.MaxPool2d(2)]
            channels = wide
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Flatten(),
            nn.Linear(channels * _pooled(height, 3) * _pooled(width, 3), 512),
            nn.Dropout(0.5),
            nn.Linear(512, classes),
        )

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.classifier(self.features(images))
        return out


class SmallConvNet(nn.Module):
    """Two 3x3 convolutions, each with a ReLU and a pooling, and one linear layer."""

    def __init__(self, shape: Shape, classes: int, first: int, second: int) -> None:
        super().__init__()
        channels, height, width = shape
        self.features = nn.Sequential(
            _conv3(channels, first),
            nn.ReLU(),
            nn.MaxPool2d(2),
            _conv3(first, second),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classifier = nn.Sequential(
            nn.Flatten(), nn.Linear(second * _pooled(height, 2) * _pooled(width, 2), classes)
        )

    def forward(self, images: Tensor) -> Tensor:
        out: Tensor = self.classifier(self.features(images))
        return out


def mnist_convnet(shape: Shape, classes: int) -> nn.Module:
    """The model of report C: 4 and 8 channels, 4,266 parameters on MNIST."""
    return SmallConvNet(shape, classes, 4, 8)


def digits_convnet(shape: Shape, classes: int) -> nn.Module:
    """A small net for scikit-learn's digits: 16 and 32 channels, 6,090 parameters there."""
    return SmallConvNet(shape, classes, 16, 32)


MODELS: dict[str, Callable[[Shape, int], nn.Module]] = {
    "convnet": ConvNet,
    "simplecnn": SimpleCNN,
    "mnist_convnet": mnist_convnet,
    "digits_convnet": digits_convnet,
}


def find_model(name: str) -> Callable[[Shape, int], nn.Module]:
    """The builder of a model: called with the image shape and the number of classes, it gives the module.

    Args:
        name: a built-in name; `torchvision:NAME`, any of torchvision's classification models, without weights; or
            `module:function` of the user's own. That function gets the arguments `shape` and `classes` where it
            names them, and returns a module that maps images (batch x channels x height x width) to logits (batch x
            classes).

    Raises:
        UnknownNameError: there is no such model; the message lists those there are.
        UserCodeError: the user's module failed to import or to build.
    """
    if name in MODELS:
        return MODELS[name]
    if name.startswith("torchvision:"):
        return _torchvision_model(name)
    if is_reference(name):
        function = import_function(name, flag="model")
        return lambda shape, classes: _build_own(name, function, shape, classes)
    raise UnknownNameError(
        f"model={name} is unknown; choose from {', '.join(MODELS)}, torchvision:NAME (torchvision:resnet18, say), "
        "or module:function of your own."
    )


# In training these two return the logits of auxiliary classifiers as well.
_WITHOUT_AUX = {name: {"aux_logits": False, "init_weights": True} for name in ("googlenet", "inception_v3")}


def _torchvision_model(name: str) -> Callable[[Shape, int], nn.Module]:
    from torchvision import models

    offered = models.list_models(module=models)
    wanted = name.removeprefix("torchvision:")
    if wanted not in offered:
        raise UnknownNameError(f"model={name} is unknown; torchvision has {', '.join(offered)}.")

    def build(shape: Shape, classes: int) -> nn.Module:
        if shape[0] != 3:
            raise ConfigError(
                f"model={name} takes images of 3 channels, and these have {shape[0]}; "
                "use a model that takes them, or a data set in colour."
            )
        module: nn.Module = models.get_model(wanted, weights=None, num_classes=classes, **_WITHOUT_AUX.get(wanted, {}))
        return module

    return build


def build_model(config: TrialConfig, shape: Shape, classes: int) -> nn.Module:
    """The configured model with the configured batch normalisation and dropout.

    Raises:
        ConfigError: the model has no place for them.
        as `find_model` and its builder.
    """
    model = find_model(config.model)(shape, classes)
    if config.batch_norm != "off":
        if config.model in MODELS:
            _put_batch_norm(model)
        elif config.batch_norm == "on":
            raise ConfigError(
                f"batch_norm=on puts layers into built-in models, and model={config.model} is none; use batch_norm off "
                "for the layers it has, or sync to have them normalise over all ranks."
            )
    if config.batch_norm == "sync":
        model = nn.SyncBatchNorm.convert_sync_batchnorm(model)
    if config.dropout is not None:
        _set_dropout(model, config.model, config.dropout)
    return model


def _put_batch_norm(model: nn.Module) -> None:
    """A batch normalisation after each convolution, before its ReLU (Ioffe & Szegedy, arXiv 1502.03167)."""
    features = model.features
    assert isinstance(features, nn.Sequential)
    layers: list[nn.Module] = []
    for layer in features:
        layers.append(layer)
        if isinstance(layer, nn.Conv2d):
            layers.append(nn.BatchNorm2d(layer.out_channels))
    model.features = nn.Sequential(*layers)


def _set_dropout(model: nn.Module, name: str, rate: float) -> None:
    rates = [layer for layer in model.modules() if isinstance(layer, nn.Dropout | nn.Dropout2d | nn.AlphaDropout)]
    for layer in rates:
        layer.p = rate
    if rates:
        return
    if name not in MODELS:
        raise ConfigError(f"dropout={rate}: model={name} has no dropout layer; use a built-in model, or one with.")
    classifier = model.classifier
    assert isinstance(classifier, nn.Sequential)
    model.classifier = nn.Sequential(*classifier[:-1], nn.Dropout(rate), classifier[-1])


def check_fits(config: TrialConfig, shape: Shape, classes: int) -> None:
    """Refuse a model of ours or of torchvision's that cannot take such images; one of the user's own is not run here.

    Raises:
        ConfigError: the model does not take images of this shape, or has no place for batch norm or dropout.
    """
    name = config.model
    if is_reference(name) and not name.startswith("torchvision:"):
        return
    with torch.device("meta"):
        model = build_model(config, shape, classes)
        try:
            model(torch.empty(2, *shape))
        except (RuntimeError, ValueError, AssertionError) as error:
            reason = first_line(error)
            told = "x".join(map(str, shape))
            raise ConfigError(
                f"model={name} does not take images of {told} ({reason}); set image_size, or use another model."
            ) from error


def _build_own(name: str, function: Callable[..., object], shape: Shape, classes: int) -> nn.Module:
    offered = {"shape": shape, "classes": classes}
    parameters = inspect.signature(function).parameters
    takes_all = any(item.kind is inspect.Parameter.VAR_KEYWORD for item in parameters.values())
    try:
        module = function(**{key: value for key, value in offered.items() if takes_all or key in parameters})
    except Exception as error:
        raise UserCodeError(f"model={name}: your function failed: {type(error).__name__}: {error}.") from error
    if not isinstance(module, nn.Module):
        raise UserCodeError(f"model={name}: your function returned {type(module).__name__}; return a torch.nn.Module.")
    return module


def _conv3(narrow: int, wide: int) -> nn.Conv2d:
    return nn.Conv2d(narrow, wide, kernel_size=3, stride=1, padding=1)


def _pooled(pixels: int, times: int) -> int:
    side = pixels // 2**times
    if side == 0:
        raise ConfigError(
            f"images of {pixels} pixels are too small for {times} poolings; set image_size to {2**times} or more."
        )
    return side
