"""`TrainingChange`: whether two trials train the same, by what was seen of them: samples, number format and losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from dmls_ray.analysis.trials.axis import Pair
from dmls_ray.analysis.trials.steps import are_equal_sizes, configured_samples, has_configured_samples
from dmls_ray.analysis.trials.trial import Trial

ROUNDING = 1e-5
"""Relative difference up to which losses of the first steps are equal: about ten times what sums in another order make
of them in float32, and less than what most changes of a learning rate make."""
COARSE_ROUNDING = 1e-3
"""The same where models compute in a shorter format: about five times what bfloat16 makes."""
FULL_FORMATS = {"", "float32", "float64"}
"""Those with which losses are equal up to `ROUNDING`."""

_UNITS = {"samples_per_step": "samples", "tokens_per_step": "tokens"}
"""Metric -> what a step has so many of."""

_PADDING = 0.02
"""Share of the parameters of a model that its division among ranks may add."""

GROWTH = 100
"""By how much more than those of the first steps the losses of later ones may differ: rounding grows with the steps."""

Losses = Literal["equal", "last", "later", "differ", "ranks", "unknown"]
"""Of the first steps. last: equal, and those of the last step are not. later: equal in the first step, and not after
the first update. ranks: not equal, which says nothing, since other numbers of ranks have other samples in their first
steps. unknown: no two runs with one seed have any."""
TrainingVerdict = Literal["same", "changed", "unclear", "unknown"]


@dataclass(frozen=True)
class TrainingChange:
    """How the training of two trials differs."""

    sizes: Mapping[str, tuple[float, float]]
    """Unit -> how many of them a step of all ranks has, of the trial and of the other one; without those of which it is
    not known whether they differ."""
    model: Mapping[str, tuple[float, float]]
    """`parameters` or `buffer_elements` -> how many of them the models have, where they differ."""
    number_format: tuple[str, str]
    """In what the models computed; empty where that was not seen."""
    losses: Losses
    rounding: float
    """Relative difference up to which losses count as equal."""
    first_losses: tuple[float, float]
    """Medians of the losses that were compared; 0 where they are unknown."""

    @property
    def has_other_format(self) -> bool:
        """Whether the models compute in another number format."""
        return all(self.number_format) and self.number_format[0] != self.number_format[1]

    @property
    def is_other(self) -> bool:
        """Whether the training is another one: of another model, with other batches, or in another number format."""
        has_other_size = any(size != base for size, base in self.sizes.values())
        return self.has_other_format or has_other_size or bool(self.model)

    @property
    def verdict(self) -> TrainingVerdict:
        """What is known of it."""
        if self.is_other:
            return "changed"
        if self.losses in ("ranks", "unknown"):
            return "unknown"
        return "same" if self.losses == "equal" else "unclear"


def training_change(pair: Pair) -> TrainingChange | None:
    """How the training of two trials differs; None where that was not seen.

    Where a step was not counted, as in built-in models, the fields of the table and what was learned say what changed:
    only that nothing did is said then.
    """
    trial, base = pair.trial, pair.base
    if trial is base:
        return None
    formats = number_format_of(trial), number_format_of(base)
    rounding = rounding_of(formats)
    losses, shown = _compare_losses(trial, base, rounding)
    counted = _counted_sizes(trial, base)
    model = _other_model(trial, base) if losses != "equal" else {}
    sizes = counted or _configured_sizes(trial, base)
    known = {}
    for unit, (size, base_size) in sizes.items():
        may_be_equal = are_equal_sizes(trial, base, size, base_size)
        if may_be_equal and losses == "equal":
            known[unit] = (max(size, base_size),) * 2
        elif size == base_size or not may_be_equal:
            known[unit] = size, base_size
    change = TrainingChange(known, model, formats, losses, rounding, shown)
    runs = [*trial.counted, *base.counted]
    is_checked = losses != "unknown" and any("samples_unknown" in record.facts for record in runs)
    return change if counted or is_checked or change.verdict == "same" else None


def number_format_of(trial: Trial) -> str:
    """In what the model of a trial computed; empty where that was not seen."""
    return next((str(record.facts["number_format"]) for record in trial.counted if "number_format" in record.facts), "")


def rounding_of(formats: tuple[str, str]) -> float:
    """Relative difference up to which losses of models that compute in these formats are equal."""
    return ROUNDING if FULL_FORMATS.issuperset(formats) else COARSE_ROUNDING


def _configured_sizes(trial: Trial, base: Trial) -> dict[str, tuple[float, float]]:
    """The same by the fields of both trials, where they have them."""
    if not (has_configured_samples(trial) and has_configured_samples(base)):
        return {}
    return {"samples": (configured_samples(trial), configured_samples(base))}


def _counted_sizes(trial: Trial, base: Trial) -> dict[str, tuple[float, float]]:
    """What a step has, by unit, where it was counted in both trials."""
    sizes = {}
    for metric, unit in _UNITS.items():
        values, base_values = _of_equal_seeds(trial, base, metric)
        if values:
            sizes[unit] = median(values), median(base_values)
    return sizes


def _other_model(trial: Trial, base: Trial) -> dict[str, tuple[float, float]]:
    """Parameters and buffers of the models that the first rank has seen training, where they differ.

    Not of different numbers of ranks, nor where a rank of one has its share of a model that each rank of the other one
    has as a whole.
    """
    sizes: dict[str, tuple[float, float]] = {}
    if trial.world_size != base.world_size:
        return sizes
    for metric in ("parameters", "buffer_elements"):
        values, base_values = _of_equal_seeds(trial, base, metric)
        if not values:
            continue
        size, base_size = median(values), median(base_values)
        shared = trial.world_size * min(size, base_size)
        is_share = trial.world_size > 1 and abs(shared - max(size, base_size)) <= _PADDING * shared
        if size != base_size and not is_share:
            sizes[metric] = size, base_size
    return sizes


def _compare_losses(trial: Trial, base: Trial, rounding: float) -> tuple[Losses, tuple[float, float]]:
    """How the losses of the first steps compare, and their medians."""
    early, base_early = _of_equal_seeds(trial, base, "early_loss")
    if not early:
        return "unknown", (0.0, 0.0)
    medians = median(early), median(base_early)
    # Code that accumulates gradients may divide the loss of each pass, or not.
    divided = (trial.value_of("backward_passes") or 1.0) / (base.value_of("backward_passes") or 1.0)
    if _are_equal(early, base_early, divided, rounding):
        made, base_made = _of_equal_seeds(trial, base, "steps_made")
        last, base_last = _of_equal_seeds(trial, base, "last_loss")
        if not last or made != base_made:
            last, base_last = _of_equal_seeds(trial, base, "tenth_loss")
        if trial.world_size != base.world_size or _are_equal(last, base_last, divided, GROWTH * rounding):
            return "equal", medians
        return "last", (median(last), median(base_last))
    if trial.world_size != base.world_size:
        return "ranks", medians
    first, base_first = _of_equal_seeds(trial, base, "first_loss")
    if first and _are_equal(first, base_first, divided, rounding):
        return "later", medians
    return "differ", medians


def _are_equal(losses: Sequence[float], base: Sequence[float], divided: float, rounding: float) -> bool:
    """Whether all losses are equal, either as they are or where those of a pass were divided."""
    for factor in (1.0, divided):
        if all(abs(a * factor - b) <= rounding * abs(b) for a, b in zip(losses, base, strict=True)):
            return True
    return False


def _of_equal_seeds(trial: Trial, base: Trial, metric: str) -> tuple[list[float], list[float]]:
    """A metric in the runs of two trials that have the same repeat and the same seed."""
    values, base_values = _by_seed(trial, metric), _by_seed(base, metric)
    common = [key for key in values if key in base_values]
    return [values[key] for key in common], [base_values[key] for key in common]


def _by_seed(trial: Trial, metric: str) -> dict[tuple[int, int], float]:
    records = [record for record in trial.counted if metric in record.metrics]
    return {(record.repeat, record.seed): record.metrics[metric] for record in records}
