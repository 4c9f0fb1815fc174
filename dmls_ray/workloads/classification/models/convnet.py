"""The light VGG of report A: three blocks of two 3x3 convolutions and a pooling, then three linear layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dmls_ray.workloads.classification.models import ModelSpec, Shape

if TYPE_CHECKING:
    from torch import nn


def build(shape: Shape, classes: int) -> nn.Module:
    from torch import nn

    from dmls_ray.workloads.classification.layers import ImageClassifier, conv3x3, flat_size

    channels = shape[0]
    features: list[nn.Module] = []
    for narrow, wide in ((32, 64), (128, 256), (256, 256)):
        features += [conv3x3(channels, narrow), nn.ReLU(), conv3x3(narrow, wide), nn.ReLU(), nn.MaxPool2d(2)]
        channels = wide
    head = [
        nn.Linear(flat_size(channels, shape, poolings=3), 256),
        nn.ReLU(),
        nn.Linear(256, 32),
        nn.ReLU(),
        nn.Linear(32, classes),
    ]
    return ImageClassifier(features, head)


MODEL = ModelSpec(build, min_image_side=8)
