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
