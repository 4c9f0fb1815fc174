"""Values that older records lack and that follow from what they have."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Raw

from dmls_ray.records.epoch_and_rank import RankRecord
from dmls_ray.records.model import RunRecord


class _RankPart(msgspec.Struct):
    """What is used of a rank, without the rest of its record, which takes ten times as long to decode."""

    start_mem_mib: float | None = None
    peak_mem_mib: float | None = None
    exposed_comm_ms: float | None = None


_RANKS = msgspec.json.Decoder(list[_RankPart])


def fill_older_record(record: RunRecord) -> None:
    """Fill in what an older record lacks."""
    fill_host_memory(record)
    fill_communication(record)


def fill_communication(record: RunRecord) -> None:
    """Replace exposed_comm_ms of the rank that waited longest by that of the rank that waited least."""
    if record.exposed_comm_ms is None or record.straggler_wait_ms is not None:
        return
    values = [rank.exposed_comm_ms for rank in _ranks(record) if rank.exposed_comm_ms is not None]
    if values:
        record.exposed_comm_ms, record.straggler_wait_ms = min(values), max(values) - min(values)


def fill_host_memory(record: RunRecord) -> None:
    """Fill in host_mem_mib of a run on a CPU, of the rank with the largest, where the record has its two parts."""
    if record.host_mem_mib is not None or record.peak_mem_mib is None or not record.device.startswith("cpu"):
        return
    sizes = [size for rank in _ranks(record) if (size := host_memory(rank)) is not None]
    record.host_mem_mib = max(sizes, default=None)


def _ranks(record: RunRecord) -> Sequence[RankRecord | _RankPart]:
    """The ranks of a record; none where they are not valid, since their first use says what is wrong with them."""
    try:
        return _RANKS.decode(record._ranks) if isinstance(record._ranks, Raw) else record.ranks
    except msgspec.ValidationError:
        return ()


def host_memory(rank: RankRecord | _RankPart) -> float | None:
    """The growth of the resident set in a run; None where the record does not have it."""
    if rank.peak_mem_mib is None or rank.start_mem_mib is None:
        return None
    return rank.peak_mem_mib - rank.start_mem_mib
