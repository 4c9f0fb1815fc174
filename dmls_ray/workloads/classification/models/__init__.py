"""Built-in models, one file each: `models/<name>.py` defines `MODEL`. A new file is a new model.

The files load PyTorch when a model is built, not when they are imported.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn

Shape = tuple[int, int, int]
"""Channels, height, width."""

ModelBuilder = Callable[[Shape, int], "nn.Module"]
"""Takes the shape of an image and the number of classes."""


@dataclass(frozen=True)
class ModelSpec:
    """A built-in model."""

    build: ModelBuilder
    min_image_side: int
    """Smallest image side in pixels that the model accepts."""


MODEL_NAMES = tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))
"""Names of the built-in models."""


def builtin_model(name: str) -> ModelSpec | None:
    """The built-in model of this name; None if there is none."""
    if name not in MODEL_NAMES:
        return None
    spec: ModelSpec = importlib.import_module(f"{__name__}.{name}").MODEL
    return spec


def two_convolutions(first: int, second: int) -> ModelBuilder:
    """The builder of two 3x3 convolutions with these channels, each with a ReLU and a pooling, and one linear layer."""

    def build(shape: Shape, classes: int) -> nn.Module:
        from torch import nn

        from dmls_ray.workloads.classification.layers import ImageClassifier, conv3x3, flat_size

        features: list[nn.Module] = []
        for channels, wide in ((shape[0], first), (first, second)):
            features += [conv3x3(channels, wide), nn.ReLU(), nn.MaxPool2d(2)]
        return ImageClassifier(features, [nn.Linear(flat_size(second, shape, poolings=2), classes)])

    return build
