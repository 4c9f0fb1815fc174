"""A small net for scikit-learn's digits: 16 and 32 channels, 6,090 parameters there."""

from __future__ import annotations

from dmls_ray.workloads.classification.models import ModelSpec, two_convolutions

MODEL = ModelSpec(two_convolutions(16, 32), min_image_side=4)
