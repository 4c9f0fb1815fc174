"""The built-in models, the entries of `MODELS`. A new entry is a new model.

PyTorch is loaded when a model is built, not when this module is imported.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

Shape = tuple[int, int, int]
"""Channels, height, width."""

ModelBuilder = Callable[[Shape, int], "nn.Module"]
"""Takes the shape of an image and the number of classes."""


def _convolutions(
    blocks: Sequence[Sequence[int]], hidden: Sequence[int] = (), *, dropout: float | None = None
) -> ModelBuilder:
    """The builder of a stack of convolutions, `features`, and of linear layers on its flattened output, `classifier`.

    Args:
        blocks: channels of the 3x3 convolutions of each block. Each has a ReLU, and a block ends with a pooling by two.
        hidden: sizes of the linear layers before the last.
        dropout: rate of what follows each of these; None: a ReLU.
    """

    def build(shape: Shape, classes: int) -> nn.Module:
        from torch import nn

        channels, height, width = shape
        features: list[nn.Module] = []
        for block in blocks:
            for wide in block:
                features += [nn.Conv2d(channels, wide, kernel_size=3, padding=1), nn.ReLU()]
                channels = wide
            features.append(nn.MaxPool2d(2))

        size = channels * (height // 2 ** len(blocks)) * (width // 2 ** len(blocks))
        head: list[nn.Module] = [nn.Flatten()]
        for wide in hidden:
            head += [nn.Linear(size, wide), nn.ReLU() if dropout is None else nn.Dropout(dropout)]
            size = wide
        head.append(nn.Linear(size, classes))
        return nn.Sequential(OrderedDict(features=nn.Sequential(*features), classifier=nn.Sequential(*head)))

    return build


# Report B does not give the rate; 0.5 is Srivastava et al.'s, JMLR 2014.
OWN_DROPOUT = {"simplecnn": 0.5}
"""Built-in model -> the rate of its dropout layers, of those that have any."""

MODELS: dict[str, ModelBuilder] = {
    # The light VGG of report A.
    "convnet": _convolutions([[32, 64], [128, 256], [256, 256]], [256, 32]),
    # 6,090 parameters on scikit-learn's digits.
    "digits_convnet": _convolutions([[16], [32]]),
    # The model of report C: 4,266 parameters on MNIST.
    "mnist_convnet": _convolutions([[4], [8]]),
    # The model of report B.
    "simplecnn": _convolutions([[32], [64], [128]], [512], dropout=OWN_DROPOUT["simplecnn"]),
}
