"""`dmls-ray`: its commands, and the module of each, which is loaded when the command is chosen.

Those of `STARTING` run a sweep. The others load neither PyTorch nor Ray; but for `kubernetes`, `up` and `down` they
read the results of sweeps, also in a folder that was copied from a cluster.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, NoReturn

from dmls_ray.cli.call import Call, start
from dmls_ray.util.errors import InputError
from dmls_ray.util.interpreter import discard_output, gc_disabled, use_utf8

if TYPE_CHECKING:
    from dmls_ray.cli.console import Parser

STARTING = {
    "sweep": ("sweep_command", "Measure each combination of the flags of a training script"),
    "tune": ("tune", "Find the fastest settings of a training script"),
    "ab": ("ab", "Say whether one revision of a script or command is slower than another"),
    "same": ("same", "Say whether settings of a training script train the same, by the losses of its steps"),
    "doctor": ("doctor", "Measure which differences this machine can show"),
}
PLANNING = {
    "kubernetes": ("kubernetes", "Print a RayJob that runs a sweep on Kubernetes, for kubectl apply"),
}
COMMANDS = {
    **STARTING,
    **PLANNING,
    "up": ("commands.standby", "Hold Ray and what commands import, so that they start at once"),
    "down": ("commands.standby", "End what up holds"),
    "report": ("commands.files", "Write the report of a sweep again: report.html, one file that needs no network"),
    "table": ("commands.tables", "Print the table of a sweep and its answer, or a table for one question"),
    "figures": ("commands.files", "Draw the figures of a sweep as PNG, SVG and PDF"),
    "compare": (
        "commands.tables",
        "Compare two sweeps: which configurations are faster or slower in B than in A, beyond chance",
    ),
    "advise": ("commands.tables", "Rank the configurations of a sweep by an objective, with intervals and verdicts"),
    "ls": ("commands.runs", "List the sweeps below a folder"),
    "show": ("commands.runs", "Show one run: its configuration, outcome, phases, epochs and ranks, and its log"),
    "skill": ("commands.skill", "Print the instructions for agents; skill install writes them where agents look"),
    "export": ("commands.files", "Write runs, ranks and epochs of a sweep as files for other programs"),
    "tensorboard": ("commands.files", "Write the files of TensorBoard again, from the records"),
    "copy": (
        "commands.files",
        "Add the runs of a sweep to another folder or URI; existing runs stay, and no run is added twice",
    ),
}
"""Each command -> its module in `dmls_ray.cli`, and what it does, in the order of --help.

The module has a function of this name, which returns the exit code. Those of `STARTING` and `PLANNING`, which have the
flags of a sweep, take a `Call`; the others have the flags that `<command>_arguments` adds.
"""

_DESCRIPTION = (
    "Measure training with PyTorch, and read the results of sweeps: tables, figures, comparisons and advice. Start "
    "with: dmls-ray sweep train.py --batch-size 16 32"
)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one of the commands, and exit: 0, 2 for bad input, 3 where `compare` was to fail and does, 130 after Ctrl-C.

    Args:
        arguments: the command line, without the program; sys.argv's by default.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    name = "dmls-ray"
    if arguments is None and words[:1] and words[0] in STARTING:
        start(_do, name)
    if words[:1] and words[0] in PLANNING:
        start(_do, name, words)
    from dmls_ray.cli.console import EXIT_BAD_INPUT, EXIT_INTERRUPTED, EXIT_OK, Console, parse, print_error

    if arguments is None:
        use_utf8()
    try:
        given = parse(_parser(name, words), words)
        name = given.parser.prog
        with gc_disabled():
            code = given.command(given, Console()) or EXIT_OK
        sys.stdout.flush()
    except InputError as error:
        code = print_error(f"{name}: {' '.join(str(error).split())}", EXIT_BAD_INPUT)
    except BrokenPipeError:  # `| head` has read enough
        discard_output(sys.stdout)
        code = EXIT_OK
    except OSError as error:
        where, why = error.filename or "the output", error.strerror or error
        way_out = "check its permissions and the free space, or name another place"
        code = print_error(f"{name}: {where} cannot be used ({why}); {way_out}.", EXIT_BAD_INPUT)
        try:
            sys.stdout.flush()
        except OSError:
            discard_output(sys.stdout)
    except KeyboardInterrupt:
        code = print_error(f"{name}: stopped.", EXIT_INTERRUPTED)
    sys.exit(code)


def _do(call: Call) -> int:
    """Do what the command that the first word names does."""
    [command] = call.take(1)
    module = importlib.import_module(f"dmls_ray.cli.{COMMANDS[command][0]}")
    code: int = getattr(module, command)(call)
    return code


def _parser(name: str, words: Sequence[str]) -> Parser:
    """The parser of all commands, with the flags of the one that the words begin with."""
    from dmls_ray.cli.console import EXIT_CODES, Parser

    parser = Parser(prog=name, description=_DESCRIPTION, epilog=EXIT_CODES)
    parser.add_argument("--version", action="version", version=f"dmls_ray {version('dmls_ray')}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
    for command, (module_name, summary) in COMMANDS.items():
        subparser = subparsers.add_parser(command, help=summary)
        if command in words[:1] and command not in STARTING and command not in PLANNING:
            module = importlib.import_module(f"dmls_ray.cli.{module_name}")
            run = getattr(module, command)
            subparser.description = inspect.getdoc(run)
            getattr(module, f"{command}_arguments")(subparser)
            subparser.set_defaults(command=run, parser=subparser)
    return parser
