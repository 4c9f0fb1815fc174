"""The model of report B. The report does not give the dropout rate; 0.5 is Srivastava et al.'s, JMLR 2014."""

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
    for wide in (32, 64, 128):
        features += [conv3x3(channels, wide), nn.ReLU(), nn.MaxPool2d(2)]
        channels = wide
    head = [
        nn.Linear(flat_size(channels, shape, poolings=3), 512),
        nn.Dropout(0.5),
        nn.Linear(512, classes),
    ]
    return ImageClassifier(features, head)


MODEL = ModelSpec(build, min_image_side=8)
