"""Values that older records lack and that follow from what they have."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from dmls_ray.records.model import RankRecord, RunRecord


class _RankMemory(msgspec.Struct):
    """The memory of a rank, without the rest of its record, which takes ten times as long to decode."""

    start_mem_mib: float | None = None
    peak_mem_mib: float | None = None


_RANKS = msgspec.json.Decoder(list[_RankMemory])


def fill_host_memory(record: RunRecord) -> None:
    """Fill in host_mem_mib of a run on a CPU, of the rank with the largest, where the record has its two parts."""
    if record.host_mem_mib is not None or record.peak_mem_mib is None or not record.device.startswith("cpu"):
        return
    try:
        ranks = _RANKS.decode(record._ranks) if isinstance(record._ranks, Raw) else record.ranks
    except msgspec.ValidationError:
        return  # the first use of the ranks says what is wrong with them
    record.host_mem_mib = max((size for rank in ranks if (size := host_memory(rank)) is not None), default=None)


def host_memory(rank: RankRecord | _RankMemory) -> float | None:
    """The growth of the resident set in a run; None where the record does not have it."""
    if rank.peak_mem_mib is None or rank.start_mem_mib is None:
        return None
    return rank.peak_mem_mib - rank.start_mem_mib
