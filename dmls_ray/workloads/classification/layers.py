"""Parts of the built-in models."""

from __future__ import annotations

from torch import Tensor, nn

from dmls_ray.workloads.classification.models import Shape


class ImageClassifier(nn.Module):
    """A stack of convolutions, `features`, and a head on their flattened output, `classifier`."""

    def __init__(self, features: list[nn.Module], head: list[nn.Module]) -> None:
        super().__init__()
        self.features = nn.Sequential(*features)
        self.classifier = nn.Sequential(nn.Flatten(), *head)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.features(images))
        return logits


def conv3x3(in_channels: int, out_channels: int) -> nn.Conv2d:
    """A convolution that keeps height and width."""
    return nn.Conv2d(in_channels, out_channels, kernel_size=3, stride=1, padding=1)


def flat_size(channels: int, shape: Shape, poolings: int) -> int:
    """Number of values of an image after convolutions to `channels` channels and poolings by two."""
    _, height, width = shape
    return channels * (height // 2**poolings) * (width // 2**poolings)
