"""`dmls-ray tune WHAT`: the fastest settings of one training, as a command to paste, and what led to them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dmls_ray.analysis.json_objects import TriedObject, Tune, effect_object
from dmls_ray.analysis.metrics import MEMORY_METRICS
from dmls_ray.analysis.trials.common_metrics import memory_metric
from dmls_ray.analysis.words import amount_text
from dmls_ray.analysis.words_on_training import set_up_lines, training_text, why_text
from dmls_ray.cli.call import Call
from dmls_ray.cli.console import EXIT_FAILED, EXIT_OK, print_json, say
from dmls_ray.cli.request import Request, parse_request
from dmls_ray.cli.sweep_command import parser_of, probing
from dmls_ray.cli.sweep_flags import flag_of
from dmls_ray.cli.what import answers_help, folder_of, take_what
from dmls_ray.cluster.resources import local_resources
from dmls_ray.config.axes import Range
from dmls_ray.config.fields import FieldSpec
from dmls_ray.config.options import Until
from dmls_ray.config.sweep_file import Preset, What
from dmls_ray.config.tunables import ROLES, VARIABLES, roles_of
from dmls_ray.config.value_texts import as_flag_value
from dmls_ray.execution.planning import results_location
from dmls_ray.execution.tuning import Tried, Tuner, Tuning
from dmls_ray.execution.view import ProgressConsole
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.programs import is_program
from dmls_ray.util.text import did_you_mean


def tune(call: Call) -> int:
    """usage: dmls-ray tune WHAT [flags] [-- arguments of the script]

    Find the fastest settings of a training within --budget 10m, without changing what is trained: loader workers,
    threads, micro-batch and accumulation at one global batch, compile, and others that its flags allow.
    --change-training also tries the batch, the precision and the optimizer. It ends with a command to paste. To choose
    a batch size or a number of ranks, use: dmls-ray sweep train.py --batch-size 16 32 64 --world-size 1 2.

    WHAT is a script (train.py), a function (module:function) or a workload (classification).
    dmls-ray tune WHAT --help lists the flags. --budget is the time of the whole search; --steps 20 makes runs shorter.
    Example: dmls-ray tune train.py --budget 10m -- --data /d
    """
    if answers_help(call, tune.__doc__):
        return EXIT_OK
    name = take_what(call)
    what = What(train=name) if is_program(name) or ":" in name else What(workload=name)
    preset = Preset(
        name=f"{folder_of(name)}-tune",
        description=f"Find the fastest settings of {name}. --budget is the time of the whole search.",
        options={"budget": 600.0, "whole_blocks": True},
        workload=None,
    )
    parser = parser_of(preset, call)
    help_text = "Try settings that change what is trained, too: batch, precision, optimizer"
    parser.add_argument("--change-training", action="store_true", help=help_text)
    help_text = "Flag of a setting that is not recognized by name, or none for no flag: --flag batch=--bs workers=none"
    parser.add_argument("--flag", nargs="+", action="extend", default=[], metavar="SETTING=FLAG", help=help_text)
    request = parse_request(parser, preset, call.words, what)
    with_variables = request.workload.with_variables(VARIABLES)
    specs = with_variables.schema().specs
    roles = roles_of(specs, _corrected(request.given["flag"], specs))
    workload, given = with_variables.split_off(tuple(specs))
    base = {**given, **{name: _one_value(name, values) for name, values in request.axes.items()}}
    asked = request.options
    _check(request)
    assert asked.budget is not None
    console = ProgressConsole(is_aside=request.is_json)
    with probing(request, call) as prober:
        where = str(results_location(prober.options))
        # A race has a budget of its own.
        options = replace(prober.options, budget=Until.budget)
        tuner = Tuner(
            replace(prober, workload=workload, options=options),
            base,
            budget_s=asked.budget,
            cores=max(1, local_resources().cores // int(base.get("world_size", 1))),
            change_training=request.given["change_training"],
            roles=roles,
        )
        if not tuner.measure_start():
            say(
                console,
                "The training with its present settings did not end ok, so nothing was tried; dmls-ray show "
                "RUN says why.",
            )
            return EXIT_FAILED
        say(console, describe_settings(tuner.found, specs))
        found = tuner.search()
    start, best = workload.command_of(found.base), workload.command_of(found.settings)
    if request.is_json:
        print_json(json_object(found, where, start, best if found.is_faster else start))
        return EXIT_OK
    say(console, "")
    for line in [*describe(found, start, best), *set_up_lines(found.start, asked.preload)]:
        say(console, line)
    say(console, f"runs      {where}; dmls-ray table {shlex.quote(where)} shows all of them")
    return EXIT_OK


def _check(request: Request) -> None:
    """
    Raises:
        ConfigError: an option does not go with a search for settings.
    """
    asked = request.options
    if request.dry_run:
        raise ConfigError(
            "--dry-run: tune has no plan to print, because it chooses each run by the results so far; "
            "use it with dmls-ray sweep."
        )
    if asked.search:
        raise ConfigError("--search: tune searches by itself, one run at a time; leave it out.")
    if not asked.is_timed:
        raise ConfigError("--times off: tune searches for the fastest settings; leave it out.")
    if asked.race:
        raise ConfigError(f"--race --aim {asked.aim}: tune always races for throughput; leave both out.")
    if asked.until is None:
        raise ConfigError(f"--repeats {asked.repeats}: tune repeats until a setting is decided; leave it out.")
    if asked.budget is None:
        raise ConfigError("--budget none: tune needs a time in which to search; give --budget 10m, for example.")


def _one_value(name: str, values: tuple[Any, ...] | Range) -> Any:
    """
    Raises:
        ConfigError: the flag has several values.
    """
    if isinstance(values, Range):
        raise ConfigError(f"--range {name} {values.low:g} {values.high:g}: tune starts from one value; give one.")
    if len(values) != 1:
        raise ConfigError(f"{flag_of(name)} {' '.join(map(str, values))}: tune starts from one value; give one.")
    return values[0]


def _corrected(texts: Sequence[str], specs: Mapping[str, Any]) -> dict[str, str]:
    """The settings of `--flag SETTING=FLAG`, by their name.

    Raises:
        ConfigError: there is no such setting or flag.
    """
    roles = {role.replace(" ", "-"): role for role in ROLES}
    corrected = {}
    for text in texts:
        role, _, flag = text.partition("=")
        name = flag.lstrip("-").replace("-", "_")
        if role not in roles:
            raise ConfigError(f"--flag {text}: {did_you_mean(role, [*roles])}the settings are {', '.join(roles)}.")
        if name not in (*specs, "none"):
            meant = did_you_mean(flag, [flag_of(item) for item in specs])
            raise ConfigError(f"--flag {text}: there is no flag {flag}; {meant}give one of --help, or none.")
        corrected[roles[role]] = name
    return corrected


def describe_settings(found: Tuning, specs: Mapping[str, FieldSpec]) -> str:
    """The settings that were recognized, with their values at the start, and what a step was seen to have."""
    texts = []
    for role, name in found.roles.items():
        value = found.base.get(name, specs[name].default)
        shown = "not set" if value is None else as_flag_value(value)
        texts.append(f"{role.replace(' ', '-')}={name if name in VARIABLES else flag_of(name)} ({shown})")
    seen = ""
    if found.start is not None and (samples := found.start.value_of("samples_per_step")):
        seen = f" A step has {samples:,.10g} samples."
    return f"Settings: {', '.join(texts) or 'none was recognized'}; --flag SETTING=FLAG corrects one.{seen}"


def describe(found: Tuning, start: str, best: str) -> Iterator[str]:
    """What a search found, line by line.

    Args:
        found: the search.
        start: the command of the start.
        best: the command with the settings that were found.
    """
    if found.is_faster:
        changes = _join([str(tried.change) for tried in found.kept if tried.change.changes_training])
        warning = f"; the training changes: {changes}" if changes else ""
        yield f"Set       {best}"
        yield f"          {_describe_gain(found)} as fast as now{_describe_memory_and_use(found)}{warning}"
        head = "why"
    else:
        yield f"Set       {start}"
        why = f"nothing was tried; a run takes {found.run_s:.0f} s: give a longer --budget, or fewer --steps"
        if found.kept or found.lost:
            why = "nothing that was tried is faster beyond chance"
        yield f"          as it is: {why}"
        head = "withdrawn"
    yield from _listed(head, [_describe_step(tried) for tried in found.kept])
    if found.gain is not None and not found.is_faster:
        yield f"          together {_describe_gain(found)} as fast in the last comparison, with other seeds"
    yield from _listed("not kept", [_describe_lost(tried) for tried in found.lost])
    yield from _listed("not tried", [f"{name}: {reason}" for name, reason in found.not_tried.items()])


def json_object(found: Tuning, folder: str, start: str, command: str) -> Tune:
    """What a search found, for programs.

    Args:
        found: the search.
        folder: that of its runs.
        start: the command at the start.
        command: the one to use.
    """
    return Tune(
        folder=folder, start=start, command=command, is_faster=found.is_faster,
        gain=effect_object(found.gain),
        changes_training=any(tried.change.changes_training for tried in found.kept),
        kept=list(map(_tried_object, found.kept)), lost=list(map(_tried_object, found.lost)),
        not_tried=found.not_tried, settings=found.roles,
    )  # fmt: skip


def _tried_object(tried: Tried) -> TriedObject:
    return TriedObject(
        values=tried.change.values,
        does=tried.change.does,
        speed=effect_object(tried.effect),
        outcome=tried.outcome or "ok",
        changes_training=tried.change.changes_training,
        training=None if tried.training is None else tried.training.verdict,
        last_losses=tried.last_losses,
        is_forbidden=tried.is_forbidden,
    )


def _listed(head: str, texts: Sequence[str]) -> list[str]:
    heads = [head, *[""] * len(texts)]
    return [f"{name:<9} {text}" for name, text in zip(heads, texts, strict=False)]


def _join(parts: Sequence[str]) -> str:
    return ", ".join(part for part in parts if part)


def _describe_gain(found: Tuning) -> str:
    assert found.gain is not None
    return f"{amount_text(found.gain)} (n={found.gain.contrast.n})"


def _describe_step(tried: Tried) -> str:
    assert tried.effect is not None
    why = why_text(tried.why).removeprefix("Why: ").rstrip(".")
    return _join([f"{tried.change} {amount_text(tried.effect)}", _describe_training(tried), tried.change.does, why])


def _describe_training(tried: Tried) -> str:
    """What the change does to the training, where it does something or that is not known."""
    if tried.change.changes_training:
        losses = tried.last_losses
        loss = f" (last loss {losses[0]:.4g} instead of {losses[1]:.4g})" if losses else ""
        return f"changes the training{loss}"
    return "losses of the first steps differ" if tried.training and tried.training.verdict == "unclear" else ""


_GAINS = {1: "less than another value", 0: "undecided", -1: "slower"}


def _describe_lost(tried: Tried) -> str:
    if tried.effect is None:
        return f"{tried.change}: {tried.outcome or 'not compared, since the samples of a step are not known'}"
    verdict = "equal within --equivalent" if tried.effect.verdict == "equal" else _GAINS[tried.effect.gain]
    if tried.is_forbidden:
        verdict = training_text(tried.training)
    return _join([f"{tried.change} {amount_text(tried.effect)}", _describe_training(tried), verdict, tried.change.does])


def _describe_memory_and_use(found: Tuning) -> str:
    """The memory and the utilization of what was found, and of the start."""
    assert found.start is not None
    assert found.end is not None
    memory, text = memory_metric([found.end, found.start]), ""
    for metric, noun in {memory: f"{MEMORY_METRICS.get(memory)} in MiB", "mfu": "MFU"}.items():
        now, then = (trial.text(metric, interval=True) for trial in (found.end, found.start))
        if now and then:
            text += f"; {noun} {now} instead of {then}"
    return text
