"""`Metric`: everything that tables, figures and reports need to know about one measured number; and those of training.

The values are in the `metrics` of runs, epochs and ranks, by name. A number without an entry, as a user-defined
function reports it, has its name as label, a column in tables, and is compared.

One module because the order of its entries is that of tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal

from dmls_ray.records.gpu_state import HELD_BY

Kind = Literal["rate", "amount", "ratio", "share", "value"]
Direction = Literal["max", "min", "none"]
Scope = Literal["run", "epoch", "rank"]
AcrossRanks = Literal["max", "min", "sum", "mean", "spread", "rank0"]
AcrossEpochs = Literal["last", "sum", "none"]
Shown = Literal["always", "if_reported", "unless_one", "detail"]
FormatName = Literal["seconds", "ratio", "rate", "memory", "whole", "accuracy", "number"]


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One measured number of a run, an epoch or a rank."""

    name: str
    """Column in runs.csv; the unit stands in the name: `exposed_comm_ms`."""
    label: str = ""
    """Heading in tables and on axes; empty for a number that is in records only."""
    kind: Kind
    """`rate`, `amount` and `ratio` are positive and compared by their logarithm; `share` lies in [0, 1]; `value` is any
    number."""
    direction: Direction
    """Whether more is better (`max`), less is better (`min`), or neither."""
    scope: Scope
    """Where the number is measured: once per run, once per epoch, or by each rank."""
    across_ranks: AcrossRanks | None = None
    """How the values of the ranks become the value of the run; `spread` is the largest minus the least. A metric of
    scope `rank` must say it."""
    across_epochs: AcrossEpochs = "last"
    """For scope `epoch`: whether the value of the run is that of the last epoch (of the best one with early stopping),
    the sum, or none."""
    of: str = ""
    """The value of the ranks that is combined, where it has another name than this metric."""
    part_of: str = ""
    """The metric of scope `rank`, combined as the largest, that this metric is a part of: the value of the run is that
    of the same rank, so that the parts add up."""
    share_of: str = ""
    """For a share, or a difference of shares: the metric with the number of samples that it is a share of. No
    interval claims to know it better than to one sample."""
    format: FormatName = "number"
    """How a table prints the value."""
    is_time: bool = False
    """Whether the number means nothing where runs shared the machine (a search)."""
    is_exact: bool = False
    """Whether all repeats have the same value, so that one run says what it is."""
    is_compared: bool = False
    """Whether answers compare trials by the metric, and sweeps repeat runs for it."""
    shown: Shown = "if_reported"
    """Whether a table has a column of the metric: `always`, if any trial reports it, if it is not 1 in some trial, or,
    as a detail, only where `asked_by` says so. The files, and the page of a run, have all metrics."""
    unless: tuple[str, ...] = ()
    """Metrics that make the column of this one needless, where any trial reports one of them."""
    asked_by: tuple[str, ...] = ()
    """Fields, or families of fields, that ask for the number: where one of them varies, tables have its column, and the
    figure of the answer its panel."""
    spare: int = 0
    """When a page or a narrow terminal leaves the column out, unless the sweep asks for it: 1 first; 0: after others
    that say less."""
    interval: bool = False
    """Whether the column shows the interval besides the mean."""
    returnable: bool = False
    """Whether a user-defined function may return it under this name."""
    family: str = ""
    """Metrics of one family have their columns together; those of `speed` come first, of `loss` and `end` last."""
    note: str = ""
    """What a reader of its column must know, below tables that have it."""
    doc: str = ""
    """One sentence for the metrics page of the documentation."""

    def __post_init__(self) -> None:
        if self.scope == "rank" and self.across_ranks is None:
            raise ValueError(f"{self.name}: a Metric of scope rank says by across_ranks what is that of the run.")


_OF_TRAINING = (
    " Measured with the trained model in eval mode, on as many samples as there are test samples. The value of an "
    "epoch is a mean over its steps, with dropout and augmentation, while the weights change."
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


_time = partial(Metric, kind="amount", direction="min", format="seconds", is_time=True)
"""Seconds or milliseconds."""

_rank_time = partial(_time, scope="rank", across_ranks="max")
"""Seconds or milliseconds of the rank that takes most."""

_speed = partial(Metric, kind="rate", direction="max", is_time=True, family="speed", interval=True)
"""How fast a training is."""

_epoch_time = partial(_time, scope="epoch", across_ranks="max", across_epochs="sum")
"""Seconds of an epoch on the rank that takes most; of a run, of all its epochs."""

_memory = partial(Metric, kind="amount", direction="min", scope="rank", across_ranks="max", format="memory")
"""Memory of the rank that needs most."""

_count = partial(Metric, kind="value", direction="none", scope="run", format="whole")
"""A number of a run that is in no table."""

_rank_count = partial(_count, scope="rank", across_ranks="max")
"""A number of each rank that is in no table, since it has no label."""


def _part_of_step(name: str, doc: str) -> Metric:
    """A part of an optimizer step, of the mean over the ranks."""
    return _rank_time(
        name=f"{name}_ms", label=f"{name.replace('_', ' ')} ms", across_ranks="mean", shown="detail",
        doc=f"Part of a counted step, as a mean over steps and ranks: {doc}",
    )  # fmt: skip


COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "other_collectives")
"""Kinds of collectives, whose times are `<kind>_ms`."""


def _wait_for(collective: str) -> Metric:
    """Milliseconds of a step in which a rank waits for a kind of collective."""
    words = collective.replace("_", " ")
    return _rank_time(
        name=f"{collective}_ms", label=f"{words} ms", across_ranks="min", shown="detail",
        doc=f"Part of exposed_comm_ms of a script or function: waiting of Python code for {words} outside DDP, as in "
        "FSDP2, ZeRO or code of your own. Value of the rank with the least.",
    )  # fmt: skip


def _memory_kind(kind: str, doc: str) -> Metric:
    """Part of tensor_mem_mib."""
    return _memory(
        name=f"{kind}_mem_mib", label=f"{kind} MiB", part_of="tensor_mem_mib", is_exact=True, shown="detail",
        doc=f"Part of tensor_mem_mib at the moment of its peak: {doc}",
    )  # fmt: skip


def _held_by(name: str) -> Metric:
    """A share of a run in which something held the clocks of its GPU down."""
    return Metric(
        name=f"held_by_{name}", kind="share", direction="none", scope="rank", across_ranks="max",
        doc=f"Share of the run in which the GPU's clocks were throttled by {name}, by NVML, sampled twice a second.",
    )  # fmt: skip


def _cost(unit: str, rates: str) -> Metric:
    """What a million samples or tokens cost."""
    return Metric(
        name=f"cost_per_million_{unit}", label=f"cost/M {unit}", kind="amount", direction="min", scope="run",
        is_time=True, family="speed", interval=True,
        note=f"cost/M {unit}: price of a million, of the counted steps alone, in the currency of --price.",
        doc=f"With --price: price of a million {unit} at {rates}: of the counted steps alone.",
    )  # fmt: skip


_LOSSES, _ACCURACIES = zip(*(_learned(part) for part in ("train", "test", "validation")), strict=True)

TRAINING_METRICS: tuple[Metric, ...] = (
    _speed(
        name="samples_per_s", label="samples/s", scope="rank", across_ranks="sum", format="rate",
        doc="Samples per second in the counted steps of a script or function, over all ranks; empty where the samples "
        "of a step are not known.",
    ),
    _speed(
        name="tokens_per_s", label="tokens/s", scope="rank", across_ranks="sum", format="rate",
        doc="Tokens per second in the counted steps: elements of two-dimensional integer tensors that a model is "
        "given.",
    ),
    Metric(
        name="samples_per_step", label="samples/step", kind="amount", direction="none", scope="rank",
        across_ranks="sum",
        doc="Observed global batch of a script or function: mean samples of a counted step over all ranks. Ranks that "
        "are given the same samples count once.",
    ),
    Metric(
        name="tokens_per_step", label="tokens/step", kind="amount", direction="none", scope="rank",
        across_ranks="sum", unless=("samples_per_step",),
        doc="Observed tokens of a step of a script or function, over all ranks.",
    ),
    Metric(
        name="backward_passes", label="backward/step", kind="amount", direction="none", scope="rank",
        across_ranks="rank0", shown="unless_one",
        doc="Backward passes of a step of a script or function; above 1 with gradient accumulation, for example.",
    ),
    Metric(
        name="optimizers", label="optimizers", kind="amount", direction="none", scope="rank", across_ranks="max",
        format="whole", shown="unless_one",
        doc="Number of optimizers that together make a step of a script or function.",
    ),
    _speed(
        name="images_per_s", label="images/s", scope="epoch", across_epochs="none", format="rate", returnable=True,
        doc="Samples of the counted steps of all ranks, divided by train_s.",
    ),
    _time(
        name="epoch_s", label="s/epoch", scope="run", returnable=True, family="speed", spare=10,
        doc="Seconds that the training steps of one epoch take at images_per_s.",
    ),
    _rank_time(
        name="total_s", label="s/run", family="speed", shown="always", spare=5,
        doc="Seconds from assignment to result on the slowest rank. Under any launcher, a run is assigned once its "
        "ranks have started and loaded PyTorch.",
    ),
    _rank_time(
        name="step_ms_p50", label="step ms", family="speed", unless=("images_per_s",),
        doc="Median of the counted optimizer steps on the slowest rank.",
    ),
    _rank_time(
        name="step_ms_mean", label="mean step ms", family="speed", shown="detail",
        doc="Mean time of a counted step of a script or function, on the slowest rank. Answers "
        "compare it where the samples of a step are not known.",
    ),
    Metric(
        name="counted_share", label="counted", kind="share", direction="none", scope="rank", across_ranks="min",
        is_time=True,
        doc="Share of the time from the warm-up to the last step of a script or function that rates are based on; the "
        "rest are tests of the model. The column has the smallest share of the runs, after the counted and all steps "
        "of the run that has it, of several the median one: 45/50, 93%.",
    ),
    _speed(
        name="mfu", label="MFU", kind="ratio", scope="rank", across_ranks="mean", spare=3,
        doc="Model FLOPs utilization: model FLOPs of a step, without what is computed again (hfu: with it), against "
        "a measured matrix product. It is tflop_per_s divided by product_tflop_per_s, as a mean over ranks.",
    ),
    _speed(
        name="hfu", label="HFU", kind="ratio", direction="none", scope="rank", across_ranks="mean", spare=1,
        doc="Hardware FLOPs utilization: as mfu, with what is computed again in the backward pass, as under "
        "checkpointing and in fused attention, and with the products of optimizers.",
    ),
    _speed(
        name="tflop_per_s", label="TFLOP/s", scope="rank", across_ranks="mean", spare=2,
        doc="Model FLOPs per second of a rank in its mean step, in units of 10^12, as a mean over ranks.",
    ),
    _time(
        name="overhead_s", label="start-up s", scope="run", family="speed", shown="detail", asked_by=("launcher",),
        note="start-up s: the launcher ray starts its ranks once, with the first run; the other launchers start them "
        "for each run.",
        doc="Seconds since the end of the previous run that are not in total_s or instruments_s: the time of the "
        "orchestration, measured in the driver. For the first run, since its start.",
    ),
    _rank_time(
        name="exposed_comm_ms", label="exposed comm. ms", across_ranks="min", spare=6,
        doc="Communication per step that does not overlap with computation: comm_ms - overlap_ms of the counted "
        "steps. Value of the rank with the least, because all others also wait for slower ranks.",
    ),
    _rank_time(
        name="straggler_wait_ms", label="straggler wait ms", of="exposed_comm_ms", across_ranks="spread",
        shown="detail",
        doc="Time per step that the fastest rank waits for the slowest: the largest exposed_comm_ms minus the least.",
    ),
    *[_wait_for(collective) for collective in COLLECTIVES],
    _part_of_step("data_wait", "waiting for the next batch, with its copy to the device."),
    _part_of_step("forward", "forward pass and loss."),
    _part_of_step("backward", "computation of the backward pass, without the communication that it does not hide."),
    _part_of_step("optimizer", "optimizer; of built-in models with clipping, L1, schedule and the broadcasts of ZeRO."),
    _part_of_step("rest", "the rest: sums of losses and of correct predictions, and the loop itself."),
    _time(
        name="link_round_trip_ms", label="link round trip ms", scope="run", family="link",
        doc="Round trip between the machines, before training.",
    ),
    Metric(
        name="link_mbit_per_s", label="link Mbit/s", kind="rate", direction="max", scope="run", format="rate",
        is_time=True, family="link", doc="Bandwidth between the machines in one direction, before training.",
    ),
    _memory(
        name="peak_mem_mib", label="peak MiB", format="whole", spare=8,
        unless=("tensor_mem_mib", "device_mem_mib", "host_mem_mib"),
        doc="CPU: peak resident set of the run; GPU: peak allocated. Of the rank that needs most.",
    ),
    _memory(
        name="tensor_mem_mib", label="tensor MiB", is_exact=True,
        doc="Peak of the tensors in a training step, on the rank that needs most. A process needs more.",
    ),
    _memory_kind("parameter", "parameters of the model."),
    _memory_kind("gradient", "gradients that exist by then, and DDP's buckets, which store them a second time."),
    _memory_kind("optimizer", "state of the optimizer."),
    _memory_kind("activation", "what the forward pass keeps, with outputs and loss, as far as it is not freed yet."),
    _memory_kind("other", "gradients of activations, the batch, buffers of the model, and workspaces of operations."),
    _memory(
        name="device_mem_mib", label="device MiB", spare=9,
        doc="GPU: peak allocated in training, without the data set on the device.",
    ),
    _memory(
        name="data_mib", label="data MiB", is_exact=True, shown="detail",
        doc="Size of the data set that lies on the device.",
    ),
    _memory(
        name="host_mem_mib", label="host MiB", spare=4,
        doc="CPU: what training adds to the peak resident set, without pages of files.",
    ),
    *_ACCURACIES,
    Metric(
        name="accuracy_gap", label="acc. gap", kind="value", direction="none", scope="run", format="accuracy",
        shown="detail", asked_by=("regulariser",), share_of="test_samples", doc="train_accuracy - test_accuracy.",
    ),
    Metric(
        name="overfit_epoch", label="overfit from epoch", kind="value", direction="none", scope="run", shown="detail",
        doc="First epoch after the lowest test loss, if the test loss then ends higher and the train loss lower. In "
        "tables, of the mean over at least 3 repeats, and only beyond chance.",
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
    Metric(
        name="joules_per_sample", label="J/sample", kind="amount", direction="min", scope="run", is_time=True,
        spare=7, doc="power_w divided by samples/s or images/s: energy of a sample, of the counted steps alone.",
    ),
    _cost("samples", "samples/s or images/s"),
    _cost("tokens", "tokens/s"),
    _time(
        name="run_cost", label="cost/run", scope="run", format="number", shown="detail",
        doc="With --price: price of total_s, for all GPUs or machines of the run.",
    ),
    # In records, in no table.
    _epoch_time(
        name="train_s", returnable=True, doc="Seconds of counted training steps, from the barrier to the last rank."
    ),
    _epoch_time(name="eval_s", returnable=True, doc="Seconds of test passes, to the last rank."),
    _epoch_time(name="warmup_s", doc="Seconds of the steps that count in no rate."),
    _epoch_time(
        name="ended_s", across_epochs="none",
        doc="Seconds from the assignment of the run to the end of an epoch and its test, on the last rank.",
    ),
    _count(
        name="images", scope="epoch", across_ranks="sum", across_epochs="none",
        doc="Samples of the counted steps of an epoch, on all ranks.",
    ),
    _rank_time(name="setup_s", doc="Seconds of process group, model, data, wrapping and compiling."),
    _rank_time(name="checkpoint_s", doc="Seconds of saving checkpoints."),
    _rank_time(
        name="instruments_s",
        doc="Seconds of link probe, measurements and the imports of a function, in no phase and not in total_s.",
    ),
    _rank_time(name="inference_s", doc="Seconds of converting to int8, testing and timing inference."),
    _rank_time(
        name="between_s",
        doc="Seconds of total_s in none of these phases: the ranks wait for each other and add up their losses, and "
        "the model changes between training and evaluation.",
    ),
    _rank_time(name="step_ms_p95", doc="95th percentile of the counted optimizer steps on the slowest rank."),
    _memory(
        name="start_mem_mib", format="whole", doc="CPU: resident set when the run begins; GPU: allocated then."
    ),
    _memory(
        name="free_mem_mib", across_ranks="min", format="whole",
        doc="CPU: free memory of the machine, or of its container, when the run begins.",
    ),
    _memory(name="peak_reserved_mib", format="whole", doc="GPU: peak that the caching allocator reserves."),
    _rank_time(
        name="comm_ms", across_ranks="min",
        doc="Communication of gradients per step, from the first bucket to the last.",
    ),
    _rank_time(name="overlap_ms", across_ranks="min", doc="Part of comm_ms that computation hides."),
    _rank_count(
        name="power_w", across_ranks="sum", format="number",
        doc="Mean power while steps are counted: of the GPUs alone, by NVML; on a CPU of all of its packages, by RAPL.",
    ),
    _rank_count(name="gpu_mhz", across_ranks="min", doc="Mean clock of the GPU's multiprocessors during the run."),
    *[_held_by(name) for name in HELD_BY],
    _rank_count(
        name="cpu_cores", across_ranks="sum", format="number",
        doc="Cores that the ranks and the processes that they start compute with, on average over the run.",
    ),
    _rank_count(
        name="busy_cores", across_ranks="max", format="number",
        doc="Mean number of busy cores during the run, among those that a rank may use, on the machine with most. On "
        "one machine, the part above cpu_cores is used by other programs and Ray.",
    ),
    _rank_count(name="idle_cores", across_ranks="min", format="number", doc="Mean number of idle cores, likewise."),
    _rank_count(
        name="quota_cores", across_ranks="min", format="number",
        doc="CPU quota of the container in cores, where it has one (cpu.max of its control group).",
    ),
    Metric(
        name="throttled_by_quota", kind="share", direction="none", scope="rank", across_ranks="max",
        doc="Share of the periods of that quota, of 100 ms by default, in which the container had used it up and was "
        "stopped (nr_throttled of cpu.stat).",
    ),
    _rank_count(
        name="tflop_per_step", across_ranks="sum", format="number",
        doc="Model FLOPs of one step, counted in an untimed one, in 10^12, over all ranks.",
    ),
    _rank_count(
        name="product_tflop_per_s", across_ranks="mean", format="number", is_time=True,
        doc="What square matrix products reach on the device of a rank, in the number formats of its step and with its "
        "threads, in 10^12 operations per second: the fastest of several, measured once and kept in the cache.",
    ),
    _rank_count(
        name="product_spread", format="number", is_time=True,
        doc="Share by which the median of these products is slower than the fastest.",
    ),
    _rank_count(name="collectives", doc="Collectives of torch.distributed, where the backend counts them."),
    _rank_count(
        name="unseen_collectives",
        doc="Collectives outside DDP in the counted steps of a script or function that no Python code waited for. If "
        "there are any, the time of collectives is not known.",
    ),
    _rank_count(name="optimizer_steps", doc="Steps of the optimizer that makes the most steps."),
    _count(name="parameters", returnable=True, doc="Trainable parameters of the model."),
    _count(name="model_dropout", doc="Highest rate of the model's dropout layers as it is trained, if it has any."),
    _count(name="buffer_elements", doc="Elements of the buffers of the models of a script or function."),
    _count(name="scaled_lr", doc="Learning rate after lr_scaling."),
    _count(name="train_samples", returnable=True, doc="Training samples."),
    _count(name="test_samples", returnable=True, doc="Test samples."),
    _count(name="test_classes", doc="Classes that a test sample may be of."),
    _count(name="loss_gap", doc="test_loss - train_eval_loss; for an epoch, test_loss - train_loss."),
    _count(
        name="train_eval_loss",
        doc="Mean loss of the trained model on train_eval_samples training samples, in eval mode.",
    ),
    _count(name="train_eval_accuracy", doc="Fraction of these samples that the trained model classifies correctly, in "
    "eval mode."),
    _count(
        name="train_eval_samples", doc="Training samples of that evaluation: as many as there are test samples, or all."
    ),
    _count(name="validation_samples", returnable=True, doc="Samples that validation_share holds out."),
    _rank_count(
        name="given_elements", across_ranks="sum", format="number",
        doc="Elements of the tensors that models are given in a step, on all ranks.",
    ),
    _rank_count(name="loaded_per_step", across_ranks="sum", doc="Samples of a step that loaders gave, on all ranks."),
    _count(name="exit_code", doc="Exit code of a script."),
    Metric(
        name="last_loss", label="last loss", kind="amount", direction="min", scope="run", shown="detail",
        doc="Loss of the last step of a script, of one batch of rank 0.",
    ),
    Metric(
        name="tenth_loss", kind="amount", direction="none", scope="run",
        doc="Loss of the tenth step of a script, of one batch of rank 0; runs that end after different steps both "
        "have it.",
    ),
    Metric(
        name="early_loss", kind="amount", direction="none", scope="rank", across_ranks="mean",
        doc="Mean loss of the first three steps; equal, within rounding, where two trials train the same.",
    ),
    Metric(
        name="first_loss", label="first loss", kind="amount", direction="min", scope="run", shown="detail",
        doc="Loss of the first step of a script or function, of one batch of rank 0.",
    ),
    _count(name="steps", doc="Optimizer steps, warm-up included."),
    _count(name="counted_steps", doc="Optimizer steps of a script or function that its rates are based on."),
    _count(name="steps_made", doc="All optimizer steps of a script or function, with those of the warm-up."),
    _count(name="warmup_steps", doc="Optimizer steps that count in no rate."),
    _count(name="skipped_steps", doc="Steps of amp-fp16 left out because a gradient was not finite."),
    _count(name="compile_s", doc="Seconds of setup_s that torch.compile takes."),
    _count(name="compiled_graphs", doc="Graphs of the training that torch.compile makes."),
    _count(name="resumed_epoch", doc="Epoch after which the run continued from a checkpoint."),
    _count(name="best_epoch", doc="Epoch whose weights early stopping restored."),
    _count(name="target_epoch", doc="Epoch in which a test first reached target_accuracy."),
    _count(name="target_steps", doc="Optimizer steps until that test; an epoch has target_tests tests."),
    _count(name="target_s", direction="min", doc="Seconds from assignment until that test."),
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
