"""What one trial is: every factor of the experiment is a field of `TrialConfig`, and every field can be an axis.

>>> config = TrialConfig(world_size=2, batch_per_rank=32)
>>> config.global_batch
64
>>> config.replace(global_batch=128).batch_per_rank
64
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

from dmls_ray.config.fields import checked, field_defaults, field_specs
from dmls_ray.config.runtime import (
    BackendName,
    DeviceName,
    LauncherName,
    RuntimeConfig,
    digest,
    require,
    without_derived_fields,
)
from dmls_ray.config.schema import Schema
from dmls_ray.util.errors import ConfigError, ConflictError

OptimizerName = Literal["adam", "adamw", "sgd", "rmsprop"]
LrScaling = Literal["none", "linear", "sqrt"]
Precision = Literal["fp32", "tf32", "amp-fp16", "amp-bf16"]
BatchNorm = Literal["off", "on", "sync"]
Augmentation = Literal["none", "flip", "crop", "flip-crop"]
LrSchedule = Literal["constant", "cosine", "one-cycle"]
StoppingMetric = Literal["off", "test_loss", "test_accuracy", "validation_loss", "validation_accuracy"]
MemoryFormat = Literal["contiguous", "channels_last"]
CompileMode = Literal["off", "default", "max-autotune"]
Quantization = Literal["off", "dynamic", "static", "qat"]
Compression = Literal["none", "fp16", "bf16", "powersgd"]
LoaderName = Literal["resident", "dataloader"]

BUILTIN_MODELS = {"convnet": 8, "simplecnn": 8, "mnist_convnet": 4, "digits_convnet": 4}
"""Models that are known without loading PyTorch, with the fewest pixels a side that they take; `training.models` builds
them."""

DDP_ONLY = (
    "bucket_cap_mib",
    "gradient_as_bucket_view",
    "static_graph",
    "compression",
    "zero_redundancy",
)
"""Fields that say how ranks exchange gradients: one rank alone does not."""

COUNTS_WITH: dict[str, tuple[str, tuple[str, ...]]] = {
    # Adam's momentum is beta1, which is no field here.
    "momentum": ("optimizer", ("sgd", "rmsprop")),
    "lr_base_batch": ("lr_scaling", ("linear", "sqrt")),
    "patience": ("early_stopping", ("test_loss", "test_accuracy", "validation_loss", "validation_accuracy")),
    "loader_workers": ("loader", ("dataloader",)),
}
"""Fields that do something only where another one has one of these values."""


@dataclass(frozen=True, kw_only=True)
class TrialConfig(RuntimeConfig):
    """One configuration of one training, checked when it is made.

    Give exactly one of `batch_per_rank` and `global_batch`; the other follows from
    ``global_batch = batch_per_rank x world_size x accum_steps``.

    Raises:
        ConfigError: a value breaks a rule of its field.
        ConflictError: values that are right alone do not go together.
    """

    model: str = "digits_convnet"
    """A built-in model, torchvision:NAME, or module:function of your own."""

    dataset: str = "digits"
    """A built-in data set, synthetic:shape=3x32x32,classes=10,train=2048,test=512, or module:function."""

    data_dir: str | None = None
    """Folder that holds the data set; without it, downloads go to the user's cache folder."""

    image_size: int | None = None
    """Resize every image to this many pixels a side, once, when the data set is prepared."""

    world_size: int = 1
    """Number of ranks (worker processes) that train together."""

    machines: int | None = None
    """Number of machines that the ranks are spread over, equally; without it, as few as it takes. With
    ranks_per_machine, world_size is their product."""

    ranks_per_machine: int | None = None
    """Number of ranks on each machine; without it, world_size / machines."""

    batch_per_rank: int | None = None
    """Samples a rank takes in one forward pass."""

    global_batch: int | None = None
    """Samples all ranks take in one optimizer step: batch_per_rank x world_size x accum_steps."""

    accum_steps: int = 1
    """Forward passes per optimizer step (gradient accumulation)."""

    test_batch_per_rank: int | None = None
    """Samples a rank takes in one forward pass of a test; without it, batch_per_rank."""

    epochs: int = 5
    """Passes over the training samples."""

    optimizer: OptimizerName = "adam"
    """Optimizer, PyTorch's own, fused where the device has it."""

    lr: float = 1e-3
    """Learning rate, before lr_scaling."""

    lr_scaling: LrScaling = "none"
    """How lr follows global_batch: not at all, by global_batch / lr_base_batch, or by its square root."""

    lr_base_batch: int = 32
    """Global batch at which lr holds unscaled."""

    momentum: float = 0.0
    """Momentum of sgd and rmsprop."""

    weight_decay: float = 0.0
    """Weight decay: L2 in the gradient, decoupled for adamw."""

    backend: BackendName = "auto"
    """Communication library between ranks; auto is nccl on GPUs and gloo on CPUs. mpi needs mpirun."""

    launcher: LauncherName = "ray"
    """Who starts the ranks: ray is the worker group; inline, spawn (torch.multiprocessing), torchrun and mpirun start
    an interpreter a rank for each run."""

    precision: Precision = "fp32"
    """Number format of the forward and backward pass: fp32; tf32 (GPUs); amp-fp16, amp-bf16 (autocast)."""

    dropout: float | None = None
    """Rate of the model's dropout layers, whatever it was; built-in models without any get one before their last linear
    layer."""

    batch_norm: BatchNorm = "off"
    """Batch normalisation: on puts one after each convolution of a built-in model; sync is over all ranks (GPUs)."""

    label_smoothing: float = 0.0
    """Share of the target that is spread over all classes."""

    l1: float = 0.0
    """Factor of the sum of absolute parameters that is added to the loss."""

    augmentation: Augmentation = "none"
    """Random changes of the training images: horizontal flips, crops of the image padded by an eighth of its side."""

    clip_norm: float | None = None
    """Largest norm of an optimizer step's gradient, over all parameters."""

    lr_schedule: LrSchedule = "constant"
    """How lr goes on after its warm-up, by optimizer step: constant, cosine to 0, or PyTorch's one-cycle."""

    lr_warmup_steps: int = 0
    """First optimizer steps over which lr rises linearly to its full value."""

    early_stopping: StoppingMetric = "off"
    """Metric that ends a run when it has not improved for patience epochs; the best epoch's weights are restored. A
    test metric that chooses the epoch flatters what is told of the test; a validation metric does not."""

    patience: int = 2
    """Epochs without improvement that early_stopping allows."""

    validation_share: float = 0.0
    """Share of the training samples that is held out and tested after every epoch."""

    target_accuracy: float | None = None
    """Test accuracy from 0 to 1 of which the record tells when it was first reached."""

    noise_scale: bool = False
    """Estimate the gradient noise scale from local and averaged gradients (needs two ranks or accumulation)."""

    compile: CompileMode = "off"
    """torch.compile of the model: off, or its mode."""

    memory_format: MemoryFormat = "contiguous"
    """Layout of images and convolution weights in memory."""

    bucket_cap_mib: float | None = None
    """Size of DDP's gradient buckets; without it, PyTorch's own."""

    gradient_as_bucket_view: bool = False
    """Let gradients be views of DDP's buckets, which saves a copy."""

    static_graph: bool = False
    """Promise DDP that the graph is the same in every pass."""

    compression: Compression = "none"
    """Compression of gradients on their way between ranks, by DDP's own hooks."""

    zero_redundancy: bool = False
    """Share the optimizer's state out over the ranks (ZeroRedundancyOptimizer)."""

    quantization: Quantization = "off"
    """int8 by torchao, on CPUs: qat trains with it simulated; static and dynamic convert what was trained in fp32."""

    inference_batch: int | None = None
    """Samples of a forward pass whose latency is measured after training; without it, none is."""

    device: DeviceName = "auto"
    """Where ranks train; auto is cuda if the cluster has GPUs, else cpu."""

    threads_per_rank: int = 1
    """CPU threads a rank computes with."""

    shuffle: bool = True
    """Reshuffle the training samples every epoch, from seed and epoch."""

    loader: LoaderName = "resident"
    """resident: decoded once, kept on the device; dataloader: torchvision's ordinary path with worker processes."""

    loader_workers: int = 2
    """Worker processes a rank has with loader=dataloader."""

    warmup_steps: int = 5
    """First optimizer steps that count in no rate (at most half of all steps)."""

    seed: int = 0
    """Seed of the first repeat; each further repeat has its own."""

    # SyncBatchNorm refuses CPU tensors, and PowerSGD can wait for ever over gloo.
    GPU_ONLY: ClassVar[Mapping[str, tuple[str, str]]] = {
        **RuntimeConfig.GPU_ONLY,
        "precision": ("tf32", "Use precision fp32 or amp-bf16"),
        "batch_norm": ("sync", "Use batch_norm on"),
        "compression": ("powersgd", "Use compression fp16 or bf16"),
    }

    def __post_init__(self) -> None:
        for spec in fields(self):
            object.__setattr__(self, spec.name, checked(TrialConfig, spec.name, getattr(self, spec.name)))
        self.check_place()
        self._check_bounds()
        self._settle_batch()
        self._check_together()

    def _check_bounds(self) -> None:
        for name in ("model", "dataset"):
            require(getattr(self, name).strip() != "", name, "", "give a name")
        at_least_one = ("accum_steps", "epochs", "lr_base_batch")
        or_none = ("image_size", "batch_per_rank", "global_batch", "test_batch_per_rank", "patience", "inference_batch")
        for name in at_least_one + or_none:
            value = getattr(self, name)
            require(value is None or value >= 1, name, value, "give 1 or more")
        for name in ("loader_workers", "warmup_steps", "lr_warmup_steps", "weight_decay", "l1"):
            require(getattr(self, name) >= 0, name, getattr(self, name), "give 0 or more")
        for name in ("clip_norm", "bucket_cap_mib", "lr"):
            value = getattr(self, name)
            require(value is None or value > 0, name, value, "give more than 0")
        cap = self.bucket_cap_mib
        require(cap is None or cap <= 1e6, "bucket_cap_mib", cap, "give at most 1000000")
        for name in ("momentum", "dropout", "label_smoothing", "validation_share"):
            value = getattr(self, name)
            require(value is None or 0 <= value < 1, name, value, "give 0 or more and less than 1")
        target = self.target_accuracy
        require(target is None or 0 < target <= 1, "target_accuracy", target, "give more than 0 and at most 1")

    def _settle_batch(self) -> None:
        per_step = self.world_size * self.accum_steps
        if self.batch_per_rank is not None and self.global_batch is not None:
            raise ConfigError(
                f"batch_per_rank={self.batch_per_rank} and global_batch={self.global_batch} are both given; give one: "
                "the other follows from batch_per_rank x world_size x accum_steps."
            )
        if self.batch_per_rank is not None:
            object.__setattr__(self, "global_batch", self.batch_per_rank * per_step)
            return
        if self.global_batch is None:
            raise ConfigError("neither batch_per_rank nor global_batch is given; give one of them.")
        if self.global_batch % per_step:
            below = self.global_batch // per_step * per_step
            nearest = f"{below} and {below + per_step}" if below else f"{per_step}"
            raise ConflictError(
                f"global_batch={self.global_batch} does not divide by world_size={self.world_size} x "
                f"accum_steps={self.accum_steps}; the nearest that do: {nearest}."
            )
        object.__setattr__(self, "batch_per_rank", self.global_batch // per_step)

    def _check_together(self) -> None:
        if self.momentum and self.optimizer not in COUNTS_WITH["momentum"][1]:
            raise without_effect("momentum", [self.momentum], [self.optimizer])
        if self.device != "auto" and (reason := self.infeasible_reason(self.device)):
            raise ConflictError(reason)
        if self.world_size == 1:
            for name in DDP_ONLY:
                value = getattr(self, name)
                if value != DEFAULTS[name]:
                    raise ConflictError(
                        f"{name}={value} is an option of DDP, which world_size=1 trains without; use world_size 2 or "
                        f"more, or {name} {typed(DEFAULTS[name])}."
                    )
        if self.quantization != "off":
            for name, needed in (("precision", ("fp32",)), ("compile", ("off",)),
                                 ("batch_norm", ("off", "on")), ("noise_scale", (False,))):  # fmt: skip
                value = getattr(self, name)
                if value not in needed:
                    raise ConflictError(
                        f"quantization={self.quantization} does not go with {name}={typed(value)}; use {name} "
                        f"{typed(needed[-1])}."
                    )
        if self.static_graph and self.accum_steps > 1:
            raise ConflictError(
                f"static_graph=True does not go with accum_steps={self.accum_steps}: DDP cannot begin a static graph "
                "with a pass that does not reduce; use accum_steps 1, or static_graph false."
            )
        if self.compression == "powersgd" and self.backend == "gloo":
            raise ConflictError("compression=powersgd waits for ever over backend=gloo; use backend nccl.")
        if self.lr_warmup_steps and self.lr_schedule == "one-cycle":
            raise ConflictError(
                f"lr_warmup_steps={self.lr_warmup_steps} has no meaning for lr_schedule=one-cycle, which has a warm-up "
                "of its own; use lr_warmup_steps 0, or lr_schedule constant or cosine."
            )
        if self.early_stopping.startswith("validation_") and not self.validation_share:
            raise ConflictError(
                f"early_stopping={self.early_stopping} needs validation samples and validation_share=0 holds none out; "
                "use validation_share 0.1, say, or early_stopping test_loss."
            )
        if self.noise_scale and self.world_size == self.accum_steps == 1:
            raise ConflictError(
                "noise_scale=True compares gradients of two batch sizes, and world_size=1 with accum_steps=1 has one; "
                "use world_size 2 or accum_steps 2."
            )
        if self.noise_scale and self.compression == "powersgd":
            raise ConflictError(
                "noise_scale=True needs exact averaged gradients and compression=powersgd has approximate ones; use "
                "compression none."
            )

    @property
    def samples_per_pass(self) -> int:
        """Samples that all ranks together take in one forward pass: batch_per_rank x world_size."""
        assert self.batch_per_rank is not None
        return self.batch_per_rank * self.world_size

    @property
    def scaled_lr(self) -> float:
        """The learning rate that the optimizer gets.

        Linear scaling is Goyal et al., arXiv 1706.02677; square-root scaling is Krizhevsky, arXiv 1404.5997.
        """
        assert self.global_batch is not None
        ratio = self.global_batch / self.lr_base_batch
        return self.lr * {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}[self.lr_scaling]

    def held_out(self, samples: int) -> int:
        """How many of the training samples validation_share holds out.

        Raises:
            ConfigError: it leaves no sample to train on, or none to validate on.
        """
        count = round(samples * self.validation_share)
        if self.validation_share and not 0 < count < samples:
            raise ConfigError(
                f"validation_share={self.validation_share} of {samples} samples holds out {count}; give a share that "
                "leaves some on both sides."
            )
        return count

    def infeasible_reason(self, device: str) -> str:
        """Why ranks on `cpu` or `cuda` cannot do this, and the way out; empty where they can."""
        if reason := super().infeasible_reason(device):
            return reason
        if device == "cuda" and self.quantization != "off":
            return f"quantization={self.quantization} is for CPUs, and this would train on GPUs. Use device cpu."
        return ""

    def replace(self, **changes: Any) -> TrialConfig:
        """A copy with some fields changed; a batch that is not named keeps its batch_per_rank."""
        values = without_derived_fields(self.canonical(), changes)
        if changes.get("global_batch") is not None:
            values.pop("batch_per_rank")
        return TrialConfig(**{**values, **changes})

    def canonical(self) -> dict[str, Any]:
        """All fields as plain values; global_batch is left out, since it follows from the others."""
        return {spec.name: getattr(self, spec.name) for spec in fields(self) if spec.name != "global_batch"}

    def factors(self) -> dict[str, Any]:
        """All fields as plain values, global_batch included."""
        return {**self.canonical(), "global_batch": self.global_batch}

    @property
    def hash(self) -> str:
        """12 hex digits that name this trial: equal configurations have equal hashes."""
        return content_hash(self.canonical())


def content_hash(values: Mapping[str, Any]) -> str:
    """12 hex digits of the values that differ from their field's default.

    A field at its default is left out, so results recorded before a field existed keep their names.
    """
    changed = {name: value for name, value in values.items() if name not in DEFAULTS or value != DEFAULTS[name]}
    return digest(changed)


def without_effect(name: str, values: Collection[Any], others: Collection[Any]) -> ConflictError:
    """The error that a field is given values, and nothing heeds them.

    Args:
        name: a field of `COUNTS_WITH`.
        values: what it was given.
        others: what the field has that it depends on.
    """
    other, counts = COUNTS_WITH[name]
    return ConflictError(
        f"{name}={', '.join(map(str, values))} has no meaning for {other}={', '.join(map(str, others))}; use {other} "
        f"{' or '.join(counts)}, or {name} {typed(DEFAULTS[name])}."
    )


def typed(value: Any) -> str:
    """A value as one types it after a flag."""
    return str(value).lower() if isinstance(value, bool | None) else str(value)


DEFAULTS: dict[str, Any] = field_defaults(TrialConfig)
"""Each field's default, by name."""


@functools.cache
def trial_schema() -> Schema:
    """The fields of `TrialConfig`."""
    return Schema(
        title="TrialConfig",
        specs=field_specs(TrialConfig),
        make=TrialConfig,
        name_of=content_hash,
        counts_with=COUNTS_WITH,
    )
