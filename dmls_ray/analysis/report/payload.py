"""The data of all runs in a report, stored by column, which compresses better than by row.

A column is `{"all": value}` if every run has the same value, else `{"each": [...]}`. Numbers have five digits, those of
epochs the four that the page shows.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dmls_ray.analysis.figures.chart import rounded
from dmls_ray.analysis.metrics import format_of
from dmls_ray.analysis.report.methodology import environment_key
from dmls_ray.analysis.results import NESTED, PICTURE, factors_of
from dmls_ray.analysis.stats.formatting import ACCURACY, RATE
from dmls_ray.records.epoch_and_rank import RankRecord
from dmls_ray.records.model import RUN_FIELDS, RunRecord
from dmls_ray.records.names import KEYS
from dmls_ray.records.training_metrics import is_loss
from dmls_ray.records.validation import MOST_PICTURE
from dmls_ray.storage.runs_file import RUNS
from dmls_ray.util.gc import gc_disabled
from dmls_ray.util.paths import is_inside, open_regular

EPOCH_ROWS = 120_000
"""Maximum epochs in a report over all runs and ranks; of longer runs every k-th epoch is shown."""
PICTURES = 2_000_000
"""Maximum characters of all distinct pictures of a report; for the others the page says where they are."""
MOST = 4_000
"""Maximum characters of one text."""
TOGETHER = 600_000
"""Maximum characters of all distinct texts of a report; the texts after these are left out."""

_MOST_FILES = 40
_TEXT = {".err", ".log", ".out", ".txt"}
_FEWEST_EPOCHS = 10
_REASON = 600
_PARTS = (
    "run_id", "trial", "repeat", "config", "record", "machine", "earlier", "epochs", "ranks", "rank_epochs", "left_out",
    "logs", "files", "picture",
)  # fmt: skip
_FIELDS = [name for name in RUN_FIELDS if name not in (*KEYS, *NESTED, PICTURE, "traceback", "schema")]


@gc_disabled()
def build_payload(records: Sequence[RunRecord], folder: Path) -> dict[str, Any]:
    """The data of these runs for the page."""
    texts, pictures = TextTable(), TextTable(MOST_PICTURE, PICTURES)
    trials: dict[str, int] = {}
    machines: dict[str, int] = {}
    most_epochs = max(_FEWEST_EPOCHS, EPOCH_ROWS // max(1, sum(1 + len(record.ranks) for record in records)))
    payload: dict[str, Any] = {name: [] for name in _PARTS}
    for record in records:
        kept = _kept(record, most_epochs)
        parts = {
            "run_id": record.run_id,
            "trial": trials.setdefault(record.trial_id, len(trials)),
            "repeat": record.repeat,
            "config": factors_of(record),
            "record": _values_of_run(record),
            "machine": machines.setdefault(environment_key(record), len(machines)),
            "earlier": record.earlier_attempts,
            "epochs": _values_of_epochs(record, kept),
            "ranks": [rank.values for rank in record.ranks],
            "rank_epochs": _rank_epochs(record, kept),
            "left_out": len(record.epochs) - len(kept),
            "logs": run_logs(record, folder, texts),
            "files": run_files(record, folder),
            "picture": _picture(record, pictures),
        }
        for name, value in parts.items():
            payload[name].append(value)
    payload["decimals"] = {}
    for name, digits in (("record", 5), ("epochs", 4), ("ranks", 5), ("rank_epochs", 4)):
        payload[name] = _by_name(payload[name], digits)
        payload["decimals"] |= _decimals(payload[name])
    payload["config"] = _columns(_by_name(payload["config"], 5))
    payload["record"] = _columns(payload["record"])
    payload["picture"] = _column(payload["picture"])
    return payload | {"texts": texts.texts, "pictures": pictures.texts}


def _decimals(names: Iterable[str]) -> dict[str, int]:
    """Decimals of metrics on the page; others have four significant digits."""
    decimals = {}
    for name in names:
        if name.endswith("_s") and format_of(name) is not RATE:  # units stand in names
            decimals[name] = 3
        elif format_of(name) is ACCURACY or is_loss(name.removesuffix("_gap")):
            decimals[name] = 4
    return decimals


def _picture(record: RunRecord, pictures: TextTable) -> int | None:
    """Index in `pictures`; -1 if it exceeds the total; None without a picture."""
    if not record.picture:
        return None
    place = pictures.add(record.picture)
    return -1 if place is None else place


def _kept(record: RunRecord, most: int) -> list[int]:
    """Indices of the shown epochs: evenly spread, with the last, the best and the first overfitting epoch."""
    count = len(record.epochs)
    if count <= most:
        return list(range(count))
    step = -(-count // most)
    named = (int(record.metrics.get(name, 0)) for name in ("best_epoch", "overfit_epoch", "target_epoch"))
    return sorted({*range(0, count, step), count - 1, *(epoch - 1 for epoch in named if 0 < epoch <= count)})


def _values_of_epochs(part: RunRecord | RankRecord, kept: Sequence[int]) -> list[Mapping[str, Any]]:
    return [part.epochs[place].values for place in kept if place < len(part.epochs)]


def _rank_epochs(record: RunRecord, kept: Sequence[int]) -> list[list[Mapping[str, Any]]]:
    """For each rank its epochs; empty with one rank, whose values are those of the run."""
    if len(record.ranks) < 2 or not any(rank.epochs for rank in record.ranks):
        return []
    return [_values_of_epochs(rank, kept) for rank in record.ranks]


def _by_name(items: Any, digits: int) -> dict[str, Any]:
    """Nested lists of values by name as name -> nested lists of values, for the names of which any has a value."""
    names: dict[str, None] = {}
    for values in _mappings(items):
        for name, value in values.items():
            if value not in (None, ""):
                names[name] = None
    return {name: _pick(items, name, digits) for name in names}


def _mappings(items: Any) -> Iterator[Mapping[str, Any]]:
    if isinstance(items, Mapping):
        yield items
    else:
        for item in items:
            yield from _mappings(item)


def _pick(items: Any, name: str, digits: int) -> Any:
    if isinstance(items, Mapping):
        return _plain(items.get(name), digits)
    return [_pick(item, name, digits) for item in items]


def _columns(by_name: Mapping[str, list[Any]]) -> dict[str, Any]:
    return {name: _column(values) for name, values in by_name.items()}


def _column(values: list[Any]) -> dict[str, Any]:
    if values and all(value == values[0] and type(value) is type(values[0]) for value in values):
        return {"all": values[0]}
    return {"each": values}


def _plain(value: Any, digits: int) -> Any:
    if isinstance(value, str):
        return shorten(value, _REASON)
    if isinstance(value, float):
        return rounded(value, digits)
    return value


def _values_of_run(record: RunRecord) -> dict[str, Any]:
    values = {name: getattr(record, name) for name in _FIELDS}
    return record.metrics | record.facts | values | {"outcome": record.ending}


class TextTable:
    """The distinct texts of a report; many runs often fail with the same text."""

    def __init__(self, most: int = MOST, together: int = TOGETHER) -> None:
        self.texts: list[str] = []
        self._most = most
        self._left = together
        self._indices: dict[str, int] = {}

    def add(self, text: str) -> int | None:
        """Add a text; returns its index in `texts`, or None if it would exceed the total."""
        text = shorten(text, self._most)
        if text not in self._indices:
            if len(text) > self._left:
                return None
            self._left -= len(text)
            self._indices[text] = len(self.texts)
            self.texts.append(text)
        return self._indices[text]


def shorten(text: str, most: int) -> str:
    """The start of a text and three times as much of its end, where an error usually is."""
    if len(text) <= most:
        return text
    left_out = f"\n[... {len(text) - most:,} characters left out ...]\n"
    return text[: most // 4] + left_out + text[-(most - most // 4) :]


def run_logs(record: RunRecord, folder: Path, texts: TextTable) -> list[dict[str, Any]]:
    """The logs of a run: title, location of the full text, and index of the text in `texts`."""
    logs = []
    if record.traceback:
        logs.append(_log("Traceback", f"{RUNS}, run_id {record.run_id}", record.traceback, texts))
    for path in _files(folder, record):
        if path.suffix in _TEXT and (text := _end(path)):
            logs.append(_log(path.name, f"{record.folder}/{path.name}", text, texts))
    return logs


def run_files(record: RunRecord, folder: Path) -> list[dict[str, Any]]:
    """The files of a run with links relative to the results folder."""
    return [
        {
            "name": path.name,
            "bytes": path.stat().st_size,
            "href": f"{record.folder}/{quote(os.fsencode(path.name))}",
        }
        for path in _files(folder, record)
    ]


def _log(title: str, whole: str, text: str, texts: TextTable) -> dict[str, Any]:
    return {"title": title, "whole": whole, "is_short": len(text) > MOST, "text": texts.add(text)}


def _files(folder: Path, record: RunRecord) -> Iterator[Path]:
    """The files of a run, without hidden files, symbolic links and files behind links that leave the results folder."""
    of_run = folder / record.folder
    try:
        if not is_inside(of_run, folder):
            return
        entries = [entry for entry in os.scandir(of_run) if entry.is_file(follow_symlinks=False)]
        names = sorted(entry.name for entry in entries if not entry.name.startswith("."))
    except OSError:
        return
    yield from (of_run / name for name in names[:_MOST_FILES])


def _end(path: Path) -> str:
    """The end of a text file; one character more than is shown if the file is longer."""
    try:
        with open_regular(path) as file:
            file.seek(max(0, path.stat().st_size - 4 * (MOST + 1)))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
