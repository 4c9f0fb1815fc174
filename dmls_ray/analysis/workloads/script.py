"""How the results of scripts are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from dmls_ray.analysis.table.model import Note
from dmls_ray.analysis.table.presentation import Presentation
from dmls_ray.analysis.table.seen import fact_of
from dmls_ray.analysis.trials.steps import samples_of_step
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.analysis.words import count_noun, join_names, names_of
from dmls_ray.records.model import RunRecord


class ScriptPresentation(Presentation):
    """Notes on what was seen of a script."""

    samples_by = "give --samples"
    tests_by = "give --evaluation test, or --evaluation training"
    seeds_by = "If it sets a seed itself, let it take that of the run: by the flag of --seed-flag, or DMLS_RAY_SEED"

    def notes(self, rows: Sequence[Trial]) -> list[Note]:
        """Also which trials have one loss, and which files runs share."""
        notes = super().notes(rows)
        if same := names_of(rows, _has_one_loss):
            reason = "losses are equal in all repeats, so the script seeds itself; --seed-flag names its flag, if any"
            notes.append(Note("repeats", f"{same}: {reason}."))
        threads = sorted({(row.world_size, text) for row in rows if (text := fact_of(row, "threads"))})
        if len({text for _, text in threads}) > 1:
            listed = ", ".join(f"{text} on {count_noun(ranks, 'rank')}" for ranks, text in threads)
            way_out = "so trials differ in threads as well as in ranks; --threads-per-rank 1 compares ranks alone"
            notes.append(Note("method", f"Threads of a rank: {listed}; {way_out}."))
        if lacking := _patterns_without_number(rows):
            way_out = "the pattern's first group, or all of it, must be a number in a line that the script prints"
            if any(record.config.get("steps") is not None for row in rows for record in row.counted):
                way_out += "; --steps none runs the script to its end"
            notes.append(Note("method", f"--metric-regex {join_names(lacking)} found nothing in any run: {way_out}."))
        if _has_short_runs_of_several_batches(rows):
            way_out = (
                "--steps none runs the script to its end, --metric-regex NAME PATTERN reads a result that it prints"
            )
            notes.append(Note("method", f"A few steps do not show how well each batch trains: {way_out}."))
        return [*notes, *_notes_on_files([record for row in rows for record in row.records])]


def _notes_on_files(records: Sequence[RunRecord]) -> list[Note]:
    """Which files runs go on from, which they overwrite, and which they wrote into copies."""
    if len({record.lane for record in records}) > 1 or any(record.mode == "shared" for record in records):
        has_written = any(record.facts.get("written") for record in records)
        text = (
            "Runs went at the same time, so it is not known which of them wrote a file or read one that another wrote"
        )
        return [Note("comparability", f"{text}; --own-folder gives each a folder.")] if has_written else []
    writers: Counter[str] = Counter()
    read_later: set[str] = set()
    in_copies: set[str] = set()
    begun_with: set[str] = set()
    for record in sorted(records, key=lambda record: (record.started_at, record.order)):
        read_later |= {path for path in record.facts.get("read", ()) if path in writers}
        writers.update(record.facts.get("written", ()))
        in_copy = record.facts.get("written_in_copy", ())
        in_copies.update(in_copy)
        begun_with.update(path for path in record.facts.get("read", ()) if path in in_copy)
    rewritten = {path for path, runs in writers.items() if runs > 1}
    notes = []
    if goes_on := read_later & rewritten:
        notes.append(
            f"Runs read files that earlier runs wrote ({_listed(goes_on)}), so they may resume instead of starting "
            "anew, and their steps and losses may not be comparable. --own-folder gives each run an empty working "
            "folder; make absolute paths relative."
        )
    if prepared := read_later - rewritten:
        notes.append(
            f"Runs read files that one earlier run wrote ({_listed(prepared)}). For prepared data and compiled code "
            "that is right; if one is a checkpoint, --own-folder keeps runs from resuming from it."
        )
    if overwritten := rewritten - read_later:
        way_out = "if these overwrite it, or add to it, --own-folder gives each a folder"
        notes.append(f"{_listed(overwritten)} changed during several runs; {way_out}.")
    if begun_with:
        notes.append(
            f"Runs read your {_listed(begun_with)} and write it again, in copies of the repository. If it is a "
            "checkpoint, each run resumes from it instead of starting anew; move it away, or add --own-folder."
        )
    if in_copies:
        notes.append(f"Runs wrote {_listed(in_copies)} in copies of the repository; your files are unchanged.")
    return [Note("method", text) for text in notes]


def _listed(paths: Collection[str]) -> str:
    return join_names(sorted(paths), separator=", ")


def _has_short_runs_of_several_batches(rows: Sequence[Trial]) -> bool:
    """Whether batches differ, and no run says how well they train."""
    batches = {samples_of_step(row) for row in rows if row.counted} - {None}
    configs = [record.config for row in rows for record in row.counted]
    return len(batches) > 1 and not any(config.get("steps") is None or config.get("metric_regex") for config in configs)


def _patterns_without_number(rows: Sequence[Trial]) -> list[str]:
    """The metrics that a pattern asks for and no run that ended ok has printed."""
    counted = [record for row in rows for record in row.counted]
    asked = dict.fromkeys(name for record in counted for name in record.config.get("metric_regex", {}))
    return [name for name in asked if not any(name in record.metrics for record in counted)]


def _has_one_loss(trial: Trial) -> bool:
    """Whether several runs of a trial begin with the same loss."""
    losses = [record.metrics["first_loss"] for record in trial.counted if "first_loss" in record.metrics]
    return len(losses) > 1 and len(set(losses)) == 1
