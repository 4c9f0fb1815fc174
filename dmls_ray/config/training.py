"""`TrainingConfig`: the fields that every workload of gradient descent shares, with their bounds and conflicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from msgspec import Meta

from dmls_ray.config.fields import Count, NonNegativeNumber, PositiveNumber, Share, WholeNumber, field_specs, setting
from dmls_ray.config.runtime import Conflict, RuntimeConfig, without_derived_fields
from dmls_ray.config.value_texts import as_flag_value
from dmls_ray.util.errors import ConfigError, ConflictError

OptimizerName = Literal["adam", "adamw", "sgd", "rmsprop"]
LrScaling = Literal["none", "linear", "sqrt"]
Precision = Literal["fp32", "tf32", "amp-fp16", "amp-bf16"]
LrSchedule = Literal["constant", "cosine", "one-cycle"]
CompileMode = Literal["off", "default", "max-autotune"]
Compression = Literal["none", "fp16", "bf16", "powersgd"]

WARMUP_SCHEDULES = tuple(name for name in get_args(LrSchedule) if name != "one-cycle")
"""Schedules that lr_warmup_steps can precede; one-cycle includes its warm-up."""


@dataclass(frozen=True, kw_only=True)
class TrainingConfig(RuntimeConfig):
    """One configuration of a training by gradient descent.

    Give exactly one of `batch_per_rank` and `global_batch`; the other follows from
    ``global_batch = batch_per_rank x world_size x accum_steps``.

    Raises:
        ConfigError: a value breaks a rule of its field.
        ConflictError: values that are valid alone do not go together.
    """

    batch_per_rank: Count | None = setting(None, group="optimization", unit="samples")
    """Samples a rank takes in one forward pass."""

    global_batch: Count | None = setting(None, group="optimization", unit="samples")
    """Samples all ranks take in one optimizer step: batch_per_rank x world_size x accum_steps."""

    accum_steps: Count = setting(1, group="optimization", unit="passes")
    """Forward passes per optimizer step (gradient accumulation)."""

    test_batch_per_rank: Count | None = setting(None, group="optimization")
    """Samples a rank takes in one forward pass of a test; without it, batch_per_rank."""

    epochs: Count = setting(5, group="optimization", unit="passes over the data")
    """Passes over the training samples."""

    optimizer: OptimizerName = setting("adam", group="optimization")
    """Optimizer of PyTorch, fused if the device supports it."""

    lr: PositiveNumber = setting(1e-3, group="optimization")
    """Learning rate, before lr_scaling."""

    lr_scaling: LrScaling = setting("none", group="optimization")
    """How lr follows global_batch: not at all, by global_batch / lr_base_batch, or by its square root."""

    lr_base_batch: Count = setting(32, group="optimization", counts_with=("lr_scaling", ("linear", "sqrt")))
    """Global batch at which lr is not scaled."""

    # Adam's momentum is beta1, which is no field here.
    momentum: Share = setting(0.0, group="optimization", counts_with=("optimizer", ("sgd", "rmsprop")))
    """Momentum of sgd and rmsprop."""

    weight_decay: NonNegativeNumber = setting(0.0, group="optimization", family="regulariser")
    """Weight decay: L2 in the gradient, decoupled for adamw."""

    precision: Precision = setting("fp32", group="computation", gpu_only=("tf32", "Use precision fp32 or amp-bf16"))
    """Number format of the forward and backward pass: fp32; tf32 (GPUs); amp-fp16, amp-bf16 (autocast)."""

    l1: NonNegativeNumber = setting(0.0, group="loss", family="regulariser")
    """Factor of the sum of absolute parameters that is added to the loss."""

    clip_norm: PositiveNumber | None = setting(None, group="optimization")
    """Largest norm of an optimizer step's gradient, over all parameters."""

    lr_schedule: LrSchedule = setting("constant", group="optimization")
    """Schedule of lr after its warm-up, by optimizer step: constant, cosine to 0, or PyTorch's one-cycle."""

    lr_warmup_steps: WholeNumber = setting(0, group="optimization")
    """First optimizer steps over which lr rises linearly to its full value."""

    early_stopping: str = setting("off", group="early stopping", family="regulariser")
    """Metric that ends a run when it has not improved for patience epochs; the best epoch's weights are restored. A
    test metric that chooses the epoch flatters the result on the test samples; a validation metric does not."""

    patience: Count = setting(
        2, group="early stopping", counts_with=("early_stopping", ("test_loss", "validation_loss"))
    )
    """Epochs without improvement that early_stopping allows."""

    validation_share: Share = setting(0.0, group="early stopping")
    """Share of the training samples that is held out for validation after every epoch."""

    noise_scale: bool = setting(False, group="computation")
    """Estimate the gradient noise scale from local and averaged gradients (needs two ranks or accumulation)."""

    compile: CompileMode = setting("off", group="computation")
    """torch.compile of the model: off, or its mode."""

    bucket_cap_mib: Annotated[float, Meta(gt=0, le=1e6)] | None = setting(
        None, group="computation", unit="MiB", ddp_only=True
    )
    """Size of DDP's gradient buckets; without it, PyTorch's default."""

    gradient_as_bucket_view: bool = setting(False, group="computation", ddp_only=True)
    """Let gradients be views of DDP's buckets, which saves a copy."""

    static_graph: bool = setting(False, group="computation", ddp_only=True)
    """Promise DDP that the graph is the same in every pass."""

    # PowerSGD can deadlock over gloo.
    compression: Compression = setting(
        "none", group="computation", ddp_only=True, gpu_only=("powersgd", "Use compression fp16 or bf16")
    )
    """Compression of gradients between ranks, by DDP's hooks."""

    zero_redundancy: bool = setting(False, group="computation", ddp_only=True)
    """Distribute the optimizer's state over the ranks (ZeroRedundancyOptimizer)."""

    shuffle: bool = setting(True, group="loading")
    """Reshuffle the training samples every epoch, from seed and epoch."""

    warmup_steps: WholeNumber = setting(5, group="loading")
    """First optimizer steps that no rate counts (at most half of all steps)."""

    DERIVED: ClassVar[frozenset[str]] = frozenset({"global_batch"})

    CONFLICTS: ClassVar[Sequence[Conflict]] = (
        Conflict(
            lambda config: config.static_graph and config.accum_steps > 1,
            "static_graph=True does not go with accum_steps={accum_steps}: DDP cannot begin a static graph with a pass "
            "that does not reduce; use accum_steps 1, or static_graph false.",
        ),
        Conflict(
            lambda config: config.compression == "powersgd" and config.backend == "gloo",
            "compression=powersgd deadlocks with backend=gloo; use backend nccl.",
        ),
        Conflict(
            lambda config: config.lr_warmup_steps and config.lr_schedule not in WARMUP_SCHEDULES,
            "lr_warmup_steps={lr_warmup_steps} has no effect with lr_schedule={lr_schedule}, which includes a warm-up; "
            f"use lr_warmup_steps 0, or lr_schedule {' or '.join(WARMUP_SCHEDULES)}.",
        ),
        Conflict(
            lambda config: config.early_stopping.startswith("validation_") and not config.validation_share,
            "early_stopping={early_stopping} needs validation samples and validation_share=0 holds none out; use "
            "validation_share 0.1, for example, or early_stopping test_loss.",
        ),
        Conflict(
            lambda config: config.noise_scale and config.world_size == config.accum_steps == 1,
            "noise_scale=True compares gradients of two batch sizes, and world_size=1 with accum_steps=1 has one; use "
            "world_size 2 or accum_steps 2.",
        ),
        Conflict(
            lambda config: config.noise_scale and config.compression == "powersgd",
            "noise_scale=True needs exact averaged gradients and compression=powersgd has approximate ones; use "
            "compression none.",
        ),
    )

    def derive(self) -> None:
        super().derive()
        passes = self.world_size * self.accum_steps
        if self.batch_per_rank is not None and self.global_batch is not None:
            raise ConfigError(
                f"batch_per_rank={self.batch_per_rank} and global_batch={self.global_batch} are both given; give one: "
                "the other follows from batch_per_rank x world_size x accum_steps."
            )
        if self.batch_per_rank is not None:
            object.__setattr__(self, "global_batch", self.batch_per_rank * passes)
            return
        if self.global_batch is None:
            raise ConfigError("neither batch_per_rank nor global_batch is given; give one of them.")
        if self.global_batch % passes:
            below = self.global_batch // passes * passes
            nearest = f"{below} and {below + passes}" if below else f"{passes}"
            raise ConflictError(
                f"global_batch={self.global_batch} does not divide by world_size={self.world_size} x "
                f"accum_steps={self.accum_steps}; the nearest that do: {nearest}."
            )
        object.__setattr__(self, "batch_per_rank", self.global_batch // passes)

    def check_conflicts(self) -> None:
        super().check_conflicts()
        for name, spec in field_specs(type(self)).items():
            value = getattr(self, name)
            if self.world_size == 1 and spec.setting.ddp_only and value != spec.default:
                raise ConflictError(
                    f"{name}={value} is an option of DDP, which world_size=1 trains without; use world_size 2 or more, "
                    f"or {name} {as_flag_value(spec.default)}."
                )

    @property
    def samples_per_pass(self) -> int:
        """Samples that all ranks together take in one forward pass: batch_per_rank x world_size."""
        assert self.batch_per_rank is not None
        return self.batch_per_rank * self.world_size

    @property
    def scaled_lr(self) -> float:
        """Learning rate of the optimizer.

        Linear scaling is Goyal et al., arXiv 1706.02677; square-root scaling is Krizhevsky, arXiv 1404.5997.
        """
        assert self.global_batch is not None
        ratio = self.global_batch / self.lr_base_batch
        return self.lr * {"none": 1.0, "linear": ratio, "sqrt": math.sqrt(ratio)}[self.lr_scaling]

    def held_out(self, samples: int) -> int:
        """Number of training samples that validation_share holds out.

        Raises:
            ConfigError: no sample is left to train on, or none to validate on.
        """
        count = round(samples * self.validation_share)
        if self.validation_share and not 0 < count < samples:
            raise ConfigError(
                f"validation_share={self.validation_share} of {samples} samples holds out {count}; give a share that "
                "leaves some on both sides."
            )
        return count

    def replace(self, **changes: Any) -> Self:
        """A copy with some fields changed; without a batch among the changes it keeps its batch_per_rank."""
        values = without_derived_fields(self.canonical(), changes)
        if changes.get("global_batch") is not None:
            del values["batch_per_rank"]
        return type(self)(**{**values, **changes})
