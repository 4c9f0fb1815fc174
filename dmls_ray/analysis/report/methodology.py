"""How and where a sweep was measured, and the commands that repeat it: from its records and sweep.json."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dmls_ray.analysis.results import Results
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.words import count_noun
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome, outcome_counts


def run_counts(results: Results) -> str:
    """`24 runs: 22 ok, 2 oom`."""
    outcomes = outcome_counts(record.ending for record in results.records)
    return ": ".join(filter(None, [count_noun(len(results), "run"), outcomes]))


def methodology(results: Results, table: Table) -> list[str]:
    """Sentences on how the sweep was measured; the notes of the table come first."""
    ran = [record for record in results.records if record.outcome is not Outcome.SKIPPED]
    sentences = list(table.notes)
    if not ran:
        return sentences
    if any(record.mode == "search" for record in ran):
        sentences.append("Runs of a search share the machine, and later configurations may depend on earlier results.")
    else:
        blocks, seeds = len({record.repeat for record in ran}), _listed(record.order_seed for record in ran)
        sentences.append(
            f"Each run had its ranks' resources to itself. Blocks: {blocks}, with one repeat of every trial each, "
            f"shuffled by seed {seeds}, so that drift affects all trials equally."
        )
    sentences.append(f"Isolation: {_listed(record.isolation for record in ran)}.")
    warmup = {record.config["warmup_steps"] for record in ran if "warmup_steps" in record.config}
    if warmup:
        sentences.append(f"The first optimizer steps of a run ({_listed(warmup)}) are not counted in any rate.")
    again = [record for record in ran if record.attempts > 1]
    if again:
        sentences.append(f"Runs started more than once because a rank was lost: {len(again)} of {len(ran)}.")
    return sentences


def environments(records: Sequence[RunRecord]) -> list[dict[str, Any]]:
    """Machine, versions, code and number of runs of each environment."""
    found: dict[str, dict[str, Any]] = {}
    for record in records:
        code = {}
        if record.git.get("commit"):
            code["commit"] = str(record.git["commit"])
            code["files"] = "changed since" if record.git.get("dirty") else "as committed"
        facts = {"machine": _texts(record.machine), "versions": _texts(record.versions), "code": code, "runs": 0}
        key = json.dumps([record.machine, record.versions, record.git], default=str)
        found.setdefault(key, facts)["runs"] += 1
    return list(found.values())


def commands(sessions: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """When the commands of the sessions began, and their lines for a shell, with the commit."""
    return [(str(session.get("started_at", "")), _lines(session)) for session in sessions if session.get("command")]


def _lines(session: Mapping[str, Any]) -> str:
    git, lines = session.get("git") or {}, []
    if git.get("commit"):
        lines.append(f"git checkout {shlex.quote(str(git['commit']))}")
        if git.get("dirty"):
            lines[0] += "  # the files had changes that this commit lacks"
    command = shlex.join(session["command"])
    if session["command"][0].endswith(".py"):
        command = f"python {command}"
    return "\n".join([*lines, command])


def _listed(values: Iterable[Any]) -> str:
    return ", ".join(map(str, sorted(set(values))))


def _texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Facts of a machine in words, without unknown ones."""
    texts = {}
    for name, value in values.items():
        if value in (None, "", []):
            continue
        if isinstance(value, list):
            texts[name] = ", ".join(f"{count} x {item}" for item, count in Counter(map(str, value)).items())
        elif type(value) is int:
            texts[name] = f"{value:,}"
        else:
            texts[name] = str(value)
    return texts
