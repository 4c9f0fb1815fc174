"""Sentences on the machines of a sweep: what made their times others than those of a quiet one, and lanes."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_ray.analysis.stats.formatting import ratio_text
from dmls_ray.analysis.stats.intervals import is_below
from dmls_ray.analysis.trials.disturbances import describe_held_clocks, describe_other_work, describe_throttling
from dmls_ray.analysis.trials.machine_speeds import effects_of_kinds, machine_speeds
from dmls_ray.analysis.trials.trial import Trial, describe_configuration
from dmls_ray.analysis.words import join_names


def disturbance_notes(trials: Sequence[Trial]) -> list[str]:
    """What made times other than those of a quiet machine at full clocks, in notes; none where nothing did."""
    notes = []
    if held := describe_held_clocks(trials):
        notes.append(f"GPU clocks were throttled: {join_names(held)}; these times are not those at full clock speed.")
    if throttled := describe_throttling(trials):
        notes.append(
            f"The CPU quota of the container stopped the ranks of these runs: {join_names(throttled)}; their times are "
            "not those of cores of their own. Give the container a larger CPU limit, or none."
        )
    if work := describe_other_work(trials):
        names = join_names(work)
        notes.append(
            f"Other programs used the processor during these runs: {names}; a quiet machine needs fewer repeats."
        )
    return notes


def lane_notes(trials: Sequence[Trial]) -> list[str]:
    """On which machines whole blocks were measured at the same time, and which of these were slower than the others."""
    notes = []
    for text in dict.fromkeys(record.beside for trial in trials for record in trial.records if record.beside):
        notes.append(f"Lanes shared a machine: {text}.")
    machines = machine_speeds(trials)
    if not machines or notes:
        return notes
    kinds = {machine.kind for machine in machines}
    of_kinds = f" of {len(kinds)} kinds of machine, over which comparisons are a mean," if len(kinds) > 1 else ""
    notes.append(
        f"Blocks were measured on {len(machines)} lanes{of_kinds} at the same time, each whole block on one. Trials "
        "are compared within blocks, so a slower machine changes no comparison; --by machines shows each."
    )
    slow = [machine for machine in machines if is_below(machine.against_others, 1)]
    names = [f"{machine.hosts} ({ratio_text(machine.against_others, x=True)})" for machine in slow]
    if names:
        notes.append(f"Slower than the other machines beyond chance: {join_names(names)}.")
    if len(kinds) > 1 and (text := _effects_text(trials)):
        notes.append(text)
    return notes


def _effects_text(trials: Sequence[Trial]) -> str:
    """Whether the effect of a setting depends on the kind of machine; empty where that is not known."""
    base, *others = trials
    effects = effects_of_kinds(trials)
    texts = []
    for trial in others:
        ratios = effects.differing.get(trial.trial_id, {})
        of_kinds = [f"{ratio_text(ratio, x=True)} on {kind}" for kind, ratio in ratios.items()]
        if of_kinds:
            texts.append(f"{describe_configuration(trial.factors)} ({join_names(of_kinds)})")
    speed = f"speed against {describe_configuration(base.factors)}"
    if texts:
        return f"The {speed} differs between kinds of machine beyond chance: {join_names(texts)}."
    return f"No {speed} differs between kinds of machine beyond chance." if effects.compared else ""
