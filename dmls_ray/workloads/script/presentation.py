"""How the results of scripts are read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from dmls_ray.analysis.table.model import Note
from dmls_ray.analysis.table.presentation import Presentation
from dmls_ray.analysis.trials.trial import Trial, describe_configuration
from dmls_ray.analysis.words import join_names

_SURE = "loader and model agree"


class ScriptPresentation(Presentation):
    """Notes on what was seen of a script."""

    def notes(self, rows: Sequence[Trial]) -> list[Note]:
        """How samples are known where that is not sure, which trials have one loss, and which files runs share."""
        notes = []
        for counted_by in sorted({_counted_by(row) for row in rows} - {_SURE, ""}):
            named = _named([row for row in rows if _counted_by(row) == counted_by])
            notes.append(Note("method", f"{named}: samples of a step are those of the {counted_by}."))
        if same := _named([row for row in rows if _has_one_loss(row)]):
            reason = "losses are equal in all repeats, so the script seeds itself; name its flag by --seed-flag"
            notes.append(Note("repeats", f"{same}: {reason}."))
        writers = Counter(path for row in rows for record in row.records for path in record.facts.get("written", ()))
        if shared := sorted(path for path, runs in writers.items() if runs > 1):
            way_out = "each run overwrites what the one before left, or reads it; --own-folder gives each a folder"
            notes.append(Note("method", f"Several runs wrote {join_names(shared, separator=', ')}: {way_out}."))
        return notes


def _named(rows: Sequence[Trial]) -> str:
    return join_names([describe_configuration(row.factors) for row in rows]) if rows else ""


def _counted_by(trial: Trial) -> str:
    """How the samples of a trial are known; empty where no run says so."""
    return next((str(record.facts["counted_by"]) for record in trial.counted if "counted_by" in record.facts), "")


def _has_one_loss(trial: Trial) -> bool:
    """Whether several runs of a trial begin with the same loss."""
    losses = [record.metrics["first_loss"] for record in trial.counted if "first_loss" in record.metrics]
    return len(losses) > 1 and len(set(losses)) == 1
