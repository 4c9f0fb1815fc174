"""How the results of scripts are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dmls_ray.analysis.table.model import Note
from dmls_ray.analysis.table.presentation import Presentation
from dmls_ray.analysis.table.seen import fact_of
from dmls_ray.analysis.trials.steps import samples_of_step
from dmls_ray.analysis.trials.trial import Trial, describe_configuration
from dmls_ray.analysis.words import count_noun, join_names


class ScriptPresentation(Presentation):
    """Notes on what was seen of a script."""

    samples_by = "give --samples"

    def notes(self, rows: Sequence[Trial]) -> list[Note]:
        """Also which trials have one loss, and which files runs share."""
        notes = super().notes(rows)
        if same := _named([row for row in rows if _has_one_loss(row)]):
            reason = "losses are equal in all repeats, so the script seeds itself; --seed-flag names its flag, if any"
            notes.append(Note("repeats", f"{same}: {reason}."))
        threads = sorted({(row.world_size, text) for row in rows if (text := fact_of(row, "threads"))})
        if len({text for _, text in threads}) > 1:
            listed = ", ".join(f"{text} on {count_noun(ranks, 'rank')}" for ranks, text in threads)
            way_out = "so ranks differ in their threads, too; --threads-per-rank 1 compares ranks alone"
            notes.append(Note("method", f"A rank computed with these threads: {listed}; {way_out}."))
        if _has_short_runs_of_several_batches(rows):
            way_out = (
                "--steps none runs the script to its end, --metric-regex NAME PATTERN takes a result that it prints"
            )
            notes.append(Note("method", f"How well each batch trains, a few steps do not say: {way_out}."))
        writers = Counter(path for row in rows for record in row.records for path in record.facts.get("written", ()))
        if shared := sorted(path for path, runs in writers.items() if runs > 1):
            way_out = "each run overwrites what the one before left, or reads it; --own-folder gives each a folder"
            notes.append(Note("method", f"Several runs wrote {join_names(shared, separator=', ')}: {way_out}."))
        return notes


def _has_short_runs_of_several_batches(rows: Sequence[Trial]) -> bool:
    """Whether batches differ, and no run says how well they train."""
    batches = {samples_of_step(row) for row in rows if row.counted} - {None}
    configs = [record.config for row in rows for record in row.counted]
    return len(batches) > 1 and not any(config.get("steps") is None or config.get("metric_regex") for config in configs)


def _named(rows: Sequence[Trial]) -> str:
    return join_names([describe_configuration(row.factors) for row in rows]) if rows else ""


def _has_one_loss(trial: Trial) -> bool:
    """Whether several runs of a trial begin with the same loss."""
    losses = [record.metrics["first_loss"] for record in trial.counted if "first_loss" in record.metrics]
    return len(losses) > 1 and len(set(losses)) == 1
