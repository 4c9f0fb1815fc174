"""What the built-in trial needs before ranks start: models and data that are there and fit; else one line tells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from dmls_ray.config.grid import Run
from dmls_ray.records.provenance import slow_precisions
from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.classification.config import BUILTIN_MODELS, TrialConfig


def check_names(runs: Sequence[Run]) -> None:
    """Refuse models and data sets that do not exist, before anything starts.

    Raises:
        UnknownNameError, UserCodeError, ConfigError, DataError: as `find_model` and `check_source`.
    """
    from dmls_ray.training.data.sources import check_source

    configs = _trials(runs)
    for model in dict.fromkeys(config.model for config in configs):
        if model not in BUILTIN_MODELS:
            from dmls_ray.training.models import find_model

            find_model(model)
    for dataset, data_dir in dict.fromkeys((config.dataset, config.data_dir) for config in configs):
        check_source(dataset, data_dir)


def prepare(runs: Sequence[Run], notify: Callable[[str], None]) -> None:
    """Decode each data set once, here, so that bad data are told in one line before Ray starts.

    Raises:
        ConfigError, UserCodeError, DataError: a data set cannot be used, or a model does not fit it.
    """
    configs = _trials(runs)
    models: dict[tuple[Any, ...], tuple[TrialConfig, tuple[int, int, int], int]] = {}
    for config in configs:
        shape, classes, samples = _look_at_data(config, notify)
        config.held_out(samples)
        if config.model not in BUILTIN_MODELS:
            kind = (config.model, config.batch_norm, config.dropout, shape, classes)
            models[kind] = (config, shape, classes)
        elif min(shape[1:]) < BUILTIN_MODELS[config.model]:
            raise ConfigError(
                f"model={config.model} takes images of {BUILTIN_MODELS[config.model]} pixels a side or more, and "
                f"those of {config.dataset} have {min(shape[1:])}; set image_size, or use another model."
            )
    for model in models.values():
        from dmls_ray.training.models import check_fits

        check_fits(*model)
    slow = {config.precision for config in configs} & slow_precisions()
    if slow:
        notify(
            f"This processor has no units for {', '.join(sorted(slow))}: such runs may take many times as long as in "
            "fp32."
        )


def wanted_data(runs: Sequence[Run]) -> tuple[tuple[str, str | None, int | None], ...]:
    """Name, folder and image size of each data set that ranks will want decoded."""
    configs = [config for config in _trials(runs) if config.loader == "resident"]
    return tuple(dict.fromkeys((config.dataset, config.data_dir, config.image_size) for config in configs))


def _look_at_data(config: TrialConfig, notify: Callable[[str], None]) -> tuple[tuple[int, int, int], int, int]:
    """Shape, classes and training samples of a data set, which is decoded where ranks will want it so."""
    from dmls_ray.training.data.cache import decoded, is_decoded, look_at

    wanted = (config.dataset, config.data_dir, config.image_size)
    if config.loader != "resident":
        return look_at(*wanted)
    if not is_decoded(*wanted):
        notify(f"Preparing {config.dataset}, once on this machine ...")
    data = decoded(*wanted)
    return data.shape, data.classes, len(data.train_labels)


def _trials(runs: Sequence[Run]) -> list[TrialConfig]:
    """A function of the user's own brings its models and data along."""
    return [run.config for run in runs if isinstance(run.config, TrialConfig)]
