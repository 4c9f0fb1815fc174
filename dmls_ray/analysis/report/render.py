"""The report as one HTML file: template, scripts, style, Vega and the data of the runs."""

from __future__ import annotations

import base64
import gzip
import hashlib
import shlex
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from dmls_ray.analysis.figures.chart import Chart
from dmls_ray.analysis.figures.style import DARK, LIGHT, PAGE, Styles
from dmls_ray.analysis.figures.vega import vega_lite
from dmls_ray.analysis.report.content import build_payload, commands, environments, methodology, run_counts
from dmls_ray.analysis.stats.intervals import MIN_REPEATS
from dmls_ray.analysis.summary import SweepSummary
from dmls_ray.analysis.table.model import NoteKind, Table
from dmls_ray.analysis.table.named_layouts import shown_columns
from dmls_ray.config.sweep_file import SWEEP_FILE
from dmls_ray.records.codec import encode_json
from dmls_ray.storage.runs_file import RUNS
from dmls_ray.util.files import atomic_write_text, cache_root
from dmls_ray.util.importing import missing_extra
from dmls_ray.util.text import escape_control_chars
from dmls_ray.util.uri import below

MOST_RUNS = 5_000
"""Maximum runs and table rows in a report; beyond these, the page says where the others are."""

SCRIPTS = ("page.js", "tables.js", "run.js", "figures.js", "start.js")
"""In the order of their dependencies."""

_HERE = Path(__file__).parent


def render_report(reading: SweepSummary, charts: Sequence[Chart]) -> str:
    """The report as HTML, for the results folder, since it links to files of the runs.

    Args:
        reading: summary of the sweep.
        charts: the figures to show.

    Raises:
        StoreError: sweep.json cannot be read.
    """
    results, table = reading.results, reading.table
    cells = table.cells(shown_columns(table).columns)
    shown = results.records[:MOST_RUNS]
    sessions = results.sessions
    css = _theme_css() + (_HERE / "page.css").read_text(encoding="utf-8")
    script = "\n".join((_HERE / name).read_text(encoding="utf-8") for name in SCRIPTS)
    no_figures = missing_extra("vl_convert", "figures", "Its figures") if charts else ""
    if no_figures:
        charts = ()
    vega = _vega() if charts else ""
    styles = Styles(charts)
    again = ""
    if (results.folder / SWEEP_FILE).exists():
        again = f"dmls-ray sweep {shlex.quote(below(results.where, SWEEP_FILE))}"
    data = {
        **build_payload(shown, results.folder),
        "varied": list(table.varied),
        "charts": [{"name": chart.name, "spec": vega_lite(chart, styles, PAGE)} for chart in charts],
        "left_out": len(results) - len(shown),
    }
    asked = "How does this configuration train?"
    if names := ", ".join(reading.question.varied or table.varied):
        asked = f"What does a change of {names} do to training?"
    question, *more = (reading.question.text or asked).strip().split("\n\n")
    return escape_control_chars(
        _environment().get_template("page.html.j2").render(
            policy=_policy(css, [script, vega]),
            css=Markup(css),
            script=Markup(script),
            vega=vega and pack(vega.encode()),
            data=pack(to_json(data)),
            name=(sessions[-1].get("name") if sessions else "") or "sweep",
            days=results.days,
            counts=run_counts(results),
            reading=reading,
            question=question,
            more=more,
            held_fixed=_note(table, "held_fixed"),
            measured_on=_note(table, "measured_on"),
            heads=list(cells),
            rows=list(zip(list(zip(*cells.values(), strict=True))[:MOST_RUNS], table.rows, strict=False)),
            trials={record.trial_id for record in shown},
            rows_left_out=max(0, len(table.rows) - MOST_RUNS),
            charts=charts,
            no_figures=no_figures,
            runs=len(shown),
            left_out=len(results) - len(shown),
            source=RUNS,
            method=methodology(results, table),
            min_repeats=MIN_REPEATS,
            places=environments(results.records),
            calls=commands(sessions),
            again=again,
        )
    )  # fmt: skip


def pack(content: bytes) -> str:
    """Compress a UTF-8 text and encode it in base64; the page decompresses it with `DecompressionStream`.

    The result has a third of the size, and no characters that HTML interprets.
    """
    # Without a time stamp, so that equal reports are equal files.
    return base64.b64encode(gzip.compress(content, 6, mtime=0)).decode()


def to_json(values: Any) -> bytes:
    """Values as compact JSON; a number that is not finite becomes null, and what is no plain value becomes text."""
    # NumPy's numbers and arrays have `tolist`.
    return encode_json(values, default=lambda value: value.tolist() if hasattr(value, "tolist") else str(value))


def _note(table: Table, kind: NoteKind) -> str:
    return next((note.text for note in table.typed_notes if note.kind == kind), "")


def _policy(css: str, scripts: Sequence[str]) -> str:
    """The content security policy: only the scripts and the style sheet of the report, nothing fetched."""
    allowed = " ".join(_digest(script) for script in scripts if script)
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_digest(css)}; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _theme_css() -> str:
    """The colours of figures as variables of the style sheet, for screens of both kinds and for paper."""
    light, dark = ("".join(f"--{name}: {colour}; " for name, colour in theme.items()) for theme in (LIGHT, DARK))
    return f":root {{ {light}}}\n@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark}}} }}\n"


@cache
def _vega() -> str:
    """The script that draws figures: Vega, Vega-Lite and the interpreter that needs no `eval`.

    vl-convert has it for the same versions with which it draws the files. It takes a second to make it, which is kept.
    """
    import vl_convert

    kept = cache_root() / "report" / f"vega-{version('vl_convert_python')}.js"
    try:
        bundle = kept.read_text(encoding="utf-8")
    except OSError:
        bundle = vl_convert.javascript_bundle("globalThis.vegaEmbed = vegaEmbed;")
        with suppress(OSError):  # the next report takes a second longer
            kept.parent.mkdir(parents=True, exist_ok=True)
            atomic_write_text(kept, bundle, durable=True)
    # The names of a module would be global variables of a page.
    return f'"use strict";(() => {{{bundle}}})();'


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(_HERE), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
