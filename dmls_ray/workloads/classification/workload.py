"""The workload that trains image classifiers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from dmls_ray.records.metrics import LEARNED
from dmls_ray.records.provenance import slow_precisions
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.importing import is_reference
from dmls_ray.workloads.base import Workload
from dmls_ray.workloads.classification import objects
from dmls_ray.workloads.classification.config import DEFAULTS, TrialConfig
from dmls_ray.workloads.classification.datasets import builtin_dataset
from dmls_ray.workloads.classification.metrics import CLASSIFICATION_METRICS
from dmls_ray.workloads.classification.models import MODELS
from dmls_ray.workloads.user_function.sent import SentName

_GUESSED_STEP_S = 0.003
"""An optimizer step of a small model on a CPU core."""


class ClassificationWorkload(Workload):
    """Training of image classifiers, configured by `TrialConfig`."""

    name = "classification"
    config = TrialConfig
    fixed: ClassVar[Mapping[str, Any]] = {}
    entrypoint = "dmls_ray.workloads.classification.train:train_rank"
    writes_traces = True
    saves_weights = True
    metrics = CLASSIFICATION_METRICS
    throughput = "images_per_s"
    durations_compare = True
    presentation = "dmls_ray.workloads.classification.presentation:ClassificationPresentation"
    questions = "dmls_ray.workloads.classification.presentation:ClassificationQuestions"
    epoch_metrics = LEARNED

    def name_objects(self, axes: Mapping[str, Any]) -> Mapping[str, Any]:
        """The axes with a name in place of each model and data set that is given as a Python object.

        Raises:
            ConfigError, UserCodeError: as `objects.name_objects`.
        """
        return objects.name_objects(axes)

    def factors(self, config: Mapping[str, Any]) -> dict[str, Any]:
        # Fields of a newer version, or of a published report, come last.
        factors = {**DEFAULTS, **config}
        if factors["batch_per_rank"] is not None:
            factors["global_batch"] = factors["batch_per_rank"] * factors["world_size"] * factors["accum_steps"]
        return factors

    def infeasible_reason(self, config: TrialConfig) -> str:
        """Why its model has no place for batch_norm or dropout, as built-in models have."""
        if config.model in MODELS:
            return ""
        if config.batch_norm == "on":
            return (
                f"batch_norm=on puts layers into built-in models, and model={config.model} is none; use batch_norm off "
                "for the layers it has, or sync to have them normalise over all ranks."
            )
        if config.dropout is None:
            return ""
        from dmls_ray.workloads.classification.model_builder import has_dropout

        if has_dropout(config.model, *_data_of(config)):
            return ""
        return (
            f"dropout={config.dropout}: model={config.model} has no dropout layer; use dropout none, or a model with "
            "dropout layers."
        )

    def check(self, configs: Sequence[TrialConfig]) -> None:
        """Refuse models and data sets that do not exist.

        Raises:
            UnknownNameError, UserCodeError, ConfigError, DataError: as `find_model` and `check_source`.
        """
        from dmls_ray.workloads.classification.data.sources import check_source

        for model in {config.model for config in configs} - set(MODELS):
            from dmls_ray.workloads.classification.model_builder import find_model

            find_model(model)
        for dataset, data_dir in {(config.dataset, config.data_dir) for config in configs}:
            check_source(dataset, data_dir)

    def prepare(self, configs: Sequence[TrialConfig], notify: Callable[[str], None]) -> None:
        """Decode each data set once, so that bad data are reported in one line before Ray starts.

        Raises:
            ConfigError, UserCodeError, DataError: a data set cannot be used, or a model does not fit it.
        """
        from dmls_ray.workloads.classification.data import decoded_images, sources

        # What an earlier sweep of this process has read may have changed since.
        sources.cached_source.cache_clear()
        decoded_images.load_decoded.cache_clear()
        for config in configs:
            data = _data_of(config)
            if config.loader == "resident":
                if not decoded_images.is_decoded(*data):
                    notify(f"Preparing {config.dataset}, once on this machine ...")
                decoded = decoded_images.load_decoded(*data)
                shape, classes, samples = decoded.shape, decoded.classes, len(decoded.train_labels)
            else:
                shape, classes, samples = decoded_images.peek_dataset(*data)
            config.held_out(samples)
            if (spec := MODELS.get(config.model)) is None:
                from dmls_ray.workloads.classification.model_builder import check_fits

                check_fits(config.model, shape, classes)
            elif min(shape[1:]) < spec.min_image_side:
                raise ConfigError(
                    f"model={config.model} takes images of {spec.min_image_side} pixels a side or more, and those of "
                    f"{config.dataset} have {min(shape[1:])}; set image_size, or use another model."
                )
        if slow := {config.precision for config in configs} & slow_precisions():
            notify(
                f"This processor has no units for {', '.join(sorted(slow))}: such runs may take many times as long as "
                "in fp32."
            )

    def cached_data(self, configs: Sequence[TrialConfig]) -> tuple[tuple[Any, ...], ...]:
        resident = (config for config in configs if config.loader == "resident")
        return tuple(dict.fromkeys(map(_data_of, resident)))

    def load_cached(self, *arguments: Any) -> None:
        from dmls_ray.workloads.classification.data.decoded_images import load_decoded

        load_decoded(*arguments)

    def modules(self, config: TrialConfig) -> Sequence[str]:
        modules: list[str] = []
        for name in (config.model, config.dataset):
            if isinstance(name, SentName):
                modules += name.sent.modules
            elif is_reference(name) and not name.startswith("torchvision:") and builtin_dataset(name) is None:
                modules.append(name.partition(":")[0])
        return modules

    def functions(self, config: TrialConfig) -> Mapping[str, str]:
        names = (config.model, config.dataset)
        return {str(name): name.sent.digest for name in names if isinstance(name, SentName)}

    def data_sets(self, config: TrialConfig) -> Mapping[str, tuple[Any, ...]]:
        spec = builtin_dataset(config.dataset)
        if spec is not None and not spec.has_user_files:
            return {}
        place = f" in {config.data_dir}" if config.data_dir else ""
        return {f"{config.dataset}{place}": (config.dataset, config.data_dir)}

    def fingerprint(self, *arguments: Any) -> str:
        from dmls_ray.workloads.classification.data.sources import fingerprint_of

        return fingerprint_of(*arguments)

    def estimate_s(self, config: TrialConfig) -> float | None:
        spec = builtin_dataset(config.dataset)
        samples = spec.train_samples(config.dataset) if spec else None
        if samples is None:
            return None
        return config.epochs * math.ceil(samples / config.samples_per_pass) * _GUESSED_STEP_S


WORKLOAD = ClassificationWorkload


def _data_of(config: TrialConfig) -> tuple[str, str | None, int | None]:
    """What names the decoded images of a configuration."""
    return config.dataset, config.data_dir, config.image_size
