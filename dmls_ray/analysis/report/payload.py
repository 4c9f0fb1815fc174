"""The data of all runs in a report, stored by column, which compresses better than by row.

A column is `{"all": value}` if every run has the same value, else `{"each": [...]}`. Numbers have five digits, those of
epochs the four that the page shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dmls_ray.analysis.figures.chart import rounded
from dmls_ray.analysis.metrics import format_of
from dmls_ray.analysis.report.logs import TextTable, run_files, run_logs, shorten
from dmls_ray.analysis.report.methodology import environment_key
from dmls_ray.analysis.results import NESTED, PICTURE, factors_of
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
_FIELDS = [name for name in RUN_FIELDS if name not in (*KEYS, *NESTED, PICTURE, "traceback", "schema")]


@gc_disabled()
def build_payload(records: Sequence[RunRecord], folder: Path) -> dict[str, Any]:
    """The data of these runs for the page."""
    texts, pictures = TextTable(), TextTable(MOST_PICTURE, PICTURES)
    most_epochs = max(_FEWEST_EPOCHS, EPOCH_ROWS // max(1, sum(1 + len(record.ranks) for record in records)))
    kept = [_kept(record, most_epochs) for record in records]
    epochs, ranks, rank_epochs = [], [], []
    for record, places in zip(records, kept, strict=True):
        epochs.append([record.epochs[place].values for place in places])
        ranks.append([rank.values for rank in record.ranks])
        rank_epochs.append(_rank_epochs(record, places))
    payload: dict[str, Any] = {
        "run_id": [record.run_id for record in records],
        "trial": _numbered([record.trial_id for record in records]),
        "repeat": [record.repeat for record in records],
        "config": _columns([factors_of(record) for record in records]),
        "record": _columns([_values_of_run(record) for record in records]),
        "machine": _numbered([environment_key(record) for record in records]),
        "earlier": [record.earlier_attempts for record in records],
        "epochs": _by_name(epochs, digits=4),
        "ranks": _by_name(ranks),
        "rank_epochs": _by_name(rank_epochs, digits=4),
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


def _rank_epochs(record: RunRecord, places: Sequence[int]) -> list[list[Mapping[str, Any]]]:
    """For each rank its epochs; empty with one rank, whose values are those of the run."""
    if len(record.ranks) < 2 or not any(rank.epochs for rank in record.ranks):
        return []
    return [[rank.epochs[place].values for place in places if place < len(rank.epochs)] for rank in record.ranks]


def _by_name(items: Any, digits: int = 5) -> dict[str, Any]:
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


def _columns(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {name: _column(values) for name, values in _by_name(runs).items()}


def _column(values: list[Any]) -> dict[str, Any]:
    if values and all(value == values[0] and type(value) is type(values[0]) for value in values):
        return {"all": values[0]}
    return {"each": values}


def _numbered(keys: Sequence[str]) -> list[int]:
    """Number keys from 0 in order of appearance; equal keys have equal numbers."""
    numbers: dict[str, int] = {}
    return [numbers.setdefault(key, len(numbers)) for key in keys]


def _plain(value: Any, digits: int) -> Any:
    if isinstance(value, str):
        return shorten(value, _REASON)
    if isinstance(value, float):
        return rounded(value, digits)
    return value


def _values_of_run(record: RunRecord) -> dict[str, Any]:
    values = {name: getattr(record, name) for name in _FIELDS}
    return record.metrics | record.facts | values | {"outcome": record.ending}
