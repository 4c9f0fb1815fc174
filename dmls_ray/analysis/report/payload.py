"""What a report knows of each run, column by column, which packs to a fraction of row by row.

A column is `{"all": value}` where every run has the same, else `{"each": [...]}`. Numbers have five digits, those of
epochs the four that the page shows.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from dmls_ray.analysis.figures.jpeg import REFUSED, is_small_jpeg
from dmls_ray.analysis.figures.plotly_text import rounded
from dmls_ray.analysis.report.logs import TextTable, run_files, run_logs, shorten
from dmls_ray.analysis.results import KEYS, NESTED, PICTURE, factors_of, field_names
from dmls_ray.records.model import EpochRecord, RankRecord, RunRecord
from dmls_ray.records.validation import MOST_PICTURE
from dmls_ray.util.gc import gc_disabled

EPOCH_ROWS = 120_000
"""Epochs that a report holds, over all runs, each rank's own counted too; of longer ones every k-th is shown."""
PICTURES = 2_000_000
"""Characters of all different pictures of a report; of those after them it says where they are."""
_FEWEST_EPOCHS = 10
_REASON = 600


@gc_disabled()
def build_payload(records: Sequence[RunRecord], folder: Path) -> dict[str, Any]:
    """All that the page tells of these runs."""
    texts, pictures = TextTable(), TextTable(MOST_PICTURE, PICTURES)
    factors = [factors_of(record) for record in records]
    own = [name for name in _names(RunRecord) if name not in (*KEYS, *NESTED, PICTURE, "traceback", "schema")]
    places = [json.dumps([item.machine, item.versions, item.git], default=str) for item in records]
    kept = [_kept(record, _most_epochs(records)) for record in records]
    told = {
        "run_id": [record.run_id for record in records],
        "trial": _numbered([record.trial_id for record in records]),
        "repeat": [record.repeat for record in records],
        "config": {name: _column([item.get(name) for item in factors]) for name in field_names(factors)},
        "record": _columns({name: [_plain(getattr(item, name)) for item in records] for name in own}),
        "measures": _columns(_told([record.measures for record in records])),
        "machine": _numbered(places),
        "earlier": [record.earlier_attempts for record in records],
        "epochs": _epochs(records, kept),
        "ranks": _ranks(records),
        "rank_epochs": _rank_epochs(records, kept),
        "left_out": [len(record.epochs) - len(places) for record, places in zip(records, kept, strict=True)],
        "logs": [run_logs(record, folder, texts) for record in records],
        "files": [run_files(record, folder) for record in records],
        "picture": _column([_picture(record, pictures) for record in records]),
    }
    return told | {"texts": texts.texts, "pictures": pictures.texts, "refused": REFUSED}


def _picture(record: RunRecord, pictures: TextTable) -> int | None:
    """Its place in `pictures`, -1 where there is no more room, -2 where it is not to be shown; None where the run left
    none.
    """
    if not record.picture:
        return None
    if not is_small_jpeg(record.picture):
        return -2
    place = pictures.add(record.picture)
    return -1 if place is None else place


def _most_epochs(records: Sequence[RunRecord]) -> int:
    """Epochs of a run that there is room for."""
    together = sum(1 + len(record.ranks) for record in records)
    return max(_FEWEST_EPOCHS, EPOCH_ROWS // max(1, together))


def _kept(record: RunRecord, most: int) -> list[int]:
    """Places of the epochs that are shown: evenly, with the last, the best and the one that overfitting began with."""
    count = len(record.epochs)
    if count <= most:
        return list(range(count))
    step = -(-count // most)
    named = (record.best_epoch, record.overfit_epoch, record.target_epoch)
    return sorted({*range(0, count, step), count - 1, *(epoch - 1 for epoch in named if epoch and epoch <= count)})


def _epochs(records: Sequence[RunRecord], kept: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Measure -> for each run, a value an epoch."""
    rows = [
        [record.epochs[place] for place in places] if record.epochs else []
        for record, places in zip(records, kept, strict=True)
    ]
    told = {
        name: [[rounded(getattr(epoch, name), 4) for epoch in epochs] for epochs in rows]
        for name in _names(EpochRecord)
        if name != "measures"
    }
    for name in field_names(epoch.measures for epochs in rows for epoch in epochs):
        told[name] = [[_plain(epoch.measures.get(name)) for epoch in epochs] for epochs in rows]
    return {name: column for name, column in told.items() if _says_something(column)}


def _ranks(records: Sequence[RunRecord]) -> dict[str, Any]:
    """Measure -> for each run, a value a rank."""
    told = {
        name: [[_plain(getattr(rank, name)) for rank in record.ranks] for record in records]
        for name in _names(RankRecord)
        if name not in ("epochs", "utilization")
    }
    busy = [[_busy(rank.utilization) for rank in record.ranks] for record in records]
    for name in field_names(rank for ranks in busy for rank in ranks):
        told[name] = [[rank.get(name) for rank in ranks] for ranks in busy]
    return {name: column for name, column in told.items() if _says_something(column)}


def _busy(utilization: dict[str, list[float]]) -> dict[str, Any]:
    """The mean of each quantity that was looked at."""
    known = {name: [value for value in values if value is not None] for name, values in utilization.items()}
    return {
        f"mean {name}": rounded(float(sum(values) / len(values)))
        for name, values in known.items()
        if name != "at_s" and values
    }


def _rank_epochs(records: Sequence[RunRecord], kept: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Measure -> for each run, for each rank, a value an epoch; of runs with one rank nothing, since it is the run's.

    A run's list is empty where its ranks told none.
    """
    rows = [
        [[rank.epochs[place] for place in places if place < len(rank.epochs)] for rank in record.ranks]
        if len(record.ranks) > 1 and any(rank.epochs for rank in record.ranks)
        else []
        for record, places in zip(records, kept, strict=True)
    ]
    names = field_names(epoch for ranks in rows for epochs in ranks for epoch in epochs)
    return {
        name: [[[rounded(epoch.get(name), 4) for epoch in epochs] for epochs in ranks] for ranks in rows]
        for name in names
    }


def _columns(columns: dict[str, list[Any]]) -> dict[str, Any]:
    """Those in which any run says something."""
    return {
        name: _column(values) for name, values in columns.items() if any(value not in (None, "") for value in values)
    }


def _column(values: list[Any]) -> dict[str, Any]:
    if values and all(value == values[0] and type(value) is type(values[0]) for value in values):
        return {"all": values[0]}
    return {"each": values}


def _told(items: Sequence[dict[str, Any]]) -> dict[str, list[Any]]:
    return {name: [_plain(item.get(name)) for item in items] for name in field_names(items)}


def _says_something(column: Sequence[Sequence[Any]]) -> bool:
    return any(value not in (None, "") for values in column for value in values)


def _numbered(keys: Sequence[str]) -> list[int]:
    """Equal keys have equal numbers, from 0 in their order."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def _plain(value: Any) -> Any:
    return shorten(value, _REASON) if isinstance(value, str) else rounded(value)


def _names(cls: type) -> list[str]:
    return [item.name for item in fields(cls)]
