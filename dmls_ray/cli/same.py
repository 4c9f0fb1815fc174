"""`dmls-ray same train.py --world-size 1 2`: whether settings of a script train the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from dmls_ray.analysis.findings.same_losses import ORDER, LossVerdict, judge_losses
from dmls_ray.analysis.json_objects import Same
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.seen import by_fact
from dmls_ray.analysis.trials.trial import Trial
from dmls_ray.analysis.words_on_training import losses_text
from dmls_ray.cli.call import Call
from dmls_ray.cli.console import EXIT_DIFFERENT, EXIT_FAILED, EXIT_OK, EXIT_UNCLEAR, print_json, say
from dmls_ray.cli.largest import field_of_largest
from dmls_ray.cli.request import Request, parse_request
from dmls_ray.cli.sweep_command import measure, parser_of, print_plan
from dmls_ray.cli.sweep_flags import flag_of
from dmls_ray.cli.what import answers_help, folder_of, take_what
from dmls_ray.config.sweep_file import Preset, What
from dmls_ray.execution.planning import results_location
from dmls_ray.execution.view import ProgressConsole
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.programs import is_program

_CODES = dict(zip(ORDER, (EXIT_FAILED, EXIT_DIFFERENT, EXIT_UNCLEAR, EXIT_OK, EXIT_OK), strict=True))
"""Verdict -> exit code."""

_OPTIONS = {"repeats": 1, "times": "off"}
"""Losses are compared, and no times."""

Setting = Mapping[str, Any]
"""Field -> its value, of the fields that vary."""


def same(call: Call) -> int:
    """usage: dmls-ray same train.py [flags] [-- arguments of the script]

    Say whether settings of a training script train the same, by the loss of each step: bit-identical, within rounding,
    different from a step on, or cannot say. Each setting runs with the same seed, and is compared with the first one.

    Flags with several values vary together: --world-size 1 2 4 --batch-size 64 32 16 are three settings, whose steps
    have 64 samples each. Losses are means over ranks. Within rounding is a relative difference of at most 0.001% in
    the first step (0.1% in formats shorter than float32), s times as much in step s, and a hundred times at most, if
    it grew without a jump.

    Only the --steps 50 that run are compared, 1000 at most: what differs in the second pass over the data is seen if
    they reach it. A wrong update is not seen while the learning rate is so low that losses do not show it.
    Exit codes: 0 the same, 1 a run failed, 2 wrong usage, 3 different, 4 cannot say, 130 stopped.
    Example: dmls-ray same train.py --world-size 1 2 --batch-size 64 32 --steps 200 -- --data /d
             dmls-ray same train.py --batch-size 64 16 --accum-steps 1 4
    """
    if answers_help(call, same.__doc__):
        return EXIT_OK
    script = take_what(call)
    if not is_program(script):
        raise ConfigError(f"{script} is no training script; give one: dmls-ray same train.py --world-size 1 2.")
    name, about = f"{folder_of(script)}-same", f"Compare the losses of settings of {script}."
    preset = Preset(name=name, axes={"steps": [50]}, description=about, options=_OPTIONS, workload=None)
    request = parse_request(parser_of(preset, call), preset, call.words, What(train=script), is_paired=True)
    settings = _settings(request)
    if request.dry_run:
        return print_plan(replace(request, variants=settings))
    base, *others = _measured(request, settings, call)
    verdicts = [judge_losses(trial, base) for trial in others]
    location = str(results_location(request.options))
    if any(verdict.verdict == "different" for verdict in verdicts):
        # Another run of the first setting, with the same seed: a script may train otherwise in each run.
        again = replace(request.options, out=f"{location}-again", fresh=False)
        [repeated] = _measured(replace(request, options=again), settings[:1], call)
        own = judge_losses(repeated, base)
        verdicts = [_beyond(own, verdict) for verdict in verdicts]
    names = [" ".join(f"{name}={value}" for name, value in setting.items()) for setting in settings]
    compared = dict(zip(names[1:], verdicts, strict=True))
    in_vain = by_fact([base, *others], "without_effect")
    code = _CODES[min((verdict.verdict for verdict in verdicts), key=ORDER.index)]
    if request.is_json:
        print_json(Same(folder=location, base=names[0], exit_code=code, compared=compared, without_effect=in_vain))
        return code
    for name, verdict in compared.items():
        say(ProgressConsole(), f"{name} vs {names[0]}: {losses_text(verdict)}", "bold")
    for text, having in in_vain.items():
        say(ProgressConsole(), f"{having}: what the script asks for had no effect: {text}.")
    return code


def _settings(request: Request) -> list[Setting]:
    """The settings: the first has the first value of each flag, and so on.

    Raises:
        ConfigError: no flag has several values, two have different numbers of them, or two settings are one.
    """
    if name := field_of_largest(request.axes):
        raise ConfigError(f"{flag_of(name)} max may differ between the settings; give values.")
    varied = {name: values for name, values in request.axes.items() if isinstance(values, tuple) and len(values) > 1}
    counts = {flag_of(name): len(values) for name, values in varied.items()}
    if len(set(counts.values())) != 1:
        seen = ", ".join(f"{flag} has {count}" for flag, count in counts.items()) or "no flag has several"
        raise ConfigError(f"{seen} values; give several of one flag, or as many of each: --world-size 1 2.")
    settings: list[Setting] = []
    for values in zip(*varied.values(), strict=True):
        setting = dict(zip(varied, values, strict=True))
        if setting in settings:
            words = " ".join(f"{flag_of(name)} {value}" for name, value in setting.items())
            raise ConfigError(f"{words} is given twice; give settings that differ.")
        settings.append(setting)
    return settings


def _measured(request: Request, settings: list[Setting], call: Call) -> list[Trial]:
    """The trial of each setting."""
    results, plan = measure(replace(request, variants=settings), call)
    rows = {row.trial_id: row for row in make_table(results).rows}
    trials = []
    for setting in settings:
        ids = [run.trial_id for run in plan.runs if setting.items() <= dict(run.config.factors()).items()]
        trials.append(rows[ids[0]])
    return trials


def _beyond(own: LossVerdict, verdict: LossVerdict) -> LossVerdict:
    """The verdict of a setting, which says nothing of a script whose own runs differ as early."""
    is_earlier = verdict.step is not None and own.step is not None and verdict.step < own.step
    if verdict.verdict != "different" or is_earlier or own.verdict in ("within rounding", "bit-identical"):
        return verdict
    reason = f"two runs of the first setting do not train the same themselves, from step {own.step} on; seed the script"
    return msgspec.structs.replace(verdict, verdict="cannot say", reason=reason)
