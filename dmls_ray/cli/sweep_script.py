"""`main`, the command of every sweep script. It loads little, since the supervisor of a sweep needs no more."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from dmls_ray.cli.call import Call, start
from dmls_ray.util.importing import leave_out_folder

if TYPE_CHECKING:
    from dmls_ray.config.sweep_file import Preset


def main(preset: Preset | str, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a sweep from the command line, and exit as `start` says. The script runs in both of its processes.

    Args:
        preset: what the script asks, or the name of one of `PRESETS`.
        arguments: the command line without the program, to run the sweep in this process; by default that of sys.argv.
    """
    program = sys.argv[0]

    def ask(call: Call) -> int:
        from dmls_ray.cli.presets import PRESETS
        from dmls_ray.cli.sweep_command import answer

        if not isinstance(preset, str):
            return answer(preset, call)
        # A module of the user may have the name of a script, as optimizer.py.
        leave_out_folder(os.path.dirname(os.path.realpath(program)))
        return answer(PRESETS[preset], call)

    start(ask, os.path.basename(program), arguments)
