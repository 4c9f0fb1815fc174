"""`dmls-ray`: its commands, and the module of each.

Those of `STARTING` run a sweep. Those of `COMMANDS` start nothing: they read the results of sweeps, also in a folder
that was copied from a cluster, and load neither PyTorch nor Ray.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import NoReturn

from dmls_ray.cli.console import (
    EXIT_BAD_INPUT,
    EXIT_CODES,
    EXIT_INTERRUPTED,
    EXIT_OK,
    Console,
    Parser,
    parse,
    print_error,
)
from dmls_ray.util.errors import InputError
from dmls_ray.util.interpreter import discard_output, gc_disabled, use_utf8

COMMANDS = {
    "report": "files",
    "table": "tables",
    "figures": "files",
    "compare": "tables",
    "advise": "tables",
    "ls": "runs",
    "show": "runs",
    "export": "files",
    "tensorboard": "files",
    "copy": "files",
    "published": "tables",
}
"""Each command -> its module in `dmls_ray.cli.commands`, in the order of --help."""

STARTING = {
    "sweep": ("dmls_ray.cli.sweep_what:sweep_what", "Measure each combination of the flags of a training script"),
    "tune": ("dmls_ray.cli.sweep_what:tune_what", "Find the fastest settings of a training script"),
    "ab": ("dmls_ray.cli.sweep_what:ab_what", "Say whether one revision of a training script is slower than another"),
    "doctor": ("dmls_ray.cli.doctor:doctor", "Measure which differences this machine can show"),
}
"""Each command that starts runs -> its function, which exits, and what it does."""

_DESCRIPTION = (
    "Measure training with PyTorch, and read the results of sweeps: tables, figures, comparisons and advice. Start "
    "with: dmls-ray sweep train.py --batch-size 16 32"
)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one of the commands, and exit: 0, 2 for bad input, 3 where `compare` was to fail and does, 130 after Ctrl-C.

    Args:
        arguments: the command line, without the program; sys.argv's by default.
    """
    if arguments is None:
        use_utf8()
    name = "dmls-ray"
    if arguments is None and sys.argv[1:2] and sys.argv[1] in STARTING:
        pkgutil.resolve_name(STARTING[sys.argv[1]][0])(sys.argv[2:])
    words = list(sys.argv[1:] if arguments is None else arguments)
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


def _parser(name: str, words: Sequence[str]) -> Parser:
    """The parser of the command that the words begin with, or of all commands."""
    parser = Parser(prog=name, description=_DESCRIPTION, epilog=EXIT_CODES)
    parser.add_argument("--version", action="version", version=f"dmls_ray {version('dmls_ray')}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
    for command, (_, summary) in STARTING.items():
        subparsers.add_parser(command, help=summary)
    # The other commands' modules are not loaded.
    for command in {*words[:1]} & COMMANDS.keys() or COMMANDS:
        module = importlib.import_module(f"dmls_ray.cli.commands.{COMMANDS[command]}")
        run = getattr(module, command)
        description = inspect.getdoc(run) or ""
        summary = description.partition("\n")[0].rstrip(".")
        subparser = subparsers.add_parser(command, help=summary, description=description)
        getattr(module, f"{command}_arguments")(subparser)
        subparser.set_defaults(command=run, parser=subparser)
    return parser
