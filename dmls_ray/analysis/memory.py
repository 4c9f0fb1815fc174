"""Memory of a rank: which number stands for it in tables, sentences, figures and advice, and what limits it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dmls_ray.records.metrics import TRAINING_METRICS
from dmls_ray.records.outcome import Outcome

if TYPE_CHECKING:
    from dmls_ray.analysis.trials.trial import Trial

MEMORY: Mapping[str, str] = {
    "tensor_mem_mib": "tensor memory",
    "device_mem_mib": "allocated memory of the GPU",
    "host_mem_mib": "growth of the resident set",
}
"""Metric -> its words in a sentence; the first one that most trials of a table have stands for their memory."""

MEMORY_KINDS = tuple(metric.name for metric in TRAINING_METRICS if metric.part_of == "tensor_mem_mib")
"""The parts of tensor_mem_mib."""


def memory_metric(rows: Sequence[Trial]) -> str:
    """The metric by which the memory of these trials is compared; empty if none has any."""
    counts = {name: sum(name in row.estimates for row in rows) for name in MEMORY}
    most = max(counts, key=counts.__getitem__)
    return most if counts[most] else ""


EXACT = tuple(metric.name for metric in TRAINING_METRICS if metric.is_exact)
"""Metrics that are the same in every repeat, so that one run says what they are."""

EQUAL_MEMORY = 0.02
"""Below this share a difference in memory is of no use, however sure it is."""
EQUAL_HOST_MIB = 4.0
"""Below this a difference in host_mem_mib is of no use: repeats of one small model differ by up to 2 MiB."""


def hardly_differs(sizes: Sequence[float], metric: str) -> bool:
    """Whether these sizes in MiB, of a metric of memory, are about the same; False without any."""
    noise = EQUAL_HOST_MIB if metric == "host_mem_mib" else 0.0
    return len(sizes) > 0 and max(sizes) - min(sizes) < max(EQUAL_MEMORY * min(sizes), noise)


def memory_limit(row: Trial) -> tuple[str, float] | None:
    """Name and size of the memory limit of a rank: the memory of the GPU, or that of the host divided by its ranks.

    None if it is unknown, as with ranks on a machine that the record does not describe.
    """
    record = next((item for item in row.records if item.outcome in (Outcome.OK, Outcome.OOM) and item.device), None)
    if record is None:
        return None
    if record.device.startswith("cuda"):
        sizes = record.machine.get("gpu_memory_mib") or []
        return ("limit: memory of the GPU", float(min(sizes))) if sizes else None
    host, memory = record.machine.get("host"), record.machine.get("memory_mib")
    if memory is None or any(rank.machine != host for rank in record.ranks):
        return None
    ranks = row.world_size
    return (f"limit: host memory / {ranks} ranks" if ranks > 1 else "limit: host memory", memory / ranks)
