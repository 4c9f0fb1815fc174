"""`Call`: a command that starts runs, from its words to its exit code; a supervisor starts it again in another process.

This module loads little, since the supervisor needs no more than the words.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from dmls_ray.cli.as_copy import copy_of_standby
from dmls_ray.execution.supervisor import CHANNEL, EXIT_LOST, Heartbeat, Supervisor, stopped_text
from dmls_ray.util.errors import ClusterError, ClusterLostError, InputError, NotKeptError, WorkerGroupError
from dmls_ray.util.interpreter import exit_now, stop_on_signals, use_utf8
from dmls_ray.util.standby import used_standby

EXIT_TIMEOUT_S = 60.0
"""How long the end of the process may take once the command is over."""


@dataclass
class Call:
    """A command line in the process that does what it asks."""

    name: str
    """The words that say what is done; lines about bad input begin with them."""
    words: list[str]
    """The words that follow."""
    heartbeat: Heartbeat
    """Reports to the supervisor."""

    def take(self, count: int) -> list[str]:
        """Move the first words to the name; returns them."""
        taken, self.words = self.words[:count], self.words[count:]
        self.name = " ".join([self.name, *taken])
        return taken


def start(command: Callable[[Call], int], name: str, arguments: Sequence[str] | None = None) -> NoReturn:
    """Do what a command line asks, and exit.

    The command runs in another process, which is started again when Ray or the process itself dies; see `--restarts`.

    The exit code is 0 when every run has an answer (ok, oom, diverged, skipped), 1 when one ended in error, killed
    or timeout or could not be written or uploaded, or when all were skipped, 2 for bad input, 75 when Ray was lost and
    further restarts are in vain, and 130 after Ctrl-C.

    Args:
        command: does what is asked, and returns the exit code.
        name: the name of the program.
        arguments: the command line without the program, to do it in this process; by default that of sys.argv.
    """
    if arguments is None:
        use_utf8()
    if is_to_be_supervised(arguments):
        sys.exit(Supervisor(copy_of_standby).run())
    words = sys.argv[1:] if arguments is None else arguments
    heartbeat = Heartbeat.of_supervisor() if CHANNEL in os.environ else Heartbeat()
    stop_on_signals()
    if heartbeat.is_supervised and used_standby() is None and _starts_ray(words):
        from dmls_ray.cluster.templates import prepare_templates

        prepare_templates()
    code = 1
    try:
        code = _exit_code(command, Call(name, list(words), heartbeat))
    except ClusterLostError as error:
        heartbeat.report(ended=True, code=EXIT_LOST, reason=str(error).partition(". ")[0], within_s=None)
        if not heartbeat.is_supervised:
            print(error, file=sys.stderr)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        # At a normal exit, Ray would wait for the head.
        os._exit(EXIT_LOST)
    finally:
        with contextlib.suppress(KeyboardInterrupt):  # the supervisor is gone, and this process ends anyway
            heartbeat.report(ended=True, code=code, within_s=EXIT_TIMEOUT_S)
    if heartbeat.is_supervised:
        exit_now(code)
    sys.exit(code)


def _starts_ray(words: Sequence[str]) -> bool:
    """Whether a command line is likely to start a cluster here; what it means is known only after imports."""
    return not {"-h", "--help", "--dry-run"} & set(words) and not _names_cluster(words)


def _names_cluster(words: Sequence[str]) -> bool:
    given = [os.environ.get("RAY_ADDRESS", "")]
    for word, next_word in itertools.pairwise([*words, ""]):
        if word == "--address":
            given.append(next_word)
        elif word.startswith("--address="):
            given.append(word.partition("=")[2])
    return given[-1] not in ("", "local")


def is_to_be_supervised(arguments: Sequence[str] | None) -> bool:
    """Whether this is the process that a user starts, so that its command can be given again: the supervisor."""
    words = sys.argv[1:]
    # Not so where another program runs the script.
    is_command = sys.orig_argv[len(sys.orig_argv) - len(words) :] == words
    return arguments is None and is_command and CHANNEL not in os.environ


def _exit_code(command: Callable[[Call], int], call: Call) -> int:
    """The exit code of a command; one line says why it did not run or did not end."""
    from dmls_ray.cli.console import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_INTERRUPTED, print_error

    try:
        return command(call)
    except SystemExit as ended:  # by the parser
        return int(ended.code or 0)
    except InputError as error:
        if call.heartbeat.is_restart and isinstance(error, ClusterError):
            raise ClusterLostError(str(error)) from error
        return print_error(f"{call.name}: {' '.join(str(error).split())}", EXIT_BAD_INPUT)
    except (NotKeptError, WorkerGroupError) as error:
        return print_error(f"{call.name}: {error}", EXIT_FAILED)
    except KeyboardInterrupt:
        if call.heartbeat.is_supervised:
            return EXIT_INTERRUPTED
        reported = call.heartbeat.reported
        line = stopped_text(reported.get("folder", ""), is_fresh=reported.get("is_fresh", False))
        return print_error(line, EXIT_INTERRUPTED)
