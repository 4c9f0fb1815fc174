"""A command in a copy of a template that `dmls-ray up` holds: its start by a supervisor, and the copy.

This module loads little, since every supervisor loads it.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import os
import runpy
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any

from dmls_ray.execution.supervisor import CHANNEL, END_TIMEOUT_S, channel, print_aside
from dmls_ray.util.interpreter import CHILD_SUBREAPER, kill_descendants, prctl
from dmls_ray.util.standby import Standby, find_standby, use_standby
from dmls_ray.util.template_copy import Copy, live_with, start_copy
from dmls_ray.util.template_request import COMMANDS

PREPARE, BE_CURRENT = f"{__name__}:prepare", f"{__name__}:be_current"
"""What imports all that a command needs, in the template; and what begins in a copy if that is as it would be now."""


def copy_of_standby(heartbeat: int, given: Mapping[str, Any]) -> Copy | None:
    """Start the command of this process in a copy of a template of the standby; None where there is none that suits.

    Args:
        heartbeat: descriptor of the pipe for it.
        given: what it is given.
    """
    standby = find_standby()
    if standby is None:
        return None
    place = len(sys.orig_argv) - len(sys.argv)
    options, program = sys.orig_argv[1:place], sys.orig_argv[place]
    reasons = [f"{name} is another than where it was given" for name in standby.differences()]
    if options not in ([], ["-m"]) or program.startswith("-"):
        reasons.append(f"Python is started by {shlex.join(sys.orig_argv[: place + 1])}")
    if None in (sys.stdin, sys.stdout, sys.stderr) or not _is_utf8():
        reasons.append("a standard stream is closed, or the name of a file or a variable is not UTF-8")
    if reasons:
        print_aside(f"dmls-ray up is not used: {reasons[0]}.")
        return None
    first = [os.getcwd() if options else os.path.dirname(os.path.realpath(program))]
    if sys.flags.safe_path:
        first = []
    copy = start_copy(
        COMMANDS, f"{__name__}:be_command",
        [program, bool(options), sys.argv, sys.orig_argv, dict(given), asdict(standby)],
        folder=standby.templates, descriptors=[heartbeat], path=[*first, *standby.path],
    )  # fmt: skip
    if copy is not None:  # else the standby has ended, or the copy has said why
        print_aside("Processes of dmls-ray up are used.")
    return copy


def _is_utf8() -> bool:
    """Whether a copy can be given all texts that this process has."""
    try:
        " ".join([os.getcwd(), *sys.argv, *os.environ.values()]).encode()
    except (UnicodeEncodeError, OSError):
        return False
    return True


# --- in the copy --------------------------------------------------------------------------------------------


def prepare() -> None:
    """Import what commands need."""
    for module in (
        "pandas", "rich.live", "scipy.stats", "dmls_ray.cli.ab", "dmls_ray.cli.doctor", "dmls_ray.cli.main",
        "dmls_ray.cli.sweep_command", "dmls_ray.cli.sweep_script", "dmls_ray.cli.tune", "dmls_ray.execution.executor",
    ):  # fmt: skip
        importlib.import_module(module)
    gc.freeze()
    files = {str(getattr(module, "__file__", "")) for module in list(sys.modules.values())}
    _loaded.update({file: _changed_at(file) for file in files})


_loaded: dict[str, int | None] = {}
"""Files of the modules that the template has loaded -> when they were changed."""


def _changed_at(file: str) -> int | None:
    """When a file was changed; None without one."""
    try:
        return os.stat(file).st_mtime_ns
    except OSError:
        return None


def _is_current() -> bool:
    """Whether a new interpreter would import what the template has; says what it would import otherwise."""
    changed = [file for file, when in _loaded.items() if _changed_at(file) != when]
    for file in (*changed, *_own_modules(sys.path[0])):
        print_aside(f"dmls-ray up is not used: it has not loaded {file} as it is now; dmls-ray up starts it anew.")
        return False
    return True


def _own_modules(folder: str) -> Iterator[str]:
    """The modules in the folder of the program whose names the template has loaded from elsewhere."""
    with contextlib.suppress(OSError):
        for entry in os.scandir(folder):
            name, _, kind = entry.name.partition(".")
            is_module = kind == "py" or kind.endswith("so") or os.path.exists(os.path.join(entry.path, "__init__.py"))
            loaded = getattr(sys.modules.get(name), "__file__", None)
            if is_module and loaded and not loaded.startswith(entry.path.removesuffix(f".{kind}")):
                yield entry.path


def be_current(life: int) -> None:
    """Begin if the template has what a new interpreter would import.

    Args:
        life: as of `live_with`.
    """
    if _is_current():
        live_with(life)


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
    if not _is_current():
        return
    use_standby(Standby(**standby))
    live_with(life)
    # What the command leaves ends with it, as below a supervisor that is its parent.
    prctl(CHILD_SUBREAPER, 1)
    atexit.register(kill_descendants, END_TIMEOUT_S)
    sys.argv, sys.orig_argv = words, command
    os.environ[CHANNEL] = channel(heartbeat, None, given)
    if is_module:
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(os.path.abspath(program), run_name="__main__")
