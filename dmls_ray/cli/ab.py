"""`dmls-ray ab A B -- sweep train.py`: whether revision B of a script is slower than A, for people and for CI."""

from __future__ import annotations

from dmls_ray.analysis.findings.slowdown import judge_slowdown
from dmls_ray.analysis.json_objects import Ab, EffectObject
from dmls_ray.analysis.words import slowdown_text
from dmls_ray.cli.console import EXIT_FAILED, EXIT_OK, EXIT_SLOWER, EXIT_UNCLEAR, Parser, print_json, say
from dmls_ray.cli.largest import field_of_largest
from dmls_ray.cli.request import parse_request
from dmls_ray.cli.sweep_command import measure, show_plan_of
from dmls_ray.cli.sweep_flags import flag_of
from dmls_ray.cli.sweep_output import show_results, summary_of
from dmls_ray.cli.sweep_script import Preset
from dmls_ray.config.options import Until
from dmls_ray.execution.supervisor import Heartbeat
from dmls_ray.execution.view import ProgressConsole
from dmls_ray.util.errors import ConfigError

_CODES = {"keep": EXIT_OK, "discard": EXIT_SLOWER, "cannot say": EXIT_UNCLEAR, "failed": EXIT_FAILED}
_ANNOTATIONS = {"keep": "notice", "discard": "error", "cannot say": "warning", "failed": "error"}
"""Verdict -> command of a GitHub workflow."""


def ab(parser: Parser, preset: Preset, words: list[str], heartbeat: Heartbeat) -> int:
    """Compare two revisions in the same blocks; returns the exit code.

    Raises:
        InputError: a word or a combination of words is wrong; nothing was started.
    """
    request = parse_request(parser, preset, [*preset.given, *words])
    if name := field_of_largest(request.axes):
        raise ConfigError(f"{flag_of(name)} max may differ between the revisions; give values.")
    if request.options.search:
        raise ConfigError("--search: runs of a search share the machine, so their speeds say nothing; leave it out.")
    if request.dry_run:
        return show_plan_of(request)
    results, plan = measure(request, heartbeat)
    summary = summary_of(results, plan, request.options)
    first, second = request.axes["revision"]
    verdict = judge_slowdown(summary.table, "revision", (first, second), request.options.until or Until())
    code = _CODES[verdict.word]
    if request.is_json:
        found = Ab(
            **summary.json_fields(), a=first, b=second, verdict=verdict.word, exit_code=code, allowed=verdict.allowed,
            speed=[EffectObject.of_effect(effect) for effect in verdict.effects], outcomes=verdict.outcomes,
            more_repeats=verdict.more_repeats,
        )  # fmt: skip
        print_json(found)
        return code
    console = ProgressConsole()
    show_results(results, plan, request, console, has_verdict=True)
    line = f"{verdict.word}: {slowdown_text(verdict, first, second)}."
    if request.given["format"] == "github":
        line = f"::{_ANNOTATIONS[verdict.word]} title=dmls-ray ab {first} {second}::{line}"
    say(console, line, "bold")
    return code
