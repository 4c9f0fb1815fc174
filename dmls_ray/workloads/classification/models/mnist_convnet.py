"""The model of report C: 4 and 8 channels, 4,266 parameters on MNIST."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dmls_ray.workloads.classification.models import ModelSpec, Shape

if TYPE_CHECKING:
    from torch import nn


def build(shape: Shape, classes: int) -> nn.Module:
    from dmls_ray.workloads.classification.layers import two_convolutions

    return two_convolutions(shape, classes, 4, 8)


MODEL = ModelSpec(build, min_image_side=4)
