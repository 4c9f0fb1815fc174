"""Sentences on the machines of a sweep: what made their times others than those of a quiet one, and lanes."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_ray.analysis.stats.formatting import ratio_text
from dmls_ray.analysis.stats.intervals import is_below
from dmls_ray.analysis.trials.held_clocks import describe_held_clocks
from dmls_ray.analysis.trials.machine_speeds import machine_speeds
from dmls_ray.analysis.trials.other_work import describe_other_work
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.analysis.words import join_names


def disturbance_notes(trials: Sequence[Trial]) -> list[str]:
    """What made times other than those of a quiet machine at full clocks, in notes; none where nothing did."""
    notes = []
    if held := describe_held_clocks(trials):
        notes.append(f"GPU clocks were throttled: {join_names(held)}; these times are not those at full clock speed.")
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
        notes.append(f"Lanes shared a machine, and these times are those of a shared machine: {text}.")
    machines = machine_speeds(trials)
    if not machines or notes:
        return notes
    kinds = {machine.kind for machine in machines}
    of_kinds = f" of {len(kinds)} kinds of machine" if len(kinds) > 1 else ""
    notes.append(
        f"Blocks were measured on {len(machines)} lanes{of_kinds} at the same time, each whole block on one. Trials "
        "are compared within blocks, so a slower machine changes no comparison; --by machines shows each."
    )
    slow = [machine for machine in machines if is_below(machine.against_others, 1)]
    names = [f"{machine.host} ({ratio_text(machine.against_others, x='end')})" for machine in slow]
    if names:
        notes.append(f"Slower than the other machines beyond chance: {join_names(names)}.")
    return notes
