"""Values of fields that change the model, and that a torchvision or user-defined model cannot take."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from dmls_ray.util.errors import InputError
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.data.decoded_images import peek_dataset
from dmls_ray.workloads.classification.model_builder import dropout_layers, find_model


def unfit_values(configs: Sequence[TrialConfig]) -> dict[tuple[str, str | float], str]:
    """(field, value) of configurations that their model cannot take -> the reason.

    Args:
        configs: configurations without built-in models, which take all values.
    """
    unfit: dict[tuple[str, str | float], str] = {}
    for config in configs:
        if config.batch_norm == "on":
            unfit["batch_norm", "on"] = f"it puts layers into built-in models, and model={config.model} is none"
        if config.dropout is not None and not _has_dropout(
            config.model, config.dataset, config.data_dir, config.image_size
        ):
            unfit["dropout", config.dropout] = f"model={config.model} has no dropout layer"
    return unfit


@functools.cache
def _has_dropout(model: str, dataset: str, data_dir: str | None, image_size: int | None) -> bool:
    try:
        shape, classes, _ = peek_dataset(dataset, data_dir, image_size)
        return bool(dropout_layers(find_model(model)(shape, classes)))
    except InputError:
        # It may need a GPU or files that only the machines of the ranks have: an error is theirs to report.
        return True
