"""Values of fields that change the model, and that a torchvision or user-defined model cannot take."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from torch import nn

from dmls_ray.util.errors import InputError
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.data.decoded_images import peek_dataset
from dmls_ray.workloads.classification.model_builder import dropout_layers, find_model
from dmls_ray.workloads.classification.models import Shape
from dmls_ray.workloads.classification.quantization import export_error


def unfit_values(configs: Sequence[TrialConfig]) -> dict[tuple[str, str | float], str]:
    """(field, value) of configurations that their model cannot take -> the reason.

    Args:
        configs: configurations without built-in models, which take all values.
    """
    unfit: dict[tuple[str, str | float], str] = {}
    groups: dict[tuple[str, str, str | None, int | None], list[TrialConfig]] = {}
    for config in configs:
        if config.batch_norm == "on":
            unfit["batch_norm", "on"] = f"it puts layers into built-in models, and model={config.model} is none"
        if config.dropout is not None or config.quantization != "off":
            groups.setdefault((config.model, config.dataset, config.data_dir, config.image_size), []).append(config)

    for (name, dataset, data_dir, image_size), group in groups.items():
        try:
            shape, classes, _ = peek_dataset(dataset, data_dir, image_size)
            model = find_model(name)(shape, classes)
        except InputError:
            # It may need a GPU or files that only the machines of the ranks have: an error is theirs to report.
            continue
        if not dropout_layers(model):
            rates = [config.dropout for config in group if config.dropout is not None]
            unfit |= {("dropout", rate): f"model={name} has no dropout layer" for rate in rates}
        for kind in dict.fromkeys(config.quantization for config in group if config.quantization != "off"):
            if error := _export_error(model, kind, shape):
                unfit["quantization", kind] = f"torch.export cannot export model={name} ({error})"
    return unfit


def _export_error(model: nn.Module, kind: str, shape: Shape) -> str:
    # Without torchao the runs are skipped, with that reason.
    return export_error(model, kind, shape) if importlib.util.find_spec("torchao") else ""
