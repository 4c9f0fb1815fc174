"""`TrialConfig`: one configuration of image classification. Every field can be an axis of a sweep.

>>> config = TrialConfig(world_size=2, batch_per_rank=32)
>>> config.global_batch
64
>>> config.replace(global_batch=128).batch_per_rank
64
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from dmls_ray.config.fields import Count, Name, Share, WholeNumber, field_defaults, setting
from dmls_ray.config.runtime import Conflict
from dmls_ray.config.training import TrainingConfig
from dmls_ray.config.value_texts import as_flag_value

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

    model: Name = setting("digits_convnet", group="data")
    """A built-in model, torchvision:NAME, or a user-defined module:function."""

    dataset: Name = setting("digits", group="data")
    """A built-in data set, synthetic:shape=3x32x32,classes=10,train=2048,test=512, or module:function."""

    data_dir: str | None = setting(None, group="data")
    """Folder that holds the data set; without it, downloads go to the user's cache folder."""

    image_size: Count | None = setting(None, group="data", unit="pixels a side")
    """Resize every image to this many pixels a side, once, when the data set is prepared."""

    train_samples: Count | None = setting(None, group="data", unit="samples")
    """Number of training samples to use, for a first look: the same ones in all runs, equally many of each class. Tests
    use all test samples."""

    dropout: Share | None = setting(None, group="regularization", family="regulariser")
    """Rate of the model's dropout layers, in place of their own; built-in models without any get one before their last
    linear layer."""

    # SyncBatchNorm does not accept CPU tensors.
    batch_norm: BatchNorm = setting(
        "off", group="regularization", gpu_only=("sync", "Use batch_norm on"), family="regulariser"
    )
    """Batch normalisation: on puts one after each convolution of a built-in model; sync is over all ranks (GPUs)."""

    label_smoothing: Share = setting(0.0, group="regularization", family="regulariser")
    """Label smoothing: share of the target that is spread over all classes."""

    augmentation: Augmentation = setting("none", group="augmentation", family="regulariser")
    """Random changes of the training images: horizontal flips, crops of the image padded by an eighth of its side."""

    early_stopping: StoppingMetric = setting("off", group="early stopping", family="regulariser")

    patience: Count = setting(
        2,
        group="early stopping",
        counts_with=("early_stopping", ("test_loss", "test_accuracy", "validation_loss", "validation_accuracy")),
    )

    target_accuracy: Annotated[float, Meta(gt=0, le=1)] | None = setting(None, group="target")
    """Test accuracy from 0 to 1; the record contains the epoch, steps and time at which it was first reached."""

    stop_at_target: bool = setting(False, group="target")
    """End the training after the epoch that reaches target_accuracy."""

    target_tests: Count = setting(1, group="target")
    """Tests per epoch that look for target_accuracy. No time of a run contains those within an epoch."""

    memory_format: MemoryFormat = setting("contiguous", group="computation")
    """Layout of images and convolution weights in memory."""

    quantization: Quantization = setting("off", group="computation")
    """int8 by torchao, on CPUs: qat simulates int8 in training; static and dynamic convert the model that was trained
    in fp32."""

    inference_batch: Count | None = setting(None, group="computation")
    """Samples of a forward pass whose latency is measured after training; without it, no latency is measured."""

    loader: LoaderName = setting("resident", group="loading")
    """resident: decoded once, kept on the device; dataloader: torchvision's ordinary path with worker processes."""

    loader_workers: WholeNumber = setting(2, group="loading", counts_with=("loader", ("dataloader",)))
    """Worker processes of each DataLoader of a rank with loader=dataloader. A rank has one DataLoader for training, one
    for tests and, where they are made, one for validation and one for the evaluation on training samples. The processes
    stay until the run ends; host_mem_mib does not count them."""

    CONFLICTS: ClassVar[Sequence[Conflict]] = (
        _not_with_quantization("precision", ["fp32"]),
        _not_with_quantization("compile", ["off"]),
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
            return f"quantization={self.quantization} is for CPUs, but this run would train on GPUs. Use device cpu."
        return ""


DEFAULTS: dict[str, Any] = field_defaults(TrialConfig)
"""Each field's default, by name."""
