"""Tables of the scenarios that were played."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pandas as pd

from benchmarks.chaos.runner import Played


def totals(played: Sequence[Played]) -> pd.DataFrame:
    """One number for each kind of damage."""
    rows = []
    for one in played:
        counts = one.counts
        rows.append({
            "scenarios": 1,
            "runs": one.runs,
            "faults": len(one.struck),
            "rows lost": counts.lost,
            "rows twice": counts.twice,
            "rows wrong": counts.wrong,
            "sweeps hung": len(one.hung),
            "ok rows, equal to the undisturbed sweep bit for bit": counts.ok - counts.wrong,
            "rows that a fault explains (oom)": counts.explained,
            "runs started more than once": counts.retried,
            "runs continued from a checkpoint": counts.resumed,
            "restarts by the supervisor": one.restarts,
            "commands given": len(one.exit_codes),
            "commands that failed without a fault that ends them": len(one.gave_up),
            "tracebacks printed": one.tracebacks,
            "processes and temporary folders left": len(one.left),
            "s in all": one.took_s,
        })  # fmt: skip
    sums = pd.DataFrame(rows).sum()
    return pd.DataFrame({"what": sums.index, "": sums.map("{:,.0f}".format).to_list()})


def by_kind(played: Sequence[Played]) -> pd.DataFrame:
    """Each kind of fault, with the time that it cost."""
    struck = [(item.kind, item.ended_command, item.lost_s) for one in played for item in one.struck]
    kinds = pd.DataFrame(struck, columns=["kind", "ended", "lost_s"]).groupby("kind")
    lost_s = kinds["lost_s"]
    table = pd.DataFrame({
        "n": kinds.size().astype(str),
        "ended the command": kinds["ended"].sum().astype(str).replace("0", ""),
        "s lost, median": lost_s.median().map("{:.1f}".format),
        "least": lost_s.min().map("{:.1f}".format),
        "most": lost_s.max().map("{:.1f}".format),
    })  # fmt: skip
    return table.rename_axis("fault").reset_index()


def by_scenario(played: Sequence[Played]) -> pd.DataFrame:
    """Each scenario."""
    rows = []
    for one in played:
        faults = Counter(item.kind for item in one.struck)
        rows.append({
            "seed": one.seed,
            "place": one.place,
            "runs": one.runs,
            "faults": ", ".join(name if count == 1 else f"{count} x {name}" for name, count in faults.items()),
            "commands": len(one.exit_codes),
            "lost": one.counts.lost,
            "twice": one.counts.twice,
            "wrong": one.counts.wrong,
            "hung": len(one.hung),
            "failed": len(one.gave_up),
            "left": len(one.left),
            "no victim": len(one.missed),
            "s": round(one.took_s),
            "commit": one.commit,
        })  # fmt: skip
    return pd.DataFrame(rows).astype(str)
