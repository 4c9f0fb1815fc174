"""`dmls-ray ab A B -- sweep train.py`: whether revision B of a script, or of what a command runs, is slower than A, or
better by a metric.
"""

from __future__ import annotations

import itertools

from dmls_ray.analysis.findings.replacement import judge_replacement
from dmls_ray.analysis.json_objects import Ab, EffectObject
from dmls_ray.analysis.words_on_replacement import replacement_text
from dmls_ray.cli.call import Call
from dmls_ray.cli.console import EXIT_FAILED, EXIT_OK, EXIT_SLOWER, EXIT_UNCLEAR, print_json, say
from dmls_ray.cli.largest import field_of_largest
from dmls_ray.cli.request import parse_request
from dmls_ray.cli.sweep_command import measure, parser_of, print_plan
from dmls_ray.cli.sweep_flags import flag_of
from dmls_ray.cli.sweep_output import show_results, summary_of
from dmls_ray.cli.what import answers_help, folder_of, take_what
from dmls_ray.config.grid import SEED_STRIDE
from dmls_ray.config.options import Until
from dmls_ray.config.sweep_file import Preset, What
from dmls_ray.execution.view import ProgressConsole
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.programs import folder_name_of, is_program

_CODES = {"keep": EXIT_OK, "discard": EXIT_SLOWER, "cannot say": EXIT_UNCLEAR, "failed": EXIT_FAILED}
_ANNOTATIONS = {"keep": "notice", "discard": "error", "cannot say": "warning", "failed": "error"}
"""Verdict -> command of a GitHub workflow."""


_CONFIRM = "--confirm"
_NARROWEST = 1e-6
"""Half-width of an interval that no sweep reaches."""
_EXAMPLE = "dmls-ray ab main HEAD -- sweep train.py"


def ab(call: Call) -> int:
    """usage: dmls-ray ab A B [flags] -- sweep train.py [flags] [-- arguments of the script]
           dmls-ray ab A B [flags] -- command ./bench.sh [arguments]

    Say whether revision B of a training script is slower than revision A, by runs of both in the same blocks: keep,
    discard or cannot say. A and B are branches, tags or commits of the script's git repository; . means the files as
    they are. With command, any program is compared by its wall time, or by a number that it prints.

    Slower means by more than --equivalent 2%. Runs are repeated until that is decided, within --budget 10m. They start
    in copies of the repository, which include untracked files; --share data lets them read a large folder in place.
    --format github writes the verdict as an annotation, json everything as one object.

    With --metric NAME, a number that the script logs or prints (--metric-regex), B is kept if it is better beyond
    chance, over runs with other seeds: --steps none runs the script to its end, --goal says what is better. The best of
    many tries looks better than it is: --confirm measures what was kept with seeds that no try has used, once.
    Exit codes: 0 keep, 1 A does not train, 2 wrong usage, 3 discard, 4 cannot say, 130 stopped.
    Example: dmls-ray ab origin/main HEAD -- sweep train.py --steps 50 -- --data /d
             dmls-ray ab main HEAD --metric loss --metric-regex loss 'val loss (\\S+)' -- sweep train.py --steps none
             dmls-ray ab HEAD . --metric-regex mb_s 'rate (\\S+)' --metric mb_s --goal max -- command ./bench.sh --fast
    """
    if answers_help(call, ab.__doc__):
        return EXIT_OK
    preset, what, words = _asked(call)
    request = parse_request(parser_of(preset, call), preset, words, what, formats=("text", "json", "github"))
    if name := field_of_largest(request.axes):
        raise ConfigError(f"{flag_of(name)} max may differ between the revisions; give values.")
    if not request.options.is_timed and request.options.metric is None:
        given = "--search" if request.options.search else "--times off"
        raise ConfigError(f"{given}: runs share the machine, so their speeds say nothing; leave it out.")
    if request.dry_run:
        return print_plan(request)
    results, plan = measure(request, call)
    summary = summary_of(results, plan, request.options)
    first, second = plan.axes["revision"]
    verdict = judge_replacement(summary.table, "revision", (first, second), request.options.until or Until())
    code = _CODES[verdict.word]
    if request.is_json:
        judged = [EffectObject.of_effect(effect) for effect in verdict.effects]
        fields = summary.json_fields() | {"repeats_wanted": verdict.repeats_wanted}
        found = Ab(
            **fields, a=first, b=second, verdict=verdict.word, exit_code=code, judged=judged,
            allowed=verdict.allowed,
            outcomes=[*verdict.outcomes, *verdict.failures, *verdict.failures_of_base],
        )  # fmt: skip
        print_json(found)
        return code
    console = ProgressConsole()
    show_results(results, plan, request, console, has_verdict=True)
    line = f"{verdict.word}: {replacement_text(verdict, first, second)}."
    if request.given["format"] == "github":
        line = f"::{_ANNOTATIONS[verdict.word]} title=dmls-ray ab {first} {second}::{line}"
    say(console, line, "bold")
    return code


def _asked(call: Call) -> tuple[Preset, What, list[str]]:
    """What a call asks, what it runs, and the words of flags, on both sides of the first --.

    Raises:
        ConfigError: there are not two revisions, or no script and no command is named.
    """
    end = call.words.index("--") if "--" in call.words else len(call.words)
    how, program, *_ = [*call.words[end + 1 :], "", ""]
    is_command = how == "command" and program != ""
    has_revision = "--revision" in (call.words[:end] if is_command else call.words)
    revisions = call.take(len([*itertools.takewhile(lambda word: not word.startswith("-"), call.words[:end])]))
    if len(revisions) != 2 or len(set(revisions)) != 2 or has_revision:
        raise ConfigError(f"name two revisions that differ, and no more: {_EXAMPLE}.")
    flags = call.words[: end - len(revisions)]
    if not is_command and (how != "sweep" or not (program == "-m" or is_program(program))):
        raise ConfigError(f"say after -- which script is run, or which command: {_EXAMPLE}.")
    call.take(len(flags) + 2)
    if is_command:
        what = What(command=call.take(len(call.words)))
        folder, named = folder_name_of(program), program
    else:
        named = take_what(call)
        what, folder = What(train=named), folder_of(named)
    is_confirmation = _CONFIRM in flags
    flags = [word for word in flags if word != _CONFIRM]
    # A verdict needs an interval much narrower than the 2% that may be lost.
    options = {"budget": 600.0, "within": 0.005, "whole_blocks": True}
    own = [*flags, *itertools.takewhile(lambda word: word != "--", call.words)]  # without those of the script
    if any(word.partition("=")[0] == "--metric" for word in own):
        # Only the direction of a difference is asked for, however small it is.
        options = {"budget": 600.0, "within": _NARROWEST, "equivalent": 0.0}
    preset = Preset(
        name=f"{folder}-ab{'-confirm' if is_confirmation else ''}",
        axis="revision",
        # Repeats without it have seeds that are multiples of the stride.
        axes={"seed": [SEED_STRIDE // 2]} if is_confirmation else {},
        description=f"Compare revisions {' and '.join(revisions)} of {named}.",
        options=options,
        workload=None,
    )
    return preset, what, ["--revision", *revisions, *flags, *call.words]
