"""The values of a run that follow from those of its ranks and epochs, and whether its ranks trained one model.

The parameters decide about that. Only where they were equal all the time, the number of collectives says whether the
ranks communicated their gradients or trained alone on the same samples.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean

import msgspec

from dmls_ray.records.metrics import BY_NAME, Metric
from dmls_ray.records.model import EpochRecord, RankRecord, RunRecord, RunValues
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.returned import part_of
from dmls_ray.records.run_events import RankResult
from dmls_ray.records.samples_of_ranks import have_same_samples, take_samples

_COMBINE: Mapping[str, Callable[[Sequence[float]], float]] = {
    "max": max,
    "min": min,
    "sum": sum,
    "mean": fmean,
    "spread": lambda values: max(values) - min(values),
    "rank0": lambda values: values[0],
}


def take_results(record: RunRecord, results: Sequence[RankResult], metrics: Sequence[Metric] = ()) -> None:
    """Fill in what the ranks measured.

    A metric of scope `rank` is combined over the ranks as its entry says; the others are already over all ranks.

    Args:
        record: the run.
        results: of the ranks that returned, in their order; a run that was interrupted has fewer.
        metrics: the metrics of the workload; those of training are taken as well.
    """
    record.ranks = [msgspec.convert(result, RankRecord, from_attributes=True) for result in results]
    if not results:
        return

    entries = _by_name(metrics)
    measured: set[str] = set()
    for result in results:
        measured.update(result.metrics, result.run.metrics, *(epoch.metrics for epoch in result.epochs))
    unknown = ", ".join(sorted(measured - entries.keys()))
    if unknown and record.outcome is Outcome.OK:
        record.outcome = Outcome.ERROR
        record.reason = f"{unknown}: there is no Metric of this name; add it to the workload, or give it in `reported`"
    if len(results) == record.config.get("world_size"):
        record.independent_ranks = independence_of(record.ranks)
    # A rank may serve others, as one that plays the games that another trains on.
    trained = [result for result in results if not result.run.without_steps]
    serving = [str(result.rank) for result in results if result.run.without_steps]
    run = (trained or results)[0].run
    for name in RunValues.__struct_fields__:
        setattr(record, name, getattr(run, name))
    reported = part_of(run.reported, RunValues, "what a run reported")
    record.picture = run.picture or reported.picture
    record.facts = run.facts | reported.facts
    of_run = run.metrics | reported.metrics
    record.metrics = dict(of_run)
    take_epochs(record, run.epochs, metrics)
    # What the run itself has measured comes before what follows from its epochs.
    record.metrics |= of_run
    _take_gaps(record.metrics)
    for metric in entries.values():
        value = _combined(metric, record.ranks) if metric.scope == "rank" else None
        if value is not None:
            record.metrics.setdefault(metric.name, value)
    for result in reversed(results):  # the reason of the first rank stays
        if "time_unknown" in result.run.facts:
            record.facts["time_unknown"] = result.run.facts["time_unknown"]
    if serving and any(result.run.metrics.get("steps_made") for result in trained):
        record.facts["without_steps"] = ", ".join(serving)
    record.step_losses = _mean_losses([result.step_losses for result in trained])
    # Those of a rank that has losses: one without, as in a pipeline, has zeros.
    passes = max([result.step_passes for result in trained], default=[])
    record.step_passes = passes if any(count != 1 for count in passes) else []
    take_samples(record, trained, run.said)
    rate = record.metrics.get("images_per_s") or record.metrics.get("samples_per_s")
    if rate and "power_w" in record.metrics:
        record.metrics["joules_per_sample"] = record.metrics["power_w"] / rate


def _mean_losses(of_ranks: Sequence[Sequence[float | None]]) -> list[float]:
    """The mean over ranks of each step's loss, up to the first step of which a rank has none.

    A rank without any, as the first stage of a pipeline, is left out.
    """
    means = []
    for losses in zip(*[losses for losses in of_ranks if {*losses} - {None}], strict=False):
        if None in losses:
            break
        means.append(fmean(losses))
    return means


def take_epochs(record: RunRecord, epochs: list[EpochRecord], metrics: Sequence[Metric] = ()) -> None:
    """Fill in the epochs and what follows from them."""
    record.epochs = epochs
    if not epochs:
        return
    best_epoch = record.metrics.get("best_epoch")
    kept = next((item for item in epochs if item.epoch == best_epoch), epochs[-1])
    of_run = record.metrics
    of_run |= _over(epochs, kept, _by_name(metrics))
    record.facts = kept.facts | record.facts
    if "images_per_s" in of_run and "train_samples" in of_run:
        of_run["epoch_s"] = of_run["train_samples"] / of_run["images_per_s"]
    _take_gaps(of_run)
    _take_overfitting(record)


def _by_name(metrics: Sequence[Metric]) -> Mapping[str, Metric]:
    return {**BY_NAME} | {metric.name: metric for metric in metrics}


def _over(epochs: Sequence[EpochRecord], kept: EpochRecord, metrics: Mapping[str, Metric]) -> dict[str, float]:
    """The metrics of a run by those of its epochs, `kept` the one whose weights the model has."""
    values: dict[str, float] = {}
    sums: defaultdict[str, float] = defaultdict(float)
    for epoch in epochs:
        for name, value in epoch.metrics.items():
            sums[name] += value
    for name, total in sums.items():
        across = metrics[name].across_epochs if name in metrics else "last"
        if across == "sum":
            values[name] = total
        elif across == "last" and name in kept.metrics:
            values[name] = kept.metrics[name]
    if sums.get("images") and values.get("train_s"):
        # The ratio of the sums, not a mean of rates.
        values["images_per_s"] = sums["images"] / values["train_s"]
    return values


def _combined(metric: Metric, ranks: Sequence[RankRecord]) -> float | None:
    """The value of the run; None if no rank has one."""
    if metric.part_of:
        measured = [rank.metrics for rank in ranks if metric.part_of in rank.metrics]
        largest = max(measured, key=lambda values: values[metric.part_of], default={})
        return largest.get(metric.name)
    name = metric.of or metric.name
    values = [rank.metrics[name] for rank in ranks if name in rank.metrics]
    assert metric.across_ranks is not None, metric.name
    return _COMBINE[metric.across_ranks](values) if values else None


def _take_gaps(metrics: dict[str, float]) -> None:
    """Fill in how much better training samples are classified than test samples, where known by the trained model."""
    if "train_eval_accuracy" in metrics:
        metrics["train_accuracy"] = metrics["train_eval_accuracy"]
    train_loss = metrics.get("train_eval_loss", metrics.get("train_loss"))
    if train_loss is not None and "test_loss" in metrics:
        metrics["loss_gap"] = metrics["test_loss"] - train_loss
    if "train_accuracy" in metrics and "test_accuracy" in metrics:
        metrics["accuracy_gap"] = metrics["train_accuracy"] - metrics["test_accuracy"]


def _take_overfitting(record: RunRecord) -> None:
    """Fill in the epoch after the least test loss, if test loss ended higher and train loss lower than there."""
    tested = [item for item in record.epochs if "train_loss" in item.metrics and "test_loss" in item.metrics]
    if not tested:
        return
    best, last = min(tested, key=lambda item: item.metrics["test_loss"]), tested[-1]
    if (
        best.metrics["test_loss"] < last.metrics["test_loss"] < math.inf
        and last.metrics["train_loss"] < best.metrics["train_loss"]
    ):
        record.metrics["overfit_epoch"] = best.epoch + 1


_EQUAL = 1e-5
"""Distance of parameters, relative to their norm, from which they differ: machines round differently."""

_APART = 1e-7
"""Distance of sampled parameters from which they differ in training, where small learning rates change little."""

_BROUGHT_TOGETHER = 0.1
"""Share of the distance in training that is left where ranks have averaged their parameters."""


def independence_of(ranks: Sequence[RankRecord]) -> str:
    """Why the ranks did not train one model together; empty if they did, or where that is unknown."""
    if len(ranks) < 2:
        return ""
    distance = _distance([rank.parameter_sketch for rank in ranks])
    if distance is None:
        return ""
    distances = []
    for values in zip(*(rank.sampled_parameters for rank in ranks), strict=False):
        if _are_finite(values):
            distances.append(max(abs(value - values[0]) for value in values[1:]))
    in_training = max(distances, default=None)
    few_collectives = _few_collectives(ranks)
    if distance > _EQUAL:
        # One rank may use other parameters after its training, as a moving average.
        were_equal = in_training is not None and in_training <= _APART
        # Of the same samples, each rank has a part of the model, and they exchange what they compute.
        if not few_collectives and (were_equal or have_same_samples(ranks)):
            return ""
        return f"the ranks ended with different parameters, {distance:.2g} of their norm apart"
    if in_training is not None and in_training > _APART and distance <= _BROUGHT_TOGETHER * in_training:
        return ""
    return few_collectives


def _few_collectives(ranks: Sequence[RankRecord]) -> str:
    """That the ranks communicated less often than they made optimizer steps; empty if not, or where it is unknown."""
    collectives = [rank.metrics["collectives"] for rank in ranks if "collectives" in rank.metrics]
    steps = min(rank.metrics.get("optimizer_steps", 0) for rank in ranks)
    if len(collectives) < len(ranks) or max(collectives) >= steps:
        return ""
    number = f"{max(collectives):,}" if max(collectives) else "no"
    return f"{number} collectives in {steps:,} optimizer steps, which made neither gradients nor parameters equal"


def _distance(sketches: Sequence[Sequence[float]]) -> float | None:
    """The largest distance of a rank's parameters from the first rank's, relative to their norm; None where unknown."""
    first, *others = sketches
    if not first or not all(_are_finite(sketch) for sketch in sketches):
        return None
    furthest = 0.0
    for other in others:
        # Other numbers of elements are other parts of one model.
        if len(other) != len(first) or other[0] != first[0]:
            return None
        furthest = max(furthest, max(abs(a - b) for a, b in zip(first[2:], other[2:], strict=True)))
    return furthest / (math.sqrt(first[1]) or 1.0)


def _are_finite(values: Sequence[float | None]) -> bool:
    return all(value is not None and math.isfinite(value) for value in values)
