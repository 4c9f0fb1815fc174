"""The sentences on whether two trials train the same, and on how their steps differ."""

from __future__ import annotations

from collections.abc import Mapping

from dmls_ray.analysis.findings.same_losses import LossVerdict
from dmls_ray.analysis.findings.same_training import TrainingChange
from dmls_ray.analysis.trials.steps import PARTS, TOGETHER, StepChange
from dmls_ray.analysis.trials.trial import Trial

TRAINING: Mapping[str, str] = {
    "same": "No change of the training was seen",
    "unclear": "The training may have changed",
    "unknown": "Whether the training changed was not checked",
}
"""Verdict on the training of two trials -> the words."""
TRAINING_CELLS: Mapping[str, str] = {
    "same": "same",
    "changed": "changed",
    "unclear": "losses differ",
    "unknown": "not checked",
}
"""The same in a cell."""
FIRST_LOSSES: Mapping[str, str] = {
    "equal": "equal losses of the first three steps (within {rounding:g}%)",
    "last": "equal losses of the first three steps (within {rounding:g}%) but not of the last step ({} and {}); a "
    "learning rate that starts low, another weight decay or another order of samples in later epochs has this effect",
    "later": "equal losses of the first step but not after its update ({} and {} over three steps); another learning "
    "rate or optimizer has this effect",
    "differ": "but the losses of the first three steps differ ({} and {}); dropout, another order of samples or a "
    "script without a seed has this effect",
    "ranks": "and the losses of the first three steps differ, as expected where the ranks divide the samples "
    "differently",
    "unknown": "and no losses of two runs with the same seed were seen",
}
"""How the losses of the first steps compare -> the words."""
FIRST_STEPS: Mapping[int | None, str] = {
    1: "before any update, so the samples or their order (let one rank read by a DistributedSampler, too), the initial "
    "weights or the loss itself differ, or what dropout draws, or the samples of batch norm",
    2: "after the first update, so gradients or the optimizer differ",
}
"""The first step whose losses differ -> the words."""
_LARGE = 100_000
"""Parameters from which on they are written in millions."""
_PARTS = {
    **PARTS, "exposed_comm_ms": "communication", TOGETHER: "backward pass with communication", "rest_ms": "other"
}  # fmt: skip
_NAMED_FROM = 0.1
"""Share of the change of a step from which on a part is named."""


def training_text(change: TrainingChange | None) -> str:
    """Whether the training of two trials is the same; empty where that was not seen."""
    if change is None:
        return ""
    changes: list[str] = []
    # Twice the samples are twice the tokens, too.
    for unit, (size, base_size) in change.sizes.items():
        if size != base_size and not changes:
            changes.append(f"{size:,.10g} {unit} a step instead of {base_size:,.10g}")
    if change.model:
        changes.append(_model_text(change))
    if change.has_other_format:
        changes.append("{} instead of {}".format(*change.number_format))
    if changes:
        return (
            f"The training itself changed: {', '.join(changes)}. Compare the losses after equally many samples before "
            "you choose."
        )
    same = [f"{size:,.10g} {unit} a step in both" for unit, (size, _) in change.sizes.items()][:1]
    losses = FIRST_LOSSES[change.losses].format(*_distinct(*change.first_losses), rounding=100 * change.rounding)
    if not same:
        losses = losses.removeprefix("but ").removeprefix("and ")
    return f"{TRAINING[change.verdict]}: {', '.join([*same, losses])}."


def _model_text(change: TrainingChange) -> str:
    """Which other model is trained, or which other part of one."""
    (name, sizes), *_ = change.model.items()
    texts = [f"{size / 1e6:.3g}M" for size in sizes]
    if min(sizes) < _LARGE or texts[0] == texts[1]:
        texts = [f"{size:,.0f}" for size in sizes]
    noun = "parameters" if name == "parameters" else "elements of buffers"
    # With the same model the loss of the first step is equal, whatever is trained of it.
    has_one_model = change.losses in ("last", "later")
    head = "other parts of the model are trained" if has_one_model else "another model"
    return f"{head}: {texts[0]} {noun} instead of {texts[1]}"


def training_cell(change: TrainingChange | None) -> str:
    """The same in a cell; empty where that was not seen."""
    return "" if change is None else TRAINING_CELLS[change.verdict]


def losses_text(verdict: LossVerdict) -> str:
    """How the losses of the steps of two trials compare."""
    text: str = verdict.verdict
    if verdict.step is not None:
        text += f" from step {verdict.step} on"
    if verdict.losses is not None:
        text += " (losses {} and {})".format(*_distinct(*verdict.losses))
    if verdict.reason:
        text += f": {verdict.reason}"
    elif verdict.step in FIRST_STEPS:
        text += f": {FIRST_STEPS[verdict.step]}"
    elif verdict.step is not None and verdict.largest is not None:
        text += f": those of the steps before differ by at most {verdict.largest:.1g} of their size"
    elif verdict.largest:
        text += f": the losses of {verdict.steps} steps differ by at most {verdict.largest:.1g} of their size"
    elif verdict.step is None:
        text += f" in the losses of {verdict.steps} steps"
    return f"{text}."


def _distinct(loss: float, base: float) -> tuple[str, str]:
    """Two losses with as many digits as show that they differ, four at least."""
    texts = f"{loss:.4g}", f"{base:.4g}"
    return texts if texts[0] != texts[1] else (f"{loss:.7g}", f"{base:.7g}")


def why_text(change: StepChange | None) -> str:
    """Where the difference between the steps of two trials goes; empty where it is not known."""
    if change is None:
        return ""
    amounts = sorted(change.changes.items(), key=lambda item: -abs(item[1]))
    total = sum(abs(ms) for ms in change.changes.values())
    largest = abs(amounts[0][1])
    decimals = 2 - (largest >= 1) - (largest >= 100)  # two digits or more
    parts = []
    left = change.step_ms - change.base_ms
    for name, ms in amounts:
        if abs(ms) >= _NAMED_FROM * total > 0:
            parts.append(f"{ms:+.{decimals}f} {_PARTS[name]}")
            left -= ms
    # What is named adds up to the difference.
    if abs(left) >= _NAMED_FROM * abs(change.step_ms - change.base_ms) > 0:
        parts.append(f"{left:+.{decimals}f} in smaller parts")
    if change.slower_rank is not None:
        rank, ms = change.slower_rank
        parts.append(f"rank {rank} is slower than the others by {ms:.{decimals}f}")
    times = f"{change.step_ms:.{decimals}f} ms a step instead of {change.base_ms:.{decimals}f}"
    samples = "" if change.samples == 1 else f" with {change.samples:.3g}x the samples"
    text = f"Why: {times}{samples}: {', '.join(parts)}."
    if change.collectives or change.base_collectives:
        waits = [_collectives_text(kinds, decimals) for kinds in (change.collectives, change.base_collectives)]
        text += f" Waiting for collectives outside DDP, in ms a step: {waits[0]} vs {waits[1]}."
    return text


def _collectives_text(kinds: Mapping[str, float] | None, decimals: int) -> str:
    """`14.7 all-gather, 10.9 reduce-scatter`."""
    if kinds is None:
        return "not known"
    texts = [f"{ms:.{decimals}f} {kind.replace('_', '-')}" for kind, ms in kinds.items()]
    return ", ".join(texts) or "none"


def set_up_lines(trial: Trial | None, preload: str | None) -> list[str]:
    """What shortens the runs of a user's code that are mostly set-up, if libraries are imported in it; else nothing.

    Args:
        trial: one of the trials; None without any.
        preload: the libraries that runs find imported.
    """
    if trial is None or preload is not None or not trial.records[0].code:
        return []
    # Of the last run, since the first one reads more from the disk.
    set_up, total = (trial.records[-1].metrics.get(name, 0.0) for name in ("setup_s", "total_s"))
    if set_up < max(1.0, total / 2):
        return []
    head = f"Set-up takes {set_up:.1f} of the {total:.1f} s of a run, up to the end of its first step"
    return [f"{head}. What of that imports libraries is spared by --preload MODULE,..., which imports them once."]
