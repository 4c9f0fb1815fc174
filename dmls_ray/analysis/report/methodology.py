"""How and where a sweep was measured, and the commands that repeat it: from its records and sweep.json."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from dmls_ray.analysis.results import Results
from dmls_ray.analysis.stats.intervals import MIN_REPEATS
from dmls_ray.analysis.table.model import Table
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome, outcome_counts


@dataclass(frozen=True, kw_only=True)
class Environment:
    """A machine with its versions and the commit of the code."""

    machine: Mapping[str, str]
    versions: Mapping[str, str]
    code: Mapping[str, str]
    runs: int


@dataclass(frozen=True, kw_only=True)
class Command:
    """A command that added runs to the folder."""

    when: str
    lines: str
    """Lines for a shell."""


def run_counts(results: Results) -> str:
    """`24 runs: 22 ok, 2 oom`."""
    outcomes = outcome_counts(record.ending for record in results.records)
    return f"{len(results):,} {'run' if len(results) == 1 else 'runs'}" + (f": {outcomes}" if outcomes else "")


def methodology(results: Results, table: Table) -> list[str]:
    """Sentences on how the sweep was measured; the notes of the table come first."""
    ran = [record for record in results.records if record.outcome is not Outcome.SKIPPED]
    sentences = list(table.notes)
    if not ran:
        return sentences
    sentences.append(_order(ran))
    isolations = {record.isolation for record in ran}
    if "group" in isolations:
        sentences.append(
            "Isolation group: one group of workers serves the sweep, and each run leases as many ranks as it needs."
        )
    if "per_run" in isolations:
        sentences.append("Isolation per_run: a group of workers is started for each run.")
    sentences.append(f"Seeds that runs trained with: {_listed(record.seed for record in ran)}.")
    warmup = {record.config["warmup_steps"] for record in ran if "warmup_steps" in record.config}
    if warmup:
        sentences.append(f"The first optimizer steps of a run ({_listed(warmup)}) are not counted in any rate.")
    if any(len(row.records) > 2 for row in table.rows):
        sentences.append(
            "Values are means over repeats, geometric ones of times, rates, memory and ratios; their intervals are "
            f"Student's 95 % confidence intervals, from {MIN_REPEATS} repeats on. Comparisons are made within blocks, "
            "and their intervals hold for all pairs of trials together: faster and slower mean that the interval "
            "excludes 1, not distinguished means that it includes 1, which is no evidence of equality."
        )
    loads = [record.load_average for record in ran if record.load_average is not None]
    if loads:
        sentences.append(
            f"The machine's one-minute load average when a run began: {median(loads):.2f} in the median, "
            f"{min(loads):.2f} to {max(loads):.2f}."
        )
    again = sum(record.attempts > 1 for record in ran)
    if again:
        sentences.append(
            f"{again} of {len(ran)} runs were started more than once because a rank was lost; their dialogs say why."
        )
    if any(record.oversubscribed for record in ran):
        sentences.append("Some runs had more threads than cores (oversubscribed).")
    return sentences


def environment_key(record: RunRecord) -> str:
    """A text that is equal for runs with equal environments."""
    return json.dumps([record.machine, record.versions, record.git], default=str)


def environments(records: Sequence[RunRecord]) -> list[Environment]:
    """The environments of the runs, in the order in which `build_payload` numbers them."""
    groups: dict[str, list[RunRecord]] = {}
    for record in records:
        groups.setdefault(environment_key(record), []).append(record)
    return [
        Environment(
            machine=_texts(group[0].machine),
            versions=_texts(group[0].versions),
            code=_code(group[0].git),
            runs=len(group),
        )
        for group in groups.values()
    ]


def commands(sessions: Sequence[Mapping[str, Any]]) -> list[Command]:
    """The commands of the sessions, each with its commit and versions."""
    return [
        Command(when=str(session.get("started_at", "")), lines="\n".join(_lines(session)))
        for session in sessions
        if session.get("command")
    ]


def _lines(session: Mapping[str, Any]) -> list[str]:
    git, versions = session.get("git") or {}, session.get("versions") or {}
    lines = []
    if git.get("commit"):
        changed = "  # the files had changes that this commit lacks" if git.get("dirty") else ""
        lines.append(f"git checkout {shlex.quote(str(git['commit']))}{changed}")
    pinned = [shlex.quote(f"{name}=={versions[name]}") for name in ("torch", "torchvision", "ray") if name in versions]
    if pinned:
        lines.append(f"pip install {' '.join(pinned)} -e .")
    command = shlex.join(session.get("command", []))
    lines.append(f"python {command}" if command.partition(" ")[0].endswith(".py") else command)
    return lines


def _order(ran: Sequence[RunRecord]) -> str:
    if any(record.mode == "search" for record in ran):
        return "Runs of a search share the machine, and later configurations may depend on earlier results."
    blocks = len({record.repeat for record in ran})
    seeds = _listed(record.order_seed for record in ran)
    if blocks == 1:
        return f"Each run had its ranks' resources to itself; the runs went in an order shuffled by seed {seeds}."
    return (
        f"Each run had its ranks' resources to itself. The runs went in {blocks} blocks, one repeat of every trial a "
        f"block, shuffled within the block by seed {seeds}, so that drift affects all trials equally."
    )


def _listed(values: Any, most: int = 8) -> str:
    distinct = sorted(set(values))
    if len(distinct) <= most:
        return ", ".join(map(str, distinct))
    return f"{len(distinct):,} different ones from {distinct[0]} to {distinct[-1]}"


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {name: _text(value) for name, value in values.items() if value not in (None, "", [])}


def _text(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(
            f"{count} x {item}" if count > 1 else str(item) for item, count in Counter(map(str, value)).items()
        )
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _code(git: Mapping[str, Any]) -> dict[str, str]:
    if not git.get("commit"):
        return {}
    return {"commit": str(git["commit"]), "files": "changed since" if git.get("dirty") else "as committed"}
