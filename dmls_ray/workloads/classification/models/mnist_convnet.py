"""The model of report C: 4 and 8 channels, 4,266 parameters on MNIST."""

from __future__ import annotations

from dmls_ray.workloads.classification.models import ModelSpec, two_convolutions

MODEL = ModelSpec(two_convolutions(4, 8), min_image_side=4)
