"""A command in a copy of a template that `dmls-ray up` holds: its start by a supervisor, and the copy.

This module loads little, since every supervisor loads it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import runpy
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from dmls_ray.execution.supervisor import CHANNEL, channel
from dmls_ray.util.standby import Standby, find_standby, use_standby
from dmls_ray.util.template_copy import Copy, live_with, start_copy
from dmls_ray.util.template_request import COMMANDS

PREPARE = f"{__name__}:prepare"
"""What imports all that a command needs, in the template."""


def copy_of_standby(heartbeat: int, given: Mapping[str, Any]) -> Copy | None:
    """Start the command of this process in a copy of a template of the standby; None where there is none that suits.

    Args:
        heartbeat: descriptor of the pipe for it.
        given: what it is given.
    """
    standby = find_standby()
    *_, option, program = ["", *sys.orig_argv[: len(sys.orig_argv) - len(sys.argv) + 1]]
    if standby is None or option == "-c":
        return None
    if differing := standby.differences():
        _say(f"dmls-ray up is not used: {differing[0]} is another than where it was given. dmls-ray up starts it anew.")
        return None
    arguments = [program, option == "-m", sys.argv, sys.orig_argv, dict(given), asdict(standby)]
    be_copy = f"{__name__}:be_command"
    copy = start_copy(COMMANDS, be_copy, arguments, folder=standby.templates, descriptors=[heartbeat])
    if copy is not None:  # else the standby has ended
        _say("Processes of dmls-ray up are used.")
    return copy


def _say(line: str) -> None:
    with contextlib.suppress(OSError):  # the terminal is gone
        print(line, file=sys.stderr, flush=True)


# --- in the copy --------------------------------------------------------------------------------------------


def prepare() -> None:
    """Import what commands need."""
    for module in (
        "pandas", "rich.live", "scipy.stats", "dmls_ray.cli.ab", "dmls_ray.cli.doctor", "dmls_ray.cli.main",
        "dmls_ray.cli.sweep_command", "dmls_ray.cli.sweep_script", "dmls_ray.cli.tune", "dmls_ray.execution.executor",
    ):  # fmt: skip
        importlib.import_module(module)
    gc.freeze()


def be_command(
    life: int,
    heartbeat: int,
    program: str,
    is_module: bool,
    words: list[str],
    command: list[str],
    given: Mapping[str, Any],
    standby: Mapping[str, Any],
) -> None:
    """Do what a supervisor would have a new interpreter do.

    Args:
        life: as of `live_with`.
        heartbeat: descriptor of the pipe of the heartbeat.
        program: path of the script, or name of the module.
        is_module: whether it is a module.
        words: `sys.argv` of the supervisor.
        command: its `sys.orig_argv`.
        given: what the heartbeat is given.
        standby: the fields of the standby.
    """
    use_standby(Standby(**standby))
    live_with(life)
    sys.argv, sys.orig_argv = words, command
    os.environ[CHANNEL] = channel(heartbeat, os.getppid(), given)
    if is_module:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(program, run_name="__main__")
