"""The samples that a step of all ranks trained: ranks that are given the same samples do not multiply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dmls_ray.records.model import RankRecord, RunRecord

_SAMPLES = ("samples_per_step", "samples_per_s")
_COUNTED = (*_SAMPLES, "tokens_per_step", "tokens_per_s")
_ALIKE = 0.01
"""Relative difference up to which the user's word is what was seen."""
_AHEAD = 0.1
"""The same of what ranks were given and what was read for them."""


def take_samples(record: RunRecord, reasons: Sequence[str], said: Mapping[str, float]) -> None:
    """Fill in the samples and tokens of all ranks, how they are known, and why they are not.

    Args:
        record: a run, with the metrics of its ranks.
        reasons: why ranks do not know their samples.
        said: samples and tokens of a step of all ranks, as the user says them.
    """
    ranks, facts = record.ranks, record.facts
    for name, value in _of_ranks(ranks).items():
        if any(name in rank.metrics for rank in ranks):
            record.metrics.pop(name, None)  # the sum over all ranks that know theirs
        if value:
            record.metrics[name] = value
    if len(ranks) > 1 and len(_groups(ranks)) == 1:
        facts["same_samples"] = "true"
    for unit, value in said.items():
        _take_word(record, unit, value)
    facts.pop("samples_unknown", None)
    if "samples_per_step" not in record.metrics:
        if reasons:
            facts["samples_unknown"] = reasons[0]
        if "tokens_per_step" not in record.metrics:
            facts.pop("counted_by", None)


def _take_word(record: RunRecord, unit: str, said: float) -> None:
    """Take the user's word on the samples or tokens of a step, and note what was seen where it differs."""
    per_step, per_s = f"{unit}_per_step", f"{unit}_per_s"
    seen = record.metrics.get(per_step)
    if seen is not None and abs(seen - said) > _ALIKE * said:
        record.facts[f"{unit}_differ"] = f"{seen:.4g}"
    record.metrics[per_step] = said
    record.facts["counted_by"] = "--samples"
    step_ms = max((rank.metrics["step_ms_mean"] for rank in record.ranks if "step_ms_mean" in rank.metrics), default=0)
    if step_ms:
        record.metrics[per_s] = said * 1e3 / step_ms


def _of_ranks(ranks: Sequence[RankRecord]) -> dict[str, float | None]:
    """Samples and tokens of a step of all ranks, and in a second; None where they are not known.

    A rank that reads for all others, which read nothing, has the samples of all.
    """
    values = {name: _of_groups(ranks, name) for name in _COUNTED}
    readers = [rank for rank in ranks if rank.metrics.get("loaded_per_step")]
    if not readers or len(readers) == len(ranks):
        return values
    read = sum(_read_by(rank, "samples_per_step") for rank in readers)
    counted = values["samples_per_step"]
    # What models were given is exact, where a reader is some batches ahead.
    if counted is None or abs(counted - read) > _AHEAD * read:
        values |= {name: sum(_read_by(rank, name) for rank in readers) for name in _SAMPLES}
    return values


def _read_by(rank: RankRecord, name: str) -> float:
    loaded = rank.metrics["loaded_per_step"]
    if name == "samples_per_step":
        return loaded
    step_ms = rank.metrics.get("step_ms_mean")
    return loaded * 1e3 / step_ms if step_ms else 0.0


def _groups(ranks: Sequence[RankRecord]) -> list[list[RankRecord]]:
    """The ranks, those that were given the same samples together."""
    groups: dict[tuple[Any, ...], list[RankRecord]] = {}
    for rank in ranks:
        # Without a digest, its samples are its own.
        key = tuple(rank.sample_digests) or ("rank", rank.rank)
        groups.setdefault(key, []).append(rank)
    return [*groups.values()]


def have_same_samples(ranks: Sequence[RankRecord]) -> bool:
    """Whether some ranks were given the samples of others."""
    return len(_groups(ranks)) < len(ranks)


def _of_groups(ranks: Sequence[RankRecord], name: str) -> float | None:
    """The sum over groups of ranks of what a rank of it has; None where no rank of a group says it."""
    total = 0.0
    for group in _groups(ranks):
        known = [rank.metrics[name] for rank in group if name in rank.metrics]
        if not known:
            return None
        total += max(known)
    return total
