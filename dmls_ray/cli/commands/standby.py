"""Commands that hold Ray and what commands import, and end it: `up`, `down`."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress

import psutil

from dmls_ray.cli.as_copy import PREPARE
from dmls_ray.cli.console import EXIT_OK, Console, Parser, say
from dmls_ray.util.errors import ClusterError
from dmls_ray.util.standby import IDLE_S, Standby, circumstances, find_standby

_HOLDER = "dmls_ray.cluster.standby"
"""Module of the process that holds it, which loads Ray."""

_END_TIMEOUT_S = 30.0
"""How long its processes may take to end."""


def up_arguments(parser: Parser) -> None:
    """None."""


def up(_: argparse.Namespace, console: Console) -> int:
    """Hold Ray and what commands import, so that they start at once.

    Commands that start runs find it: they start in a second or two instead of five. They use it in the same environment
    and with the same packages, where no other cluster is named or running.
    """
    standby = find_standby()
    if standby is not None and _holder(standby) is not None:
        if not standby.differences():
            say(console, f"It is up. {_way_out()}")
            return EXIT_OK
        _end(standby, console)
    began = time.monotonic()
    reader, writer = os.pipe()
    given = (writer, PREPARE, circumstances())
    program = f"import sys; sys.path[:] = {sys.path!r}; from {_HOLDER} import hold; hold(*{given!r})"
    none = subprocess.DEVNULL
    subprocess.Popen(
        [sys.executable, "-c", program], cwd="/", pass_fds=[writer], start_new_session=True, stdin=none, stdout=none,
        stderr=none,
    )  # fmt: skip
    os.close(writer)
    with open(reader) as answer:
        reason = answer.read()
    standby = find_standby()
    if reason or standby is None or _holder(standby) is None:
        raise ClusterError(reason or "Ray could not be started; dmls-ray sweep with --verbose shows what it prints.")
    say(console, f"Up after {time.monotonic() - began:.1f} s. {_way_out()}")
    return EXIT_OK


def _way_out() -> str:
    return f"It ends with dmls-ray down, or after {IDLE_S / 60:.0f} minutes without a command."


def down_arguments(parser: Parser) -> None:
    """None."""


def down(_: argparse.Namespace, console: Console) -> int:
    """End what up holds, once the commands that use it have ended."""
    standby = find_standby()
    if standby is None or _holder(standby) is None:
        say(console, "Nothing is up.")
        return EXIT_OK
    _end(standby, console)
    return EXIT_OK


def _holder(standby: Standby) -> psutil.Process | None:
    """The process that holds a standby; None where it has ended."""
    with suppress(psutil.Error):
        process = psutil.Process(standby.holder)
        # The id may be another process's by now.
        if any(_HOLDER in word for word in process.cmdline()):
            return process
    return None


def _end(standby: Standby, console: Console) -> None:
    """End a standby; one that commands use ends with the last of them."""
    holder = _holder(standby)
    if holder is None:
        return
    is_used = standby.is_used()
    holder.send_signal(signal.SIGTERM)
    if is_used:
        say(console, "It ends with the commands that use it.")
        return
    with suppress(psutil.TimeoutExpired):
        holder.wait(_END_TIMEOUT_S)
    say(console, "Down.")
