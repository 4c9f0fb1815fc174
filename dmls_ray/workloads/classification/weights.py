"""The description of saved weights: what opens them in plain PyTorch."""

from __future__ import annotations

from typing import Any

from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.data.loaders import Loader
from dmls_ray.workloads.classification.model_builder import building_code


def describe_weights(config: TrialConfig, loader: Loader, metrics: dict[str, float]) -> dict[str, Any]:
    """The content of weights.json, next to weights.pt.

    A model gets `(pixels / divide_by - mean) / std`, float32 of batch x channels x height x width. `python` is a list
    of lines that run in the folder of the file.

    Args:
        config: the configuration that was trained.
        loader: the data.
        metrics: losses and accuracies that the weights reach.
    """
    channels = loader.shape[0]
    divide_by, mean, std = (1, 0.0, 1.0) if loader.is_normalized else (255, 0.5, 0.5)
    pixels = "float32, as the data set has them" if loader.is_normalized else "uint8 from 0 to 255"
    size = " x ".join(map(str, loader.shape))
    return {
        "model": str(config.model),
        "dataset": str(config.dataset),
        "input": {
            "shape": list(loader.shape),
            "pixels": pixels,
            "image_size": config.image_size,
            "divide_by": divide_by,
            "mean": [mean] * channels,
            "std": [std] * channels,
        },
        "classes": loader.class_names,
        "precision": config.precision,
        "metrics": metrics,
        "python": [
            "import torch",
            *building_code(config, loader.shape, loader.classes),
            'model.load_state_dict(torch.load("weights.pt", map_location="cpu", weights_only=True))',
            "model.eval()",
            f"classes = {loader.class_names}",
            "@torch.no_grad()",
            f"def predict(pixels):  # batch x {size}, {pixels}",
            f"    return model((pixels.float() / {divide_by} - {mean}) / {std}).argmax(1)",
        ],
    }
