"""A small net for scikit-learn's digits: 16 and 32 channels, 6,090 parameters there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dmls_ray.workloads.classification.models import ModelSpec, Shape

if TYPE_CHECKING:
    from torch import nn


def build(shape: Shape, classes: int) -> nn.Module:
    from dmls_ray.workloads.classification.layers import two_convolutions

    return two_convolutions(shape, classes, 16, 32)


MODEL = ModelSpec(build, min_image_side=4)
