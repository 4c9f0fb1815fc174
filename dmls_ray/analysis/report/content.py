"""What a report says: how and where a sweep was measured, the commands that repeat it, and the data of its runs.

The data are a mapping for each run, of which the page shows what has a value. Numbers have five digits, those of epochs
the four that the page shows.
"""

from __future__ import annotations

import json
import os
import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dmls_ray.analysis.figures.chart import rounded
from dmls_ray.analysis.results import NESTED, Results, factors_of
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.words import count_noun
from dmls_ray.records.model import KEYS, RUN_FIELDS, RankRecord, RunRecord
from dmls_ray.records.outcome import Outcome, outcome_counts
from dmls_ray.util.files import is_inside, read_end
from dmls_ray.util.interpreter import gc_disabled

EPOCH_ROWS = 120_000
"""Maximum epochs in a report over all runs and ranks; of longer runs every k-th epoch is shown."""
TRACEBACK = 4_000
"""Maximum characters of a traceback, and of the end of a log."""
LOGS = 600_000
"""Characters of the logs of all runs from which on no further one is in the report; it links to all."""
PICTURES = 2_000_000
"""Maximum characters of all distinct pictures of a report; for the others the page says where they are."""
_FEWEST_EPOCHS = 10
_REASON = 600
_MOST_FILES = 40
_OF_LOGS = {".err", ".log", ".out", ".txt"}
"""Ends of the names of files that are shown."""
_FIELDS = [name for name in RUN_FIELDS if name not in (*KEYS, *NESTED, "traceback", "schema")]


def run_counts(results: Results) -> str:
    """`24 runs: 22 ok, 2 oom`."""
    outcomes = outcome_counts(record.ending for record in results.records)
    return f"{count_noun(len(results), 'run')}: {outcomes}".removesuffix(": ")


def methodology(results: Results, table: Table) -> list[str]:
    """Sentences on how the sweep was measured; the notes of the table come first."""
    ran = [record for record in results.records if record.outcome is not Outcome.SKIPPED]
    sentences = list(table.notes)
    if not ran:
        return sentences
    if any(record.mode == "search" for record in ran):
        sentences.append("Runs of a search share the machine, and later configurations may depend on earlier results.")
    elif all(record.mode == "bench" for record in ran):
        blocks, seeds = {record.repeat for record in ran}, _listed({record.order_seed for record in ran})
        sentences.append(
            f"Each run had its ranks' resources to itself. Blocks: {len(blocks)}, with one repeat of every trial each, "
            f"shuffled by seed {seeds}, so that drift affects all trials equally."
        )
    warmup = {record.config["warmup_steps"] for record in ran if "warmup_steps" in record.config}
    if warmup:
        sentences.append(f"The first optimizer steps of a run ({_listed(warmup)}) are not counted in any rate.")
    return sentences


def environments(records: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """Machine, versions, code and number of runs of each environment."""
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        code = {}
        if record.git.get("commit"):
            code["commit"] = str(record.git["commit"])
            code["files"] = "changed since" if record.git.get("dirty") else "as committed"
        facts = {"machine": _texts(record.machine), "versions": _texts(record.versions), "code": code, "runs": 0}
        key = json.dumps([record.machine, record.versions, record.git], default=str)
        found.setdefault(key, facts)["runs"] += 1
    return list(found.values())


def commands(sessions: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """When the commands of the sessions began, and their lines for a shell, with the commit."""
    found = []
    for session in sessions:
        words, git = session.get("command"), session.get("git") or {}
        if not words:
            continue
        lines = shlex.join(words)
        if words[0].endswith(".py"):
            lines = f"python {lines}"
        if git.get("commit"):
            changes = "  # the files had changes that this commit lacks" if git.get("dirty") else ""
            lines = f"git checkout {shlex.quote(str(git['commit']))}{changes}\n{lines}"
        found.append((str(session.get("started_at", "")), lines))
    return found


def _listed(values: Collection[int]) -> str:
    return ", ".join(str(value) for value in sorted(values))


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Facts of a machine in words, without unknown ones."""
    texts = {}
    for name, value in values.items():
        if value in (None, "", []):
            continue
        if isinstance(value, list):
            texts[name] = ", ".join(f"{count} x {item}" for item, count in Counter(str(item) for item in value).items())
        elif type(value) is int:
            texts[name] = f"{value:,}"
        else:
            texts[name] = str(value)
    return texts


@gc_disabled()
def build_payload(records: Sequence[RunRecord], folder: Path) -> dict[str, Any]:
    """The data of these runs for the page: the runs, and the distinct pictures, which runs have by their index."""
    most_epochs = max(_FEWEST_EPOCHS, EPOCH_ROWS // max(1, sum(1 + len(record.ranks) for record in records)))
    pictures: dict[str, int] = {}
    runs = []
    shown = 0
    for record in records:
        files = run_files(record, folder)
        for file in files:
            if shown < LOGS and Path(file["name"]).suffix in _OF_LOGS:
                file["end"] = _end(folder / record.folder / file["name"])
                shown += len(file["end"])
        kept = _kept(len(record.epochs), most_epochs)
        values = {name: getattr(record, name) for name in _FIELDS} | {"outcome": record.ending}
        run = {
            "run_id": record.run_id,
            "trial": record.trial_id,
            "repeat": record.repeat,
            "config": _plain(factors_of(record)),
            "record": _plain(record.metrics | record.facts | values),
            "earlier": record.earlier_attempts,
            "epochs": _epochs(record, kept),
            "left_out": len(record.epochs) - len(kept),
            "ranks": [_plain(rank.values) for rank in record.ranks],
            "traceback": shorten(record.traceback, TRACEBACK),
            "files": files,
            "picture": _picture(record, pictures),
            # The values of a single rank are those of the run.
            "rank_epochs": [_epochs(rank, kept) for rank in record.ranks] if len(record.ranks) > 1 else [],
        }
        runs.append(run)
    return {"runs": runs, "pictures": list(pictures)}


def run_files(record: RunRecord, folder: Path) -> list[dict[str, Any]]:
    """The files of a run with links relative to the results folder.

    Hidden files, symbolic links and files behind links that leave the results folder are not among them.
    """
    of_run = folder / record.folder
    if not is_inside(of_run, folder) or not of_run.is_dir():
        return []
    files = []
    for entry in sorted(os.scandir(of_run), key=lambda entry: entry.name):
        if entry.is_file(follow_symlinks=False) and not entry.name.startswith("."):
            href = f"{record.folder}/{quote(os.fsencode(entry.name))}"
            files.append({"name": entry.name, "bytes": entry.stat().st_size, "href": href})
    return files[:_MOST_FILES]


def _end(path: Path) -> str:
    """The end of a text file; empty where it cannot be read."""
    with suppress(OSError):
        return read_end(path, TRACEBACK)
    return ""


def shorten(text: str, most: int) -> str:
    """The start of a text and three times as much of its end, where an error usually is."""
    if len(text) <= most:
        return text
    left_out = f"\n[... {len(text) - most:,} characters left out ...]\n"
    return text[: most // 4] + left_out + text[-(most - most // 4) :]


def _picture(record: RunRecord, pictures: dict[str, int]) -> int | None:
    """Index in `pictures`, to which it is added; -1 if it exceeds the total; None without a picture."""
    picture = record.picture
    if not picture:
        return None
    if picture not in pictures and len("".join(pictures)) + len(picture) > PICTURES:
        return -1
    return pictures.setdefault(picture, len(pictures))


def _kept(count: int, most: int) -> range:
    """Indices of the shown epochs: the last, and every k-th before it."""
    step = 1 + max(count - 1, 0) // most
    return range((count - 1) % step, count, step)


def _epochs(part: RunRecord | RankRecord, kept: Sequence[int]) -> list[dict[str, Any]]:
    return [_plain(part.epochs[place].values, digits=4) for place in kept if place < len(part.epochs)]


def _plain(values: Mapping[str, Any], digits: int = 5) -> dict[str, Any]:
    """The values that are known, numbers with so many digits and texts shortened."""
    plain = {}
    for name, value in values.items():
        if isinstance(value, float):
            value = rounded(value, digits)
        elif isinstance(value, str):
            value = shorten(value, _REASON)
        if value not in (None, ""):
            plain[name] = value
    return plain
