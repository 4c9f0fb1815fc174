"""Write the generated parts of README.md and docs/, docs/schema.json and SKILL.md again: `python docs/generate.py`.

A generated part stands between `<!-- generated: NAME -->` and `<!-- end -->`. `PARTS` names the function that writes
it. A test compares the committed pages with what these functions return.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import io
import json
import os
import re
import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd

from dmls_ray import load
from dmls_ray.analysis import json_objects as objects
from dmls_ray.analysis.summary import AnswerTable, summarize
from dmls_ray.analysis.table.model import heading_of
from dmls_ray.analysis.table.named_layouts import render
from dmls_ray.cli.commands.skill import SKILL
from dmls_ray.cli.main import main as dmls_ray_main
from dmls_ray.cli.sweep_flags import flag_of
from dmls_ray.config import field_types
from dmls_ray.config.fields import field_specs
from dmls_ray.config.options import RESERVED
from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.config.value_texts import as_flag_value
from dmls_ray.records.metrics import Metric
from dmls_ray.training.rank import RankInfo
from dmls_ray.workloads.registry import registered_metrics
from dmls_ray.workloads.script.config import ScriptOptions

PROJECT = Path(__file__).resolve().parents[1]
REFERENCE = PROJECT / "results" / "reference"
SCHEMA = PROJECT / "docs" / "schema.json"
AGENTS = PROJECT / "docs" / "agents.md"
SKILL_HEAD = """---
name: dmls-ray
description: Measures PyTorch training with dmls-ray. Use it to find out which batch size, number of ranks, precision \
or other setting of a training script is fastest or most accurate, how large the batch may be, whether a change makes \
training slower, or whether such a measurement gets on, and to read its answers, which have intervals and verdicts.
---

"""
"""By which agents decide whether to read the rest."""
WORKLOAD = "classification"
"""A workload whose flags are read without a process of its own."""
MARKED = re.compile(r"(<!-- generated: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def pages() -> list[Path]:
    """README.md and every page of docs/."""
    return [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]


def regenerated(page: str) -> str:
    """The text of a page with its generated parts written again."""
    return MARKED.sub(lambda match: f"{match[1]}{PARTS[match[2]]()}\n{match[3]}", page)


def quickstart() -> str:
    """The README's command, with the first and the last lines that it printed."""
    lines = (REFERENCE / "batch_size" / "console.txt").read_text(encoding="utf-8").splitlines()
    shown = [
        '$ pip install -e ".[vision,tensorboard,figures]" && dmls-ray sweep batch_size',
        *lines[:2],
        "...",
        lines[-1],
    ]
    return "\n".join(["```console", *shown, "```"])


def script() -> str:
    """The command of a sweep of a script, and its answer without the line on what is undecided."""
    answer = "\n".join(summarize(load(REFERENCE / "script")).answer.lines(100))
    decided = answer.partition("\n\nUndecided")[0]
    command = "dmls-ray sweep train.py --batch-size 16 64 --world-size 1 2"
    return "\n".join(["```console", f"$ {command}", "...", decided, "```"])


def batch_size() -> str:
    """The answer of the README's command."""
    return _answer(summarize(load(REFERENCE / "batch_size")).answer)


def grayscale() -> str:
    """The answer of the image operations."""
    return f"\n{_answer(summarize(load(REFERENCE / 'grayscale')).answer)}\n"


def grayscale_memory() -> str:
    """Bandwidths relative to a copy, for more images than the cache stores."""
    columns = ["implementation", "threads_per_rank", "ms [95%]", "GB/s", "of a copy [95%]", "n"]
    return _excerpt(summarize(load(REFERENCE / "grayscale_memory")).table.frame(), columns)


def machines() -> str:
    """An excerpt of the table of several machines."""
    columns = ["machines", "ranks_per_machine", "images/s [95%]", "speed-up [95%]", "exposed comm. ms [95%]", "n"]
    return _excerpt(render(load(REFERENCE / "machines" / "simplecnn-100mbit"), "scaling").frame, columns)


def rank_info() -> str:
    """A row per field of `RankInfo` that a training function may use."""
    rows = []
    for name, doc in field_docs(RankInfo).items():
        rows.append(f"| `rank.{name}` | {doc} |")
    return "\n".join(["| field | meaning |", "|---|---|", *rows])


def reserved_names() -> str:
    """The names that no field of a training function has on the command line."""
    return f"{', '.join(f'`{name}`' for name in sorted(RESERVED))}."


def metrics() -> str:
    """A row per registered metric: first those with a column in tables, then those in records only."""
    registered = registered_metrics().values()
    in_tables = _metric_rows([metric for metric in registered if metric.label], labelled=True)
    in_records = _metric_rows([metric for metric in registered if not metric.label], labelled=False)
    return "\n".join(
        ["### In tables", "", *in_tables, "", "### In records only (`runs.csv`, the page of a run)", "", *in_records]
    )


def _metric_rows(metrics: Sequence[Metric], *, labelled: bool) -> list[str]:
    better = {"max": "more", "min": "less", "none": ""}
    ranks = {
        None: "",
        "rank0": "",
        "max": "largest",
        "min": "smallest",
        "sum": "sum",
        "mean": "mean",
        "spread": "largest - smallest",
    }
    rows = ["| column | name | meaning | better | of the ranks |" if labelled else "| name | meaning | of the ranks |"]
    rows.append("|---" * rows[0].count(" | ") + "|---|")
    for metric in metrics:
        cells = [f"`{metric.name}`", metric.doc]
        if labelled:
            cells = [heading_of(metric.name), *cells, better[metric.direction]]
        combined = f"of the rank with the largest `{metric.part_of}`" if metric.part_of else ranks[metric.across_ranks]
        rows.append(f"| {' | '.join([*cells, combined])} |")
    return rows


def commands() -> str:
    """`--help` of dmls-ray and of each of its commands, `--help-all` of a sweep, and what only scripts have."""
    overview = _help("dmls-ray")
    names = re.findall(r"^    (\w+)\b", overview.partition("COMMAND")[2], re.MULTILINE)
    parts = [f"## dmls-ray\n\n```text\n{overview}\n```"]
    for name in names:
        parts.append(f"### dmls-ray {name}\n\n```text\n{_help('dmls-ray', name)}\n```")
        if name == "tune":
            parts.append(
                f"Its flags, here of the built-in models:\n\n```text\n{_help('dmls-ray', name, WORKLOAD)}\n```"
            )
    # The flags that a command shares with all sweeps come once, with those of a sweep.
    parts = [re.sub(r"\n\nall flags, .*(?=\n```)", "", part, flags=re.DOTALL) for part in parts]
    parts.append(f"## Sweeps\n\n```text\n{_help('batch_size.py')}\n```")
    parts.append(f"## Flags that only scripts have\n\n{_script_flags()}")
    return "\n\n".join(parts)


def _script_flags() -> str:
    """A row per setting of a script that other workloads do not have."""
    others = field_specs(RuntimeConfig)
    rows = ["| flag | meaning | default |", "|---|---|---|"]
    for name, spec in field_specs(ScriptOptions).items():
        if name not in others:
            rows.append(f"| `{flag_of(name)}` | {' '.join(spec.help.split())} | `{as_flag_value(spec.default)}` |")
    return "\n".join(rows)


def json_objects() -> str:
    """A row per name of each object that --format json prints, without those of the class that it extends."""
    parts = []
    kinds = _objects()
    for kind in kinds:
        heading = f"**{kind.__name__}**: {inspect.getdoc(kind)}"
        docs, base = _json_docs(kind), kind.__bases__[0]
        if base in kinds:
            heading += f" It has the names of {base.__name__}, too."
            docs = {name: text for name, text in docs.items() if name not in _json_docs(base)}
        parts.append(heading)
        rows = [f"| `{name}` | {text} |" for name, text in docs.items()]
        if rows:
            parts.append("\n".join(["| name | meaning |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def _objects() -> list[type]:
    """Those of commands, and then what they have."""
    classes = [item for item in vars(objects).values() if isinstance(item, type)]
    printed = [item for item in classes if issubclass(item, msgspec.Struct) or dataclasses.is_dataclass(item)]
    return [*objects.KINDS, *(item for item in printed if item not in objects.KINDS)]


def _json_docs(kind: type) -> dict[str, str]:
    """Name in JSON -> the docstring of its field, or nothing."""
    docs = field_docs(kind)
    described: Any = msgspec.inspect.type_info(kind)
    return {field.encode_name: docs.get(field.name, "") for field in described.fields}


def schema() -> str:
    """The JSON Schema of all objects, with the docstrings of fields as descriptions."""
    references, parts = msgspec.json.schema_components(objects.KINDS, ref_template="#/$defs/{name}")
    for kind in _objects():
        for name, text in _json_docs(kind).items():
            if text and kind.__name__ in parts:  # those that are only extended are no part
                parts[kind.__name__]["properties"][name]["description"] = text
    content = {"$schema": "https://json-schema.org/draft/2020-12/schema", "anyOf": references, "$defs": parts}
    return json.dumps(content, indent=1) + "\n"


def skill() -> str:
    """The instructions for agents: the page for them up to where it says how to install them, without links."""
    text, _, _ = AGENTS.read_text(encoding="utf-8").partition("## As a skill\n")
    return SKILL_HEAD + re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", text).strip() + "\n"


PARTS: dict[str, Callable[[], str]] = {
    "quickstart": quickstart,
    "script": script,
    "batch_size": batch_size,
    "grayscale": grayscale,
    "grayscale_memory": grayscale_memory,
    "machines": machines,
    "rank_info": rank_info,
    "reserved_names": reserved_names,
    "metrics": metrics,
    "commands": commands,
    "json_objects": json_objects,
}


def _help(program: str, *command: str) -> str:
    """What `--help` of a command prints, or `--help-all` of a sweep, 100 columns wide."""
    printed = io.StringIO()
    columns, words = os.environ.get("COLUMNS"), sys.argv
    os.environ["COLUMNS"] = "100"
    try:
        with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
            sys.argv = [program, *command, "--help"]
            if program == "dmls-ray":
                dmls_ray_main()
            sys.argv = [program, "--help-all"]
            runpy.run_path(str(PROJECT / "sweeps" / program), run_name="__main__")
    finally:
        sys.argv = words
        os.environ.pop("COLUMNS")
        if columns is not None:
            os.environ["COLUMNS"] = columns
    return printed.getvalue().strip()


def field_docs(dataclass: type) -> dict[str, str]:
    """Field -> the docstring below it, in one line."""
    return {name: " ".join(text.split()) for name, text in field_types.field_docs(dataclass).items()}


def _excerpt(cells: pd.DataFrame, columns: Sequence[str]) -> str:
    """Some columns of a table, as a code block."""
    widths = {name: max(len(name), *(len(cell) for cell in cells[name])) for name in columns}
    rows = [list(columns), *cells[list(columns)].to_numpy().tolist()]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths.values(), strict=True)) for row in rows]
    lines.insert(1, "  ".join("─" * width for width in widths.values()))
    return "\n".join(["```text", *(line.rstrip() for line in lines), "```"])


def _answer(answer: AnswerTable) -> str:
    """An answer as a terminal shows it."""
    return "\n".join(["```text", *answer.lines(100), "```"])


def main() -> None:
    """Write every page again."""
    for path in pages():
        path.write_text(regenerated(path.read_text(encoding="utf-8")), encoding="utf-8")
    SCHEMA.write_text(schema(), encoding="utf-8")
    SKILL.write_text(skill(), encoding="utf-8")


if __name__ == "__main__":
    main()
