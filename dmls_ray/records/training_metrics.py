"""The metrics of distributed training: one entry per number that a run of DDP training reports."""

from __future__ import annotations

from collections.abc import Mapping

from dmls_ray.records.metric import Metric, Shown

_OF_TRAINING = (
    " By the trained model in eval mode, on as many samples as there are test samples. That of an epoch is over its "
    "steps, with dropout and augmentation, while the weights change."
)


def _learned(part: str) -> tuple[Metric, Metric]:
    """Loss and accuracy on one part of the data."""
    return (
        Metric(
            name=f"{part}_loss", label=f"{part} loss", kind="amount", direction="min", scope="epoch", returnable=True,
            family="loss", interval=True,
            doc=f"Mean {part} loss over samples, of the last epoch or of the best one with early stopping.",
        ),
        Metric(
            name=f"{part}_accuracy", label=f"{part} acc.", kind="share", direction="max", scope="epoch",
            format="accuracy", returnable=True, interval=part != "train", spare=3 if part == "train" else 0,
            share_of="train_eval_samples" if part == "train" else f"{part}_samples",
            doc=f"Fraction of {part} samples that are classified correctly.{_OF_TRAINING if part == 'train' else ''}",
        ),
    )  # fmt: skip


def _largest(name: str, doc: str, *, is_time: bool = True) -> Metric:
    """A number of the rank that takes or needs most, in no table."""
    return Metric(
        name=name, label="", kind="amount", direction="min", scope="rank", across_ranks="max",
        format="seconds" if is_time else "whole", is_time=is_time, doc=doc,
    )  # fmt: skip


def _least(name: str, doc: str) -> Metric:
    """A time of the rank that takes least, in no table."""
    return Metric(
        name=name, label="", kind="amount", direction="min", scope="rank", across_ranks="min", format="seconds",
        is_time=True, doc=doc,
    )  # fmt: skip


def _part_of_step(name: str, doc: str) -> Metric:
    """A part of an optimizer step, of the mean over the ranks."""
    return Metric(
        name=f"{name}_ms", label=f"{name.replace('_', ' ')} ms", kind="amount", direction="min", scope="rank",
        across_ranks="mean", format="seconds", is_time=True, shown="detail",
        doc=f"Part of a counted step, as a mean over steps and ranks: {doc}",
    )  # fmt: skip


def _count(name: str, doc: str, *, returnable: bool = False) -> Metric:
    """A number of a run that is in no table."""
    return Metric(
        name=name, label="", kind="value", direction="none", scope="run", format="whole", returnable=returnable, doc=doc
    )


def _of_rank(name: str, doc: str) -> Metric:
    """A number of each rank that is in no table."""
    return Metric(
        name=name, label="", kind="value", direction="none", scope="rank", across_ranks="max", format="whole", doc=doc
    )


def _memory(name: str, label: str, doc: str, *, is_exact: bool, shown: Shown = "if_reported", spare: int = 0) -> Metric:
    """Memory of the rank that needs most."""
    return Metric(
        name=name, label=label, kind="amount", direction="min", scope="rank", across_ranks="max", format="memory",
        is_exact=is_exact, shown=shown, spare=spare, doc=doc,
    )  # fmt: skip


def _memory_kind(kind: str, doc: str) -> Metric:
    """Part of tensor_mem_mib."""
    return Metric(
        name=f"{kind}_mem_mib", label=f"{kind} MiB", kind="amount", direction="min", scope="rank", across_ranks="max",
        part_of="tensor_mem_mib", format="memory", is_exact=True, shown="detail",
        doc=f"Part of tensor_mem_mib at the moment of its peak: {doc}",
    )  # fmt: skip


_LOSSES, _ACCURACIES = zip(*(_learned(part) for part in ("train", "test", "validation")), strict=True)

TRAINING_METRICS: tuple[Metric, ...] = (
    Metric(
        name="images_per_s", label="images/s", kind="rate", direction="max", scope="epoch", across_epochs="none",
        format="rate", is_time=True, returnable=True, family="speed", interval=True,
        doc="Samples of the counted steps of all ranks, divided by train_s.",
    ),
    Metric(
        name="epoch_s", label="s/epoch", kind="amount", direction="min", scope="run", format="seconds", is_time=True,
        returnable=True, family="speed", spare=10,
        doc="Seconds that the training steps of one epoch take at images_per_s.",
    ),
    Metric(
        name="total_s", label="s/run", kind="amount", direction="min", scope="rank", across_ranks="max",
        format="seconds", is_time=True, family="speed", shown="always", spare=5,
        doc="Seconds from assignment to result on the slowest rank. Under any launcher, a run is assigned once its "
        "ranks are there and have loaded PyTorch.",
    ),
    Metric(
        name="step_ms_p50", label="step ms", kind="amount", direction="min", scope="rank", across_ranks="max",
        format="seconds", is_time=True, family="speed", unless=("images_per_s",),
        doc="Median of the counted optimizer steps on the slowest rank.",
    ),
    Metric(
        name="overhead_s", label="start-up s", kind="amount", direction="min", scope="run", format="seconds",
        is_time=True, family="speed", shown="detail", asked_by=("launcher",),
        doc="Seconds that the orchestration adds to total_s and instruments_s since the end of the run before (of the "
        "first run: since its start), seen from the driver.",
    ),
    Metric(
        name="exposed_comm_ms", label="exposed comm. ms", kind="amount", direction="min", scope="rank",
        across_ranks="min", format="seconds", is_time=True, spare=6,
        doc="Communication per step that computation does not hide: comm_ms - overlap_ms of the counted steps. Of the "
        "rank with the least, since any other also waits for slower ranks. With ZeRO, its broadcasts are included.",
    ),
    Metric(
        name="straggler_wait_ms", label="straggler wait ms", kind="amount", direction="min", scope="rank",
        of="exposed_comm_ms", across_ranks="spread", format="seconds", is_time=True, shown="detail",
        doc="Time per step that the fastest rank waits for the slowest: the largest exposed_comm_ms minus the least.",
    ),
    _part_of_step("data_wait", "waiting for the next batch, with its copy to the device."),
    _part_of_step("forward", "forward pass and loss."),
    _part_of_step("backward", "computation of the backward pass, without the communication that it does not hide."),
    _part_of_step("optimizer", "optimizer, with clipping, L1 and schedule, without the broadcasts of ZeRO."),
    _part_of_step("rest", "sums of losses and hits, and what the loop itself takes."),
    Metric(
        name="link_round_trip_ms", label="link round trip ms", kind="amount", direction="min", scope="run",
        format="seconds", is_time=True, family="link", doc="Round trip between the machines, before training.",
    ),
    Metric(
        name="link_mbit_per_s", label="link Mbit/s", kind="rate", direction="max", scope="run", format="rate",
        is_time=True, family="link", doc="Bandwidth between the machines in one direction, before training.",
    ),
    Metric(
        name="peak_mem_mib", label="peak MiB", kind="amount", direction="min", scope="rank", across_ranks="max",
        format="whole", spare=8, unless=("tensor_mem_mib", "device_mem_mib", "host_mem_mib"),
        doc="CPU: peak resident set of the run; GPU: peak allocated. Of the rank that needs most.",
    ),
    _memory(
        "tensor_mem_mib",
        "tensor MiB",
        "Peak of the tensors in a training step, on the rank that needs most. A process needs more.",
        is_exact=True,
    ),
    _memory_kind("parameter", "parameters of the model."),
    _memory_kind("gradient", "gradients that exist by then, and DDP's buckets, which store them a second time."),
    _memory_kind("optimizer", "state of the optimizer."),
    _memory_kind("activation", "what the forward pass keeps, with outputs and loss, and nothing has freed yet."),
    _memory_kind("other", "gradients of activations, the batch, buffers of the model, and workspaces of operations."),
    _memory(
        "device_mem_mib", "device MiB", "GPU: peak allocated in training, without the data set on the device.",
        is_exact=False, spare=9,
    ),
    _memory("data_mib", "data MiB", "Size of the data set that lies on the device.", is_exact=True, shown="detail"),
    _memory(
        "host_mem_mib", "host MiB", "CPU: what training adds to the peak resident set, without pages of files.",
        is_exact=False, spare=4,
    ),
    *_ACCURACIES,
    Metric(
        name="accuracy_gap", label="acc. gap", kind="value", direction="none", scope="run", format="accuracy",
        shown="detail", asked_by=("regulariser",), share_of="test_samples",
        doc="train_accuracy - test_accuracy.",
    ),
    Metric(
        name="overfit_epoch", label="overfit from epoch", kind="value", direction="none", scope="run",
        shown="detail",
        doc="First epoch after the least test loss, where test loss ends higher and train loss lower. In tables of the "
            "mean over at least 3 repeats, and only beyond chance.",
    ),
    Metric(
        name="gradient_noise_scale", label="noise scale", kind="amount", direction="none", scope="run", interval=True,
        doc="Gradient noise scale in samples (arXiv 1812.06162), with --noise-scale.",
    ),
    *_LOSSES,
    Metric(
        name="stopped_epoch", label="stopped after epoch", kind="value", direction="none", scope="run", family="end",
        doc="Epoch after which a search stopped the run.",
    ),
    # In records, in no table.
    Metric(
        name="train_s", label="", kind="amount", direction="min", scope="epoch", across_ranks="max",
        across_epochs="sum", format="seconds",
        is_time=True, returnable=True, doc="Seconds of counted training steps, from the barrier to the last rank.",
    ),
    Metric(
        name="eval_s", label="", kind="amount", direction="min", scope="epoch", across_ranks="max",
        across_epochs="sum", format="seconds",
        is_time=True, returnable=True, doc="Seconds of test passes, to the last rank.",
    ),
    Metric(
        name="warmup_s", label="", kind="amount", direction="min", scope="epoch", across_ranks="max",
        across_epochs="sum", format="seconds", is_time=True, doc="Seconds of the steps that count in no rate.",
    ),
    Metric(
        name="ended_s", label="", kind="amount", direction="min", scope="epoch", across_ranks="max",
        across_epochs="none", format="seconds", is_time=True,
        doc="Seconds from the assignment of the run to the end of an epoch and its test, on the last rank.",
    ),
    Metric(
        name="images", label="", kind="value", direction="none", scope="epoch", across_ranks="sum",
        across_epochs="none", format="whole", doc="Samples of the counted steps of an epoch, on all ranks.",
    ),
    _largest("setup_s", "Seconds of process group, model, data, wrapping and compiling."),
    _largest("checkpoint_s", "Seconds of saving checkpoints."),
    _largest("instruments_s", "Seconds of link probe and other measurements, in no phase and not in total_s."),
    _largest("inference_s", "Seconds of converting to int8, testing and timing inference."),
    _largest(
        "between_s",
        "Seconds of total_s in none of these phases: the ranks wait for each other and add up their losses, and the "
        "model changes between training and evaluation.",
    ),
    _largest("step_ms_p95", "95th percentile of the counted optimizer steps on the slowest rank."),
    _largest("start_mem_mib", "CPU: resident set when the run begins; GPU: allocated then.", is_time=False),
    _largest("peak_reserved_mib", "GPU: peak that the caching allocator reserves.", is_time=False),
    _least("comm_ms", "Communication per step, from the first bucket to the last, with the broadcasts of ZeRO."),
    _least("overlap_ms", "Part of comm_ms that computation hides."),
    _of_rank("collectives", "Collectives of torch.distributed, where the backend counts them."),
    _of_rank("optimizer_steps", "Steps of the optimizer that makes most."),
    _count("parameters", "Trainable parameters of the model.", returnable=True),
    _count("scaled_lr", "Learning rate after lr_scaling."),
    _count("train_samples", "Training samples.", returnable=True),
    _count("test_samples", "Test samples.", returnable=True),
    _count("loss_gap", "test_loss - train_eval_loss, or minus the train loss of the epoch."),
    _count("train_eval_loss", "Mean loss of the trained model on train_eval_samples training samples, in eval mode."),
    _count("train_eval_accuracy", "Likewise, the fraction that is classified correctly."),
    _count("train_eval_samples", "Training samples of that evaluation: as many as there are test samples, or all."),
    _count("validation_samples", "Samples that validation_share holds out.", returnable=True),
    _count("steps", "Optimizer steps, warm-up included."),
    _count("warmup_steps", "Optimizer steps that count in no rate."),
    _count("skipped_steps", "Steps of amp-fp16 left out because a gradient was not finite."),
    _count("compile_s", "Seconds of setup_s that torch.compile takes."),
    _count("resumed_epoch", "Epoch after which the run continued from a checkpoint."),
    _count("best_epoch", "Epoch whose weights early stopping restored."),
    _count("target_epoch", "Epoch in which a test first reached target_accuracy."),
    _count("target_steps", "Optimizer steps until that test, of which an epoch has target_tests."),
    _count("target_s", "Seconds from assignment until that test."),
)  # fmt: skip
"""In the order of tables; those with an empty label are in no table."""

BY_NAME: Mapping[str, Metric] = {metric.name: metric for metric in TRAINING_METRICS}

LEARNED = tuple(metric.name for pair in zip(_LOSSES, _ACCURACIES, strict=True) for metric in pair)
"""Losses and accuracies, by which an epoch is judged."""

RETURNABLE = frozenset(metric.name for metric in TRAINING_METRICS if metric.returnable)
"""Metrics that a user-defined function may return; any other name is a custom metric."""

RETURNABLE_PER_EPOCH = frozenset(
    metric.name for metric in TRAINING_METRICS if metric.returnable and metric.scope == "epoch"
)
"""Those of them that it may emit for an epoch."""


def is_loss(name: str) -> bool:
    """Whether a metric is a loss, by its name: `loss`, or one that ends in `_loss`."""
    return name == "loss" or name.endswith("_loss")
