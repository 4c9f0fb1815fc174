"""`main`, the command of every sweep script: a supervisor, which starts the command again in another process.

It imports little, since the supervisor needs no more; `sweep_command` is what that other process runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NoReturn

from dmls_ray.execution.supervisor import CHANNEL, Heartbeat, Supervisor
from dmls_ray.util.interpreter import use_utf8

if TYPE_CHECKING:
    from dmls_ray.config.grid import Variant


@dataclass(frozen=True, kw_only=True)
class Preset:
    """What a sweep script asks."""

    name: str
    """Name of the results folder."""
    axis: str | None
    """Field that the sweep asks about; None for the first that varies."""
    axes: Mapping[str, Any]
    """Values of fields for which no flag is given."""
    question: str = ""
    """Question that the sweep asks; shown by --help. Without one, the report asks about what varies."""
    description: str = ""
    """Text that --help shows instead."""
    variants: Sequence[Variant] = ({},)
    """Fields that are changed together at each point of the grid. A flag for any of them asks for a grid instead."""
    options: Mapping[str, Any] | None = None
    """Values of options for which no flag is given."""
    workload: str | None = None
    """Workload that runs unless a flag names another; by default image classification."""
    given: Sequence[str] = ()
    """Words that stand before those of the command line: `--train train.py`."""
    arguments: Sequence[str] = ()
    """What a script has after `--` where the command line has nothing."""
    ending: str = "dmls_ray.cli.sweep_output:show_results"
    """Function that prints what the sweep has found: `module:function`."""
    layout: str | None = None
    """Name of a table in `analysis.table.layouts` that is shown instead of the sweep's."""
    formats: Sequence[str] = ("text", "json")
    """What `--format` takes."""
    command: str = "dmls_ray.cli.sweep_command:sweep"
    """`module:function` that does what is asked, and returns the exit code."""


def main(preset: Preset | str, arguments: Sequence[str] | None = None, *, skipped: int = 0) -> NoReturn:
    """Run a sweep from the command line, and exit.

    The sweep runs in another process, which is started again when Ray or the process itself dies; see `--restarts`. The
    statements of a script above this call run in both processes.

    The exit code is 0 when every run has an answer (ok, oom, diverged, skipped), 1 when one ended in error, killed
    or timeout or could not be written or uploaded, or when all were skipped, 2 for bad input, 75 when Ray was lost and
    further restarts are in vain, and 130 after Ctrl-C.

    Args:
        preset: what the script asks, or the name of one of `PRESETS`.
        arguments: the command line without the program, to run the sweep in this process; by default that of sys.argv.
        skipped: words of sys.argv after the program that say what is run, as `sweep train.py`.
    """
    if arguments is None:
        use_utf8()
    if is_to_be_supervised(arguments):
        sys.exit(Supervisor().run())
    heartbeat = Heartbeat.of_supervisor() if CHANNEL in os.environ else Heartbeat()
    from dmls_ray.cli.sweep_command import run

    is_of_argv = arguments is None
    words = sys.argv[1 + skipped :] if is_of_argv else list(arguments or ())
    run(preset, words, heartbeat, program=sys.argv[: 1 + skipped])


def is_to_be_supervised(arguments: Sequence[str] | None) -> bool:
    """Whether this is the process that a user starts, so that its command can be given again: the supervisor."""
    words = sys.argv[1:]
    # Not so where another program runs the script.
    is_command = sys.orig_argv[len(sys.orig_argv) - len(words) :] == words
    return arguments is None and is_command and CHANNEL not in os.environ
