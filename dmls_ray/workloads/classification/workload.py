"""The workload that trains image classifiers, and what it measures besides training.

Models and data sets that are given to `sweep` as Python objects follow the rules of training functions: a function or
class that other processes can import has the name `module:function`. Any other is sent to the ranks: its name is
recorded, with the digest of its code as its version.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from dmls_ray.records.metrics import LEARNED, TRAINING_METRICS, Direction, FormatName, Kind, Metric
from dmls_ray.records.provenance import machine_facts
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.importing import is_reference
from dmls_ray.workloads.base import Workload
from dmls_ray.workloads.classification.config import DEFAULTS, TrialConfig
from dmls_ray.workloads.classification.datasets import builtin_dataset
from dmls_ray.workloads.classification.models import MODELS, OWN_DROPOUT
from dmls_ray.workloads.user_function.schema import function_name
from dmls_ray.workloads.user_function.sent import SentName, send

_ASKED = {"asked_by": ("quantization",)}
"""Of metrics that a sweep of quantization asks for."""

_SIDE_THAT_FITS = 8
"""Pixels a side of images that every built-in model takes."""


def _row(name: str, label: str, kind: Kind, direction: Direction, format: FormatName, doc: str, **more: Any) -> Metric:
    return Metric(
        name=name, label=label, kind=kind, direction=direction, scope="run", format=format, doc=doc, **more
    )  # fmt: skip


INFERENCE_METRICS: tuple[Metric, ...] = (
    _row("fp32_test_accuracy", "fp32 test acc.", "share", "max", "accuracy",
         "Test accuracy in fp32, with quantization.", share_of="test_samples", spare=2, **_ASKED),
    _row("int8_test_accuracy", "int8 test acc.", "share", "max", "accuracy",
         "Test accuracy of the int8 form of the model.", share_of="test_samples", interval=True, **_ASKED),
    _row("fp32_checkpoint_bytes", "fp32 bytes", "amount", "min", "whole", "Size of the fp32 checkpoint.",
         is_exact=True, **_ASKED),
    _row("int8_checkpoint_bytes", "int8 bytes", "amount", "min", "whole", "Size of the int8 checkpoint.",
         is_exact=True, **_ASKED),
    _row("fp32_eager_ms_p50", "fp32 eager ms", "amount", "min", "seconds",
         "Median latency of inference_batch samples on one rank.", spare=1),
    _row("fp32_compiled_ms_p50", "fp32 compiled ms", "amount", "min", "seconds",
         "Median latency of the compiled model in fp32.", **_ASKED),
    _row("int8_compiled_ms_p50", "int8 compiled ms", "amount", "min", "seconds",
         "Median latency of the compiled model in int8.", **_ASKED),
    _row("quantize_s", "", "value", "none", "whole",
         "Seconds of converting and compiling to int8, part of between_s and inference_s."),
    _row("fp32_eager_ms_p95", "", "value", "none", "whole", "95th percentile of the latency in fp32."),
    _row("fp32_compiled_ms_p95", "", "value", "none", "whole",
         "95th percentile of the latency of the compiled model in fp32."),
    _row("int8_compiled_ms_p95", "", "value", "none", "whole",
         "95th percentile of the latency of the compiled model in int8."),
)  # fmt: skip


class ClassificationWorkload(Workload):
    """Training of image classifiers, configured by `TrialConfig`."""

    name = "classification"
    config = TrialConfig
    fixed: ClassVar[Mapping[str, Any]] = {}
    entrypoint = "dmls_ray.workloads.classification.train:train_rank"
    saves_weights = True
    metrics = (*TRAINING_METRICS, *INFERENCE_METRICS)
    durations_compare = True
    presentation = "dmls_ray.analysis.workloads.classification:ClassificationPresentation"
    questions = "dmls_ray.analysis.workloads.classification:ClassificationQuestions"
    epoch_metrics = LEARNED

    def name_objects(self, axes: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the axes with a name in place of each model and each data set that is an object.

        Args:
            axes: `model` is a function or class that returns a model; `dataset` is a function or class that is called
                with a split and returns its samples, or a dict of the samples of "train" and "test". Each may be a
                sequence of these, and of names.

        Raises:
            ConfigError: an object is a model already made, no model, or no two splits; or two objects have one name.
            UserCodeError: an object cannot be sent to another process.
        """
        named = dict(axes)
        digests: dict[str, str] = {}
        for field in ("model", "dataset"):
            given = axes.get(field)
            if isinstance(given, Sequence | set | frozenset) and not isinstance(given, str):
                named[field] = [_name_of(field, value, digests) for value in given]
            elif given is not None:
                named[field] = _name_of(field, given, digests)
        return named

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
        if config.dropout is not None:
            from dmls_ray.workloads.classification.model_builder import own_dropout

            if own_dropout(config.model, *_data_of(config)) == []:
                given = f"dropout={config.dropout}: model={config.model}"
                return f"{given} has no dropout layer; use dropout none, or a model with dropout layers."
        return ""

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
        """Decode each data set once, so that bad data are reported in one line before Ray starts; name slow precisions.

        Raises:
            ConfigError, UserCodeError, DataError: a data set cannot be used, or its images do not fit a model.
        """
        from dmls_ray.workloads.classification.data import decoded_images, sources

        # What an earlier sweep of this process has read may have changed since.
        sources.cached_source.cache_clear()
        decoded_images.load_decoded.cache_clear()
        for dataset in dict.fromkeys((config.dataset, config.data_dir) for config in configs):
            if note := sources.cached_source(*dataset).note:
                notify(note)
        for config in configs:
            data = _data_of(config)
            if config.loader == "resident":
                if not decoded_images.is_decoded(*data):
                    notify(f"Preparing {config.dataset}, once on this machine ...")
                decoded = decoded_images.load_decoded(*data)
                shape, classes, samples = decoded.shape, len(decoded.class_names), len(decoded.train_labels)
            else:
                shape, classes, samples = decoded_images.peek_dataset(*data)
            if config.train_samples is not None and config.train_samples > samples:
                raise ConfigError(
                    f"train_samples={config.train_samples}: {config.dataset} has {samples:,} training samples; give "
                    "at most that many, or leave it out to use all."
                )
            config.held_out(config.train_samples or samples)
            # PyTorch takes seconds to load: of built-in models, only small images are checked.
            if config.model not in MODELS or min(shape[1:]) < _SIDE_THAT_FITS:
                from dmls_ray.workloads.classification.model_builder import check_fits

                check_fits(config.model, shape, classes)
        for model, own, rate in dict.fromkeys(_changed_dropout(config) for config in configs):
            if own is not None:
                notify(f"model={model} has dropout of its own: dropout={rate} changes it from {own} to {rate}.")
        in_order = {(config.loader, *_data_of(config)): config for config in configs if not config.shuffle}
        for config in in_order.values():
            if _lie_by_class(config):
                notify(
                    f"shuffle=false: the training samples of {config.dataset} lie by class, so a batch has only one "
                    "or a few classes and the model may learn no more than guessing; use shuffle true."
                )
        halved = {config.precision for config in configs} & {"amp-bf16", "amp-fp16"}
        if halved and not machine_facts()["gpus"]:
            from dmls_ray.training.precision import slow_precisions

            for precision in slow_precisions(halved):
                notify(
                    f"This processor has no hardware support for {precision}: runs may take many times as long as "
                    "in fp32."
                )

    def cached_data(self, configs: Sequence[TrialConfig]) -> tuple[tuple[Any, ...], ...]:
        return tuple(dict.fromkeys(_data_of(config) for config in configs if config.loader == "resident"))

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


WORKLOAD = ClassificationWorkload


def _changed_dropout(config: TrialConfig) -> tuple[str, float | None, float | None]:
    """A model, the rate of its own dropout where the configuration has another one, or None, and that one."""
    if config.dropout is None:
        return config.model, None, None
    if config.model in MODELS:
        own = OWN_DROPOUT.get(config.model)
    else:
        from dmls_ray.workloads.classification.model_builder import own_dropout

        own = max(own_dropout(config.model, *_data_of(config)) or [], default=None)
    return config.model, None if own == config.dropout else own, config.dropout


_FEW_CHANGES = 0.25
"""Share of the neighbours of another class, of those that random order would have, below which samples lie by class."""


def _lie_by_class(config: TrialConfig) -> bool:
    """Whether the training samples of a configuration are in the order of their classes; False if that is unknown."""
    import numpy as np

    from dmls_ray.workloads.classification.data import decoded_images, sources

    if config.loader == "resident":
        labels = decoded_images.load_decoded(*_data_of(config)).train_labels
    else:
        labels = np.asarray(sources.listed_labels(sources.cached_source(config.dataset, config.data_dir).halves[0]))
    if labels.ndim != 1 or len(labels) < 2:
        return False
    _, counts = np.unique(labels, return_counts=True)
    in_random_order = 1 - float(((counts / len(labels)) ** 2).sum())
    return float((labels[1:] != labels[:-1]).mean()) < _FEW_CHANGES * in_random_order


def _data_of(config: TrialConfig) -> tuple[str, str | None, int | None]:
    """What names the decoded images of a configuration."""
    return config.dataset, config.data_dir, config.image_size


def _name_of(field: str, value: Any, digests: dict[str, str]) -> str:
    """The name of an object; a text as it is.

    Args:
        field: `model` or `dataset`.
        value: the object.
        digests: names of earlier objects -> their digests; gets this one, too.

    Raises:
        ConfigError, UserCodeError: as `ClassificationWorkload.name_objects`.
    """
    if isinstance(value, str):
        return value
    if field == "dataset" and isinstance(value, Mapping) and value.keys() == {"train", "test"}:
        name, value = type(value["train"]).__qualname__, functools.partial(operator.getitem, dict(value))
    else:
        _check_object(field, value)
        name, is_importable = function_name(value, flag=field)
        if is_importable:
            return name
    sent = send(value, value, given=f"{field}={name}")
    # A name means one thing in the records.
    if name in MODELS or builtin_dataset(name):
        raise ConfigError(f"{field}={name} is the name of a built-in one; give yours another name.")
    if digests.setdefault(name, sent.digest) != sent.digest:
        raise ConfigError(f"{field}={name} is the name of two different objects; give each another name.")
    return SentName(name, sent)


def _check_object(field: str, value: Any) -> None:
    """Refuse what makes no model, or no samples of a split.

    Raises:
        ConfigError: with the type of the object, and what to give.
    """
    shown = f"{field}=<{type(value).__qualname__}>"
    if field == "dataset" and (hasattr(type(value), "__getitem__") or not callable(value)):
        raise ConfigError(
            f"{shown} is not the samples of two splits; give {{'train': ..., 'test': ...}}, or a function that returns "
            "the samples of the split that it is given."
        )
    torch = sys.modules.get("torch")
    is_made = torch is not None and isinstance(value, torch.nn.Module)
    if is_made or not callable(value):
        raise ConfigError(f"{shown} makes no model for each run; give its class, or a function that returns a new one.")
