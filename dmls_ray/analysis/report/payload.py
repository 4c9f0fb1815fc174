"""The data of all runs in a report, stored by column, which compresses better than by row.

A column is `{"all": value}` if every run has the same value, else `{"each": [...]}`. Numbers have five digits, those of
epochs the four that the page shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dmls_ray.analysis.figures.chart import rounded
from dmls_ray.analysis.metrics import format_of
from dmls_ray.analysis.report.logs import TextTable, run_files, run_logs, shorten
from dmls_ray.analysis.report.methodology import environment_key
from dmls_ray.analysis.results import NESTED, PICTURE, factors_of, field_names
from dmls_ray.analysis.stats.formatting import ACCURACY, RATE
from dmls_ray.records.model import RUN_FIELDS, RunRecord
from dmls_ray.records.names import KEYS
from dmls_ray.records.training_metrics import is_loss
from dmls_ray.records.validation import MOST_PICTURE
from dmls_ray.util.gc import gc_disabled

EPOCH_ROWS = 120_000
"""Maximum epochs in a report over all runs and ranks; of longer runs every k-th epoch is shown."""
PICTURES = 2_000_000
"""Maximum characters of all distinct pictures of a report; for the others the page says where they are."""
_FEWEST_EPOCHS = 10
_REASON = 600


@gc_disabled()
def build_payload(records: Sequence[RunRecord], folder: Path) -> dict[str, Any]:
    """The data of these runs for the page."""
    texts, pictures = TextTable(), TextTable(MOST_PICTURE, PICTURES)
    factors = [factors_of(record) for record in records]
    scalars = [name for name in RUN_FIELDS if name not in (*KEYS, *NESTED, PICTURE, "traceback", "schema")]
    most_epochs = max(_FEWEST_EPOCHS, EPOCH_ROWS // max(1, sum(1 + len(record.ranks) for record in records)))
    kept = [_kept(record, most_epochs) for record in records]
    payload: dict[str, Any] = {
        "run_id": [record.run_id for record in records],
        "trial": _numbered([record.trial_id for record in records]),
        "repeat": [record.repeat for record in records],
        "config": {name: _column([item.get(name) for item in factors]) for name in field_names(factors)},
        "record": _columns([_values_of_run(record, scalars) for record in records]),
        "machine": _numbered([environment_key(record) for record in records]),
        "earlier": [record.earlier_attempts for record in records],
        "epochs": _epochs(records, kept),
        "ranks": _ranks(records),
        "rank_epochs": _rank_epochs(records, kept),
        "left_out": [len(record.epochs) - len(places) for record, places in zip(records, kept, strict=True)],
        "logs": [run_logs(record, folder, texts) for record in records],
        "files": [run_files(record, folder) for record in records],
        "picture": _column([_picture(record, pictures) for record in records]),
    }
    names = {name for part in ("record", "epochs", "ranks", "rank_epochs") for name in payload[part]}
    payload["decimals"] = {name: digits for name in sorted(names) if (digits := _decimals(name)) is not None}
    return payload | {"texts": texts.texts, "pictures": pictures.texts}


def _decimals(name: str) -> int | None:
    """Decimals of a metric on the page; None for four significant digits."""
    if name.endswith("_s") and format_of(name) is not RATE:  # units stand in names
        return 3
    return 4 if format_of(name) is ACCURACY or is_loss(name.removesuffix("_gap")) else None


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


def _epochs(records: Sequence[RunRecord], kept: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Metric -> for each run, a value per epoch."""
    return _nested_columns(
        [[record.epochs[place].values for place in places] for record, places in zip(records, kept, strict=True)],
        digits=4,
    )


def _ranks(records: Sequence[RunRecord]) -> dict[str, Any]:
    """Metric -> for each run, a value per rank."""
    return _nested_columns([[rank.values for rank in record.ranks] for record in records])


def _rank_epochs(records: Sequence[RunRecord], kept: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Metric -> for each run, for each rank, a value per epoch.

    The list of a run is empty with one rank, whose values are those of the run, and without values of ranks.
    """
    rows = [
        [[rank.epochs[place].values for place in places if place < len(rank.epochs)] for rank in record.ranks]
        if len(record.ranks) > 1 and any(rank.epochs for rank in record.ranks)
        else []
        for record, places in zip(records, kept, strict=True)
    ]
    names = field_names(epoch for ranks in rows for epochs in ranks for epoch in epochs)
    return {
        name: [[[_plain(epoch.get(name), 4) for epoch in epochs] for epochs in ranks] for ranks in rows]
        for name in names
    }


def _columns(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Name -> column, for the names of which any run has a value."""
    columns = {name: [_plain(values.get(name)) for values in runs] for name in field_names(runs)}
    return {name: _column(values) for name, values in columns.items() if _has_values(values)}


def _nested_columns(runs: Sequence[Sequence[Mapping[str, Any]]], digits: int = 5) -> dict[str, Any]:
    """Name -> for each run, a value per epoch or rank, for the names of which any has a value."""
    names = field_names(values for items in runs for values in items)
    columns = {name: [[_plain(values.get(name), digits) for values in items] for items in runs] for name in names}
    return {name: column for name, column in columns.items() if any(map(_has_values, column))}


def _column(values: list[Any]) -> dict[str, Any]:
    if values and all(value == values[0] and type(value) is type(values[0]) for value in values):
        return {"all": values[0]}
    return {"each": values}


def _has_values(values: Sequence[Any]) -> bool:
    return any(value not in (None, "") for value in values)


def _numbered(keys: Sequence[str]) -> list[int]:
    """Number keys from 0 in order of appearance; equal keys have equal numbers."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def _plain(value: Any, digits: int = 5) -> Any:
    if isinstance(value, str):
        return shorten(value, _REASON)
    if isinstance(value, float):
        return rounded(value, digits)
    return value


def _values_of_run(record: RunRecord, fields: Sequence[str]) -> dict[str, Any]:
    values = {name: getattr(record, name) for name in fields}
    return record.metrics | record.facts | values | {"outcome": record.ending}
