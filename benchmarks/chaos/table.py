"""Tables of the scenarios that were played."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from benchmarks.chaos.check import Counts
from benchmarks.chaos.runner import Played, Struck


def totals(played: Sequence[Played]) -> pd.DataFrame:
    """One number for each kind of damage."""
    counts = [one.counts for one in played]
    rows = {
        "scenarios": len(played),
        "runs": sum(one.runs for one in played),
        "faults": sum(len(one.struck) for one in played),
        "rows lost": sum(one.lost for one in counts),
        "rows twice": sum(one.twice for one in counts),
        "rows wrong": sum(one.wrong for one in counts),
        "sweeps hung": sum(len(one.hung) for one in played),
        "ok rows, equal to the undisturbed sweep bit for bit": sum(one.ok - one.wrong for one in counts),
        "rows that a fault explains (oom)": sum(one.explained for one in counts),
        "runs started more than once": sum(one.retried for one in counts),
        "runs continued from a checkpoint": sum(one.resumed for one in counts),
        "restarts by the supervisor": sum(one.restarts for one in played),
        "commands given": sum(len(one.exit_codes) for one in played),
        "commands that failed without a fault that ends them": sum(len(one.gave_up) for one in played),
        "tracebacks printed": sum(one.tracebacks for one in played),
        "processes and temporary folders left": sum(len(one.left) for one in played),
        "s in all": round(sum(one.took_s for one in played)),
    }
    return pd.DataFrame([(name, f"{value:,}") for name, value in rows.items()], columns=["what", ""])


def by_kind(played: Sequence[Played]) -> pd.DataFrame:
    """Each kind of fault, with the time that it cost."""
    struck: dict[str, list[Struck]] = {}
    for one in played:
        for item in one.struck:
            struck.setdefault(item.kind, []).append(item)
    rows = []
    for kind, items in sorted(struck.items()):
        lost = sorted(item.lost_s for item in items if item.lost_s is not None)
        rows.append({
            "fault": kind,
            "n": str(len(items)),
            "ended the command": str(sum(item.ended_command for item in items) or ""),
            "s lost, median": f"{statistics.median(lost):.1f}" if lost else "",
            "least": f"{lost[0]:.1f}" if lost else "",
            "most": f"{lost[-1]:.1f}" if lost else "",
        })  # fmt: skip
    return pd.DataFrame(rows)


def by_scenario(played: Sequence[Played]) -> pd.DataFrame:
    """Each scenario."""
    rows = []
    for one in played:
        faults = Counter(item.kind for item in one.struck)
        rows.append({
            "seed": str(one.seed),
            "place": one.place,
            "runs": str(one.runs),
            "faults": ", ".join(name if count == 1 else f"{count} x {name}" for name, count in faults.items()),
            "commands": str(len(one.exit_codes)),
            "lost": str(one.counts.lost),
            "twice": str(one.counts.twice),
            "wrong": str(one.counts.wrong),
            "hung": str(len(one.hung)),
            "failed": str(len(one.gave_up)),
            "left": str(len(one.left)),
            "no victim": str(len(one.missed)),
            "s": f"{one.took_s:.0f}",
            "commit": one.commit,
        })  # fmt: skip
    return pd.DataFrame(rows)


def read_played(path: Path) -> list[Played]:
    """The scenarios that a file records."""
    return [_played(json.loads(line)) for line in path.read_text().splitlines()]


def _played(values: dict[str, Any]) -> Played:
    struck = [Struck(**item) for item in values["struck"]]
    return Played(**{**values, "counts": Counts(**values["counts"]), "struck": struck})
