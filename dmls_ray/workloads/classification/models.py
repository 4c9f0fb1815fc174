"""The built-in models, the entries of `MODELS`. A new entry is a new model.

PyTorch is loaded when a model is built, not when this module is imported.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

Shape = tuple[int, int, int]
"""Channels, height, width."""

ModelBuilder = Callable[[Shape, int], "nn.Module"]
"""Takes the shape of an image and the number of classes."""


def _conv3x3(in_channels: int, out_channels: int) -> list[nn.Module]:
    """A convolution that keeps height and width, and its ReLU."""
    from torch import nn

    return [nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1), nn.ReLU()]


def _flat_size(channels: int, shape: Shape, poolings: int) -> int:
    """Number of values of an image after convolutions to `channels` channels and poolings by two."""
    _, height, width = shape
    return channels * (height // 2**poolings) * (width // 2**poolings)


def _classifier(features: list[nn.Module], head: list[nn.Module]) -> nn.Module:
    """A stack of convolutions, `features`, and a head on their flattened output, `classifier`."""
    from torch import nn

    parts = {"features": nn.Sequential(*features), "classifier": nn.Sequential(nn.Flatten(), *head)}
    return nn.Sequential(OrderedDict(parts))


def _two_convolutions(first: int, second: int) -> ModelBuilder:
    """The builder of two 3x3 convolutions with these channels, each with a ReLU and a pooling, and one linear layer."""

    def build(shape: Shape, classes: int) -> nn.Module:
        from torch import nn

        features: list[nn.Module] = []
        for channels, wide in ((shape[0], first), (first, second)):
            features += [*_conv3x3(channels, wide), nn.MaxPool2d(2)]
        return _classifier(features, [nn.Linear(_flat_size(second, shape, poolings=2), classes)])

    return build


def _convnet(shape: Shape, classes: int) -> nn.Module:
    """The light VGG of report A: three blocks of two 3x3 convolutions and a pooling, then three linear layers."""
    from torch import nn

    channels = shape[0]
    features: list[nn.Module] = []
    for narrow, wide in ((32, 64), (128, 256), (256, 256)):
        features += [*_conv3x3(channels, narrow), *_conv3x3(narrow, wide), nn.MaxPool2d(2)]
        channels = wide
    flat = nn.Linear(_flat_size(channels, shape, poolings=3), 256)
    return _classifier(features, [flat, nn.ReLU(), nn.Linear(256, 32), nn.ReLU(), nn.Linear(32, classes)])


def _simplecnn(shape: Shape, classes: int) -> nn.Module:
    """The model of report B. The report does not give the dropout rate; 0.5 is Srivastava et al.'s, JMLR 2014."""
    from torch import nn

    channels = shape[0]
    features: list[nn.Module] = []
    for wide in (32, 64, 128):
        features += [*_conv3x3(channels, wide), nn.MaxPool2d(2)]
        channels = wide
    flat = nn.Linear(_flat_size(channels, shape, poolings=3), 512)
    return _classifier(features, [flat, nn.Dropout(0.5), nn.Linear(512, classes)])


MODELS: dict[str, ModelBuilder] = {
    "convnet": _convnet,
    # 6,090 parameters on scikit-learn's digits.
    "digits_convnet": _two_convolutions(16, 32),
    # The model of report C: 4,266 parameters on MNIST.
    "mnist_convnet": _two_convolutions(4, 8),
    "simplecnn": _simplecnn,
}
