"""The samples that a step of all ranks trained: ranks that are given the same samples do not multiply."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dmls_ray.records.model import RankRecord, RunRecord
from dmls_ray.records.run_events import RankResult

_UNITS = ("samples", "tokens")
_ALIKE = 0.01
"""Relative difference up to which the user's word is what was seen."""
_UNEVEN = 1.5
"""Time of a step of the slowest rank over that of the fastest one from which on they make other numbers of steps."""
_AHEAD = 0.1
"""Relative difference by which ranks may be given more than was read for them: a reader is ahead of some steps."""


def take_samples(record: RunRecord, ranks: Sequence[RankResult], said: Mapping[str, float]) -> None:
    """Fill in the samples and tokens of all ranks, how they are known, and why they are not.

    Args:
        record: a run.
        ranks: the results of those of its ranks that trained.
        said: samples and tokens of a step of all ranks, as the user says them.
    """
    facts = record.facts
    record.metrics.pop("step_ms_mean", None)  # the most of the ranks that know theirs
    step_s = {} if "time_unknown" in facts else _step_s(ranks, is_together=not record.independent_ranks)
    if step_s:
        record.metrics["step_ms_mean"] = max(step_s.values()) * 1e3
    for unit in _UNITS:
        if not any(f"{unit}_per_step" in rank.metrics for rank in ranks) and not any(
            _loaded_by(rank) for rank in ranks
        ):
            continue
        of_ranks = _of_ranks(ranks, f"{unit}_per_step", unit)
        for name in (f"{unit}_per_step", f"{unit}_per_s"):
            record.metrics.pop(name, None)  # the sum over all ranks that know theirs
        if of_ranks:
            record.metrics[f"{unit}_per_step"] = sum(of_ranks.values())
        if of_ranks and of_ranks.keys() <= step_s.keys():
            record.metrics[f"{unit}_per_s"] = sum(value / step_s[rank] for rank, value in of_ranks.items())
    if step_s and not record.independent_ranks:
        _take_steps_of_fastest(record, min(step_s.values()), max(step_s.values()))
    if len(ranks) > 1 and len(_groups(ranks)) == 1:
        facts["same_samples"] = "true"
    for unit, value in said.items():
        _take_word(record, unit, value)
    facts.pop("samples_unknown", None)
    if "samples_per_step" in record.metrics:
        return
    for rank in reversed(ranks):  # the reason of the first rank stays
        if "samples_unknown" in rank.run.facts:
            facts["samples_unknown"] = rank.run.facts["samples_unknown"]
    if "tokens_per_step" not in record.metrics:
        facts.pop("counted_by", None)


def _take_steps_of_fastest(record: RunRecord, fastest_s: float, slowest_s: float) -> None:
    """Let a step be one of the rank that makes the most, where others make fewer in the same time."""
    if slowest_s <= _UNEVEN * fastest_s:
        return
    record.facts["uneven_steps"] = f"{slowest_s / fastest_s:.2g}"
    record.metrics["step_ms_mean"] = fastest_s * 1e3
    for unit in _UNITS:
        if f"{unit}_per_s" in record.metrics:
            record.metrics[f"{unit}_per_step"] = record.metrics[f"{unit}_per_s"] * fastest_s


def _take_word(record: RunRecord, unit: str, said: float) -> None:
    """Take the user's word on the samples or tokens of a step, and note what was seen where it differs."""
    per_step, per_s = f"{unit}_per_step", f"{unit}_per_s"
    seen = record.metrics.get(per_step)
    if seen is not None and abs(seen - said) > _ALIKE * said:
        record.facts[f"{unit}_differ"] = f"{seen:.4g}"
    record.metrics[per_step] = said
    record.facts["counted_by"] = "--samples"
    if "step_ms_mean" in record.metrics:
        record.metrics[per_s] = said * 1e3 / record.metrics["step_ms_mean"]


def _step_s(ranks: Sequence[RankRecord], *, is_together: bool) -> dict[int, float]:
    """Seconds of a step of each rank, by its number, without tests; only of ranks that know it.

    Ranks that train together wait for one that tests the model: what it left out counts on none of them.
    """
    timed = [rank for rank in ranks if rank.metrics.get("step_ms_mean")]
    shares = {rank.rank: rank.metrics.get("counted_share", 1.0) for rank in timed}
    least = min(shares.values(), default=1.0)
    kept = {rank: least / share if is_together and share else 1.0 for rank, share in shares.items()}
    return {rank.rank: rank.metrics["step_ms_mean"] / 1e3 * kept[rank.rank] for rank in timed}


def _loaded_by(rank: RankRecord) -> float:
    return rank.metrics.get("loaded_per_step", 0.0)


def _of_ranks(ranks: Sequence[RankRecord], name: str, unit: str) -> dict[int, float]:
    """Samples or tokens of a step, by the ranks that stand for all; empty where they are not known.

    A rank that reads for all others, which read nothing, has the samples of all.
    """
    counted = _of_groups(ranks, name)
    readers = [rank for rank in ranks if _loaded_by(rank)]
    if unit != "samples" or not readers or len(readers) == len(ranks):
        return counted
    read = {rank.rank: _loaded_by(rank) for rank in readers}
    # What models were given is exact: a reader is some batches ahead, and may skip some. It cannot be more.
    is_possible = 0 < sum(counted.values()) <= (1 + _AHEAD) * sum(read.values())
    return counted if is_possible else read


def have_same_samples(ranks: Sequence[RankRecord]) -> bool:
    """Whether some ranks were given the samples of others."""
    return len(_groups(ranks)) < len(ranks)


def _groups(ranks: Sequence[RankRecord]) -> list[list[RankRecord]]:
    """The ranks, those that were given the same samples together."""
    groups: dict[tuple[Any, ...], list[RankRecord]] = {}
    for rank in ranks:
        # Without a digest, its samples are its own.
        key = tuple(rank.sample_digests) or ("rank", rank.rank)
        groups.setdefault(key, []).append(rank)
    return [*groups.values()]


def _of_groups(ranks: Sequence[RankRecord], name: str) -> dict[int, float]:
    """What a rank of each group has of a metric, by its number; empty where no rank of a group says it."""
    found = {}
    for group in _groups(ranks):
        known = [rank for rank in group if name in rank.metrics]
        if not known:
            return {}
        most = max(known, key=lambda rank: rank.metrics[name])
        found[most.rank] = most.metrics[name]
    return found
