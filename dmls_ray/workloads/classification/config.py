"""`TrialConfig`: one configuration of image classification. Every field can be an axis of a sweep.

>>> config = TrialConfig(world_size=2, batch_per_rank=32)
>>> config.global_batch
64
>>> config.replace(global_batch=128).batch_per_rank
64
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from dmls_ray.config.fields import as_flag_value, field_defaults, field_specs, setting
from dmls_ray.config.hashing import digest_of_changes
from dmls_ray.config.runtime import Conflict
from dmls_ray.config.schema import Schema
from dmls_ray.config.training import TrainingConfig

BatchNorm = Literal["off", "on", "sync"]
Augmentation = Literal["none", "flip", "crop", "flip-crop"]
StoppingMetric = Literal["off", "test_loss", "test_accuracy", "validation_loss", "validation_accuracy"]
MemoryFormat = Literal["contiguous", "channels_last"]
Quantization = Literal["off", "dynamic", "static", "qat"]
LoaderName = Literal["resident", "dataloader"]


def _not_with_quantization(name: str, allowed: Sequence[Any]) -> Conflict:
    way_out = as_flag_value(allowed[-1])
    return Conflict(
        lambda config: config.quantization != "off" and getattr(config, name) not in allowed,
        f"quantization={{quantization}} does not go with {name}={{{name}}}; use {name} {way_out}.",
    )


@dataclass(frozen=True, kw_only=True)
class TrialConfig(TrainingConfig):
    """One configuration of image classification, checked when it is made.

    Give exactly one of `batch_per_rank` and `global_batch`; the other follows from
    ``global_batch = batch_per_rank x world_size x accum_steps``.

    Raises:
        ConfigError: a value breaks a rule of its field.
        ConflictError: values that are valid alone do not go together.
    """

    model: str = setting("digits_convnet", not_empty=True)
    """A built-in model, torchvision:NAME, or a user-defined module:function."""

    dataset: str = setting("digits", not_empty=True)
    """A built-in data set, synthetic:shape=3x32x32,classes=10,train=2048,test=512, or module:function."""

    data_dir: str | None = None
    """Folder that holds the data set; without it, downloads go to the user's cache folder."""

    image_size: int | None = setting(None, at_least=1, unit="pixels a side")
    """Resize every image to this many pixels a side, once, when the data set is prepared."""

    dropout: float | None = setting(None, at_least=0, below=1, family="regulariser")
    """Rate of the model's dropout layers, whatever it was; built-in models without any get one before their last linear
    layer."""

    # SyncBatchNorm does not accept CPU tensors.
    batch_norm: BatchNorm = setting("off", gpu_only=("sync", "Use batch_norm on"), family="regulariser")
    """Batch normalisation: on puts one after each convolution of a built-in model; sync is over all ranks (GPUs)."""

    label_smoothing: float = setting(0.0, at_least=0, below=1, family="regulariser")
    """Share of the target that is spread over all classes."""

    augmentation: Augmentation = setting("none", family="regulariser")
    """Random changes of the training images: horizontal flips, crops of the image padded by an eighth of its side."""

    early_stopping: StoppingMetric = setting("off", family="regulariser")

    patience: int = setting(
        2,
        at_least=1,
        counts_with=("early_stopping", ("test_loss", "test_accuracy", "validation_loss", "validation_accuracy")),
    )

    target_accuracy: float | None = setting(None, above=0, at_most=1)
    """Test accuracy from 0 to 1; the record contains the epoch, steps and time at which it was first reached."""

    stop_at_target: bool = False
    """End the training after the epoch that reaches target_accuracy."""

    target_tests: int = setting(1, at_least=1)
    """Tests per epoch that look for target_accuracy. No time of a run contains those within an epoch."""

    memory_format: MemoryFormat = "contiguous"
    """Layout of images and convolution weights in memory."""

    quantization: Quantization = "off"
    """int8 by torchao, on CPUs: qat trains with it simulated; static and dynamic convert what was trained in fp32."""

    inference_batch: int | None = setting(None, at_least=1)
    """Samples of a forward pass whose latency is measured after training; without it, none is."""

    loader: LoaderName = "resident"
    """resident: decoded once, kept on the device; dataloader: torchvision's ordinary path with worker processes."""

    loader_workers: int = setting(2, at_least=0, counts_with=("loader", ("dataloader",)))
    """Worker processes of each DataLoader of a rank with loader=dataloader. A rank has one DataLoader for training, one
    for tests and, where they are made, one for validation and one for the evaluation on training samples. The processes
    stay until the run ends; host_mem_mib does not count them."""

    FIELD_ORDER: ClassVar[Sequence[str]] = (
        "model", "dataset", "data_dir", "image_size", "world_size", "machines", "ranks_per_machine", "batch_per_rank",
        "global_batch", "accum_steps", "test_batch_per_rank", "epochs", "optimizer", "lr", "lr_scaling",
        "lr_base_batch", "momentum", "weight_decay", "backend", "launcher", "precision", "dropout", "batch_norm",
        "label_smoothing", "l1", "augmentation", "clip_norm", "lr_schedule", "lr_warmup_steps", "early_stopping",
        "patience", "validation_share", "target_accuracy", "noise_scale", "compile", "memory_format",
        "bucket_cap_mib", "gradient_as_bucket_view", "static_graph", "compression", "zero_redundancy",
        "quantization", "inference_batch", "device", "threads_per_rank", "shuffle", "loader", "loader_workers",
        "warmup_steps", "seed",
    )  # fmt: skip
    """Order of columns, labels and flags. A new field needs no entry: it follows these."""

    CONFLICTS: ClassVar[Sequence[Conflict]] = (
        _not_with_quantization("precision", ["fp32"]),
        _not_with_quantization("compile", ["off"]),
        _not_with_quantization("batch_norm", ["off", "on"]),
        _not_with_quantization("noise_scale", [False]),
        Conflict(
            lambda config: config.stop_at_target and config.target_accuracy is None,
            "stop_at_target=True needs a target; use target_accuracy 0.95, say, or stop_at_target false.",
        ),
        Conflict(
            lambda config: config.target_tests > 1 and config.target_accuracy is None,
            "target_tests={target_tests} needs a target; use target_accuracy 0.95, say, or target_tests 1.",
        ),
    )

    def infeasible_reason(self, device: str) -> str:
        if reason := super().infeasible_reason(device):
            return reason
        if device == "cuda" and self.quantization != "off":
            return f"quantization={self.quantization} is for CPUs, and this would train on GPUs. Use device cpu."
        return ""


DEFAULTS: dict[str, Any] = field_defaults(TrialConfig)
"""Each field's default, by name."""


@functools.cache
def trial_schema() -> Schema:
    """The fields of `TrialConfig`."""
    return Schema(
        title="TrialConfig",
        specs=field_specs(TrialConfig),
        make=TrialConfig,
        hash_of=lambda values: digest_of_changes(values, DEFAULTS),
    )
