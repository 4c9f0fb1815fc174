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
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from dmls_ray.util.files import atomic_replace, cache_root, open_regular

_OF_TERMINAL = re.compile(
    r"_|COLORTERM|COLUMNS|DISPLAY|GPG_TTY|LINES|OLDPWD|PWD|SHLVL|STY|TMUX\w*|WINDOW\w*|XAUTHORITY|"
    r"(SSH|TERM|VSCODE|VTE|XDG_SESSION)(_\w+)?"
)
"""Variables that differ from one terminal to the next, and on which no start depends."""

IDLE_S = 3600.0
"""How long a standby stays without a command."""

_PACKAGE = Path(__file__).parents[1]


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
        with open(self.users) as users:
            return not _lock(users)

    def write(self) -> None:
        """Let commands find it."""
        state_file().parent.mkdir(parents=True, exist_ok=True)
        with atomic_replace(state_file()) as temporary:
            temporary.touch(0o600)
            temporary.write_text(json.dumps(asdict(self)))


def state_file() -> Path:
    """The file by which commands of this user on this machine find the standby."""
    return cache_root() / f"up-{socket.gethostname()}.json"


def find_standby() -> Standby | None:
    """The standby of this user on this machine, which may have ended without notice; None without one."""
    try:
        with open_regular(state_file()) as file:
            # Commands give it their environment.
            is_own = os.fstat(file.fileno()).st_uid == os.getuid()
            return Standby(**json.load(file)) if is_own else None
    except (OSError, ValueError, TypeError):  # none, or that of another version
        return None


def variables_of_terminal() -> dict[str, str]:
    """Those variables that may be others than where the standby was started."""
    return {name: value for name, value in os.environ.items() if _OF_TERMINAL.fullmatch(name)}


def circumstances() -> dict[str, str]:
    """What the processes of a command have from this one, and what they import: its name -> a digest of it."""
    of_terminal = variables_of_terminal()
    found = {f"variable {name}": value for name, value in os.environ.items() if name not in of_terminal}
    found["Python"] = repr((sys.prefix, os.path.realpath(sys.executable), sys.version, sys.flags, sys.warnoptions))
    found["folder of installed packages"] = repr([_changed(Path(sysconfig.get_path(kind))) for kind in ("purelib", "platlib")])
    found["code of dmls_ray"] = repr(sorted(_sources()))
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
    descriptor = os.open(standby.users, os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_SH)


def used_standby() -> Standby | None:
    """The standby that this process uses."""
    return _given[0] if _given else None


@contextmanager
def ray_of_standby() -> Iterator[Standby | None]:
    """The standby that this process uses, whose Ray no other process uses within the block; None without one."""
    standby = used_standby()
    if standby is None:
        yield None
        return
    with open(standby.ray_user) as file:
        if not _lock(file):
            print("Another command uses the Ray of dmls-ray up; this one starts its own.", file=sys.stderr)
            standby = None
        yield standby


def _lock(file: IO[str]) -> bool:
    """Lock a file until it is closed, if no other process holds a lock; returns whether it is locked."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _changed(path: Path) -> tuple[str, int]:
    """A path, and when it was changed; a folder changes when something is installed in it or removed."""
    return str(path), path.stat().st_mtime_ns if path.exists() else 0


def _sources() -> Iterator[tuple[str, int]]:
    """The files of dmls_ray, and when they were changed."""
    for folder, _, names in os.walk(_PACKAGE):
        for name in names:
            if name.endswith(".py"):
                yield _changed(Path(folder, name))
