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
from filelock import FileLock

from dmls_ray.cli.as_copy import BE_CURRENT, PREPARE
from dmls_ray.cli.console import EXIT_OK, Console, Parser, say
from dmls_ray.util.errors import ClusterError
from dmls_ray.util.interpreter import command_of_call
from dmls_ray.util.standby import IDLE_S, READY, Standby, circumstances, find_standby, has_relative_path, state_file
from dmls_ray.util.template_copy import start_copy
from dmls_ray.util.template_request import COMMANDS

_HOLDER = "dmls_ray.cluster.standby"
"""Module of the process that holds it, which loads Ray."""

_END_TIMEOUT_S = 30.0
"""How long its processes may take to end."""


def up_arguments(parser: Parser) -> None:
    """The cluster."""
    parser.add_argument(
        "--address", metavar="TEXT",
        help="Ray cluster to hold it on; without it RAY_ADDRESS, a cluster that runs on this machine, or a new one",
    )  # fmt: skip


def up(args: argparse.Namespace, console: Console) -> int:
    """Hold Ray and what commands import, so that they start at once.

    Commands that start runs find it: they start in a second or two instead of five. They use it in the same environment
    and with the same packages, where no other cluster is named or running.

    On a cluster that is joined, it holds on each machine what ranks import.
    """
    # Loads more than down needs.
    from dmls_ray.cluster.connect import cluster_at

    joined = cluster_at(args.address)
    with _alone():
        if running := _running():
            standby, _ = running
            if standby.joined == joined and not standby.differences() and _is_current(standby):
                say(console, f"It is up. {_way_out()}")
                return EXIT_OK
            _end(*running, console)
        began = time.monotonic()
        _start(joined)
    where = f" on the cluster at {joined}" if joined else ""
    say(console, f"Up{where} after {time.monotonic() - began:.1f} s. {_way_out()}")
    return EXIT_OK


def _start(joined: str | None) -> None:
    """Start the process that holds it, and wait until commands find it.

    Args:
        joined: address of the cluster to join; None for a Ray of its own.

    Raises:
        ClusterError: it cannot be started.
    """
    reader, writer = os.pipe()
    path = sys.path if sys.flags.safe_path else sys.path[1:]
    given = {"circumstances": circumstances(), "path": path, "joined": joined}
    command = command_of_call(_HOLDER, "hold", (writer, PREPARE, str(state_file()), given))
    place, none = os.getcwd() if has_relative_path() else "/", subprocess.DEVNULL
    subprocess.Popen(
        command, cwd=place, pass_fds=[writer], start_new_session=True, stdin=none, stdout=none, stderr=none
    )
    os.close(writer)
    with open(reader, encoding="utf-8") as answer:
        # It stays open until the process has answered, or has ended.
        found = answer.readline()
    if found != READY:
        raise ClusterError(found or "Ray could not be started; dmls-ray sweep with --verbose shows what it prints.")


def _alone() -> FileLock:
    """A lock with which no other `up` or `down` of this user on this machine acts."""
    file = state_file().with_suffix(".lock")
    file.parent.mkdir(parents=True, exist_ok=True)
    return FileLock(file)


def _is_current(standby: Standby) -> bool:
    """Whether its templates serve, and have what a new interpreter would import."""
    copy = start_copy(COMMANDS, BE_CURRENT, (), folder=standby.templates, path=["", *standby.path])
    return copy is not None


def _way_out() -> str:
    return f"It ends with dmls-ray down, or after {IDLE_S / 60:.0f} minutes without a command."


def down_arguments(parser: Parser) -> None:
    """None."""


def down(_: argparse.Namespace, console: Console) -> int:
    """End what up holds, once the commands that use it have ended."""
    with _alone():
        if running := _running():
            _end(*running, console)
        else:
            say(console, "Nothing is up.")
    return EXIT_OK


def _running() -> tuple[Standby, psutil.Process] | None:
    """The standby of this user on this machine, and the process that holds it; None where there is no such process."""
    standby = find_standby()
    if standby is None:
        return None
    with suppress(psutil.Error):
        holder = psutil.Process(standby.holder)
        # The id may be another process's by now.
        if any(_HOLDER in word for word in holder.cmdline()):
            return standby, holder
    return None


def _end(standby: Standby, holder: psutil.Process, console: Console) -> None:
    """End a standby; one that commands use ends with the last of them."""
    is_used = standby.is_used()
    holder.send_signal(signal.SIGTERM)
    if is_used:
        say(console, "It ends with the commands that use it.")
        return
    try:
        holder.wait(_END_TIMEOUT_S)
    except psutil.TimeoutExpired:  # it is stopped, say
        for process in (*holder.children(recursive=True), holder):
            process.kill()
        state_file().unlink(missing_ok=True)
    say(console, "Down.")
