"""`Standby`: what `dmls-ray up` holds ready on this machine, and whether a command would start the same.

Loads little, since every command that starts runs looks for it.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import resource
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from dmls_ray.util.files import atomic_replace, cache_root, open_regular, try_lock
from dmls_ray.util.template_request import know_templates
from dmls_ray.util.text import utf8_safe

_OF_TERMINAL = re.compile(
    r"_|COLORTERM|COLUMNS|DISPLAY|GPG_TTY|LINES|OLDPWD|PWD|SHLVL|STY|TMUX\w*|WINDOW\w*|XAUTHORITY|"
    r"(GNOME_TERMINAL|KITTY|KONSOLE|SSH|TERM|VSCODE|VTE|WEZTERM|XDG_SESSION)(_\w+)?"
)
"""Variables that differ from one terminal to the next, and on which no start depends."""

READY = "ready"
"""What the process of `up` says once commands find the standby."""

IDLE_S = 3600.0
"""How long a standby stays without a command."""


@dataclass(frozen=True)
class Standby:
    """What the process of `dmls-ray up` holds."""

    holder: int
    """Id of that process."""
    address: str
    """HOST:PORT of its Ray."""
    templates: str
    """Folder of the sockets of its templates."""
    parts: Mapping[str, int]
    """Processes that its Ray cannot do without, by their name for a person -> id."""
    circumstances: Mapping[str, str]
    """As of `circumstances` when it was started."""
    path: Sequence[str]
    """The module search path of commands, after the folder of their program."""
    joined: str | None = None
    """Address of the cluster that its Ray is, as it was given; None where its Ray was started here."""

    @property
    def users(self) -> Path:
        """A file that each command holds a shared lock on while it uses the standby."""
        return Path(self.templates) / "users"

    @property
    def ray_user(self) -> Path:
        """A file that the command holds a lock on whose ranks run in the Ray of the standby."""
        return Path(self.templates) / "ray_user"

    def differences(self) -> list[str]:
        """What is different for this process, where a start of its own could have another result."""
        now = circumstances()
        names = [*now, *(name for name in self.circumstances if name not in now)]
        return [name for name in names if now.get(name) != self.circumstances.get(name)]

    def is_used(self) -> bool:
        """Whether a command uses it."""
        with open(self.users, "rb") as users:
            return not try_lock(users)

    def write(self, file: Path) -> None:
        """Let commands find it by this file."""
        with atomic_replace(file) as temporary:
            temporary.touch(0o600)
            temporary.write_text(json.dumps(asdict(self)), encoding="utf-8")


def state_file() -> Path:
    """The file by which commands of this user on this machine find the standby."""
    return Path(os.path.abspath(cache_root())) / f"up-{socket.gethostname()}.json"


def find_standby() -> Standby | None:
    """The standby of this user on this machine, which may have ended without notice; None without one."""
    try:
        with open_regular(state_file()) as file:
            # Commands give it their environment.
            is_own = os.fstat(file.fileno()).st_uid == os.getuid()
            return Standby(**json.load(file)) if is_own else None
    except (OSError, ValueError, TypeError, RuntimeError):  # none, that of another version, or no home folder
        return None


def variables_of_terminal() -> dict[str, str]:
    """Those variables that may be others than where the standby was started."""
    return {name: utf8_safe(value) for name, value in os.environ.items() if _OF_TERMINAL.fullmatch(name)}


def has_relative_path() -> bool:
    """Whether modules are searched for in the working folder, or below it."""
    given = os.environ.get("PYTHONPATH", "")
    return bool(given) and not all(map(os.path.isabs, given.split(os.pathsep)))


def circumstances() -> dict[str, str]:
    """What the processes of a command have from this one: its name -> a digest of it."""
    of_terminal = variables_of_terminal()
    found = {f"variable {name}": value for name, value in os.environ.items() if name not in of_terminal}
    found["Python"] = repr((sys.prefix, os.path.realpath(sys.executable), sys.version, sys.flags, sys.warnoptions))
    if has_relative_path():
        found["working folder, which PYTHONPATH has,"] = os.getcwd()
    found["set of cores"] = repr(os.sched_getaffinity(0) if sys.platform == "linux" else None)
    found["user"] = repr((os.getuid(), os.getgid(), os.getgroups()))
    kinds = sorted(name for name in dir(resource) if name.startswith("RLIMIT_"))
    found["ulimit"] = repr([resource.getrlimit(getattr(resource, kind)) for kind in kinds])
    found["nice"] = repr(os.getpriority(os.PRIO_PROCESS, 0))
    mask = os.umask(0o077)
    os.umask(mask)
    found["umask"] = repr(mask)
    return {name: hashlib.sha256(os.fsencode(value)).hexdigest()[:16] for name, value in found.items()}


_given: list[Standby] = []


def use_standby(standby: Standby) -> None:
    """Let this process, which is a copy of one of its templates, use it; the standby stays as long as the process."""
    _given.append(standby)
    know_templates(standby.templates)
    descriptor = os.open(standby.users, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)


def used_standby() -> Standby | None:
    """The standby that this process uses."""
    return _given[0] if _given else None


@contextmanager
def ray_of_standby() -> Iterator[Standby | None]:
    """The standby that this process uses, whose Ray was started here and serves no other process within the block;
    None without one.
    """
    standby = used_standby()
    if standby is None or standby.joined is not None:
        yield None
        return
    with open(standby.ray_user, "rb") as file:
        if not try_lock(file):
            print("Another command uses the Ray of dmls-ray up; this one starts its own.", file=sys.stderr)
            standby = None
        yield standby
