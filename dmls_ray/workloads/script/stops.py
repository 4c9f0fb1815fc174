"""Where a program is stopped that runs only to have its flags read: before it trains, writes or starts anything.

What it would do to files, processes and servers, Python's audit events tell, and functions of PyTorch are replaced once
it is imported. Packages may write while they are imported, as to their caches.
"""

from __future__ import annotations

import _posixsubprocess
import builtins
import importlib
import os
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType, ModuleType
from typing import Any

from dmls_ray.util.importing import is_installed

OWN_TIME_S = 20.0
"""How long a program may run, without its imports."""

_WRITES = {
    "open": "opens {} for writing",
    "os.mkdir": "makes the folder {}",
    "os.remove": "removes {}",
    "os.rmdir": "removes {}",
    "os.rename": "renames {}",
    "os.link": "links {}",
    "os.symlink": "links {}",
    "os.truncate": "changes {}",
    "os.chmod": "changes {}",
    "os.chown": "changes {}",
    "os.utime": "changes {}",
    "os.setxattr": "changes {}",
    "sqlite3.connect": "opens the database {}",
}
"""Events whose first argument is a path that is written."""
_STARTS = {
    "subprocess.Popen": "starts a process",
    "os.system": "starts a process",
    "os.posix_spawn": "starts a process",
    "os.spawn": "starts a process",
    "pty.spawn": "starts a process",
    "os.fork": "starts a process",
    "os.forkpty": "starts a process",
    "os.exec": "replaces its process",
    "os.kill": "sends a signal",
    "os.killpg": "sends a signal",
    "socket.connect": "connects to a server",
}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_STANDARD_LIBRARY = tuple({os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "platstdlib")})


def stop_before_effects(stop: Callable[[str], None], own_folder: str) -> None:
    """Call a function with what the program is about to do, from now on; it does not return, or raises.

    Args:
        stop: takes what the program would do, in words.
        own_folder: where it may write.
    """
    free = (own_folder + os.sep, "/dev/", "/proc/self/")

    def audit(event: str, given: tuple[Any, ...]) -> None:
        if event in _STARTS:
            reason = _STARTS[event]
        elif event in _WRITES and _changes_a_file(event, given):
            path = os.path.abspath(os.fsdecode(given[0]))
            if f"{path}/".startswith(free):
                return
            here = os.getcwd() + os.sep
            reason = _WRITES[event].format(path.removeprefix(here))
        else:
            return
        if not is_of_import(sys._getframe(1)):
            stop(reason)

    start = _posixsubprocess.fork_exec

    def start_process(*given: Any) -> Any:
        if not is_of_import(sys._getframe(1)):
            stop(_STARTS["subprocess.Popen"])
        return start(*given)

    sys.addaudithook(audit)
    # multiprocessing starts interpreters by it without an event.
    _posixsubprocess.fork_exec = start_process


def _changes_a_file(event: str, given: tuple[Any, ...]) -> bool:
    path = given[0]
    if not isinstance(path, str | bytes | os.PathLike) or path in (":memory:", ""):
        return False  # a descriptor, of a file that is open
    if event == "open":
        return bool(given[2] & _WRITING)
    if event == "os.mkdir":
        return not os.path.isdir(path)  # else it fails, as makedirs expects
    return event in ("os.symlink", "sqlite3.connect") or os.path.lexists(path)


def is_of_import(frame: FrameType | None) -> bool:
    """Whether an installed package is imported, and none of the user's code acts within."""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith("<frozen importlib"):
            return True
        is_of_python = file.startswith(("<frozen", *_STANDARD_LIBRARY)) and not is_installed(file)
        if not is_of_python and not is_installed(file) and file != __file__:
            return False
        frame = frame.f_back
    return False


def stop_before_training(torch: ModuleType, stop: Callable[[str], None]) -> None:
    """Call a function at the first optimizer step, backward pass or batch, and where PyTorch writes or connects."""
    import torch.distributed as dist
    import torch.utils.data as data
    from torch.optim.optimizer import register_optimizer_step_pre_hook

    def stop_with(reason: str) -> Callable[..., None]:
        return lambda *_, **__: stop(reason)

    register_optimizer_step_pre_hook(stop_with("makes an optimizer step"))
    torch.autograd.backward = stop_with("makes a backward pass")
    torch.autograd.grad = stop_with("computes gradients")
    setattr(torch, "save", stop_with("saves by torch.save"))  # noqa: B010 - which mypy does not know
    data.DataLoader.__iter__ = stop_with("reads from a DataLoader")  # type: ignore[assignment,method-assign]
    if dist.is_available():
        for module in (dist, dist.distributed_c10d):
            module.init_process_group = stop_with("makes a process group")  # type: ignore[attr-defined]


class Imports:
    """The imports of this process: what is done after some of them, and how long the outermost ones took.

    Args:
        actions: module -> what is done with it once it is imported.
    """

    def __init__(self, actions: Mapping[str, Callable[[ModuleType], None]]) -> None:
        self._waiting = dict(actions)
        self._depth = 0
        self._began = 0.0
        self._seconds = 0.0
        builtins.__import__ = self._watched(builtins.__import__)
        importlib.import_module = self._watched(importlib.import_module)

    @property
    def seconds(self) -> float:
        """Seconds that imports have taken, the one under way included."""
        return self._seconds + (time.monotonic() - self._began if self._depth else 0.0)

    def _watched(self, load: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*given: Any, **named: Any) -> Any:
            if threading.current_thread() is not threading.main_thread():
                return load(*given, **named)
            if not self._depth:
                self._began = time.monotonic()
            self._depth += 1
            try:
                return load(*given, **named)
            finally:
                self._depth -= 1
                if not self._depth:
                    self._seconds += time.monotonic() - self._began
                for name in [*self._waiting]:
                    module = sys.modules.get(name)
                    if module is not None and not getattr(module.__spec__, "_initializing", False):
                        self._waiting.pop(name)(module)

        return watched


def stop_after(seconds: float, stop: Callable[[str], None], imports: Imports) -> None:
    """Call a function in another thread once the program has run for so long, imports not counted."""

    def wait() -> None:
        began = time.monotonic()
        while (left := began + seconds + imports.seconds - time.monotonic()) > 0:
            time.sleep(max(left, 0.1))
        stop(f"runs for {seconds:g} s")

    threading.Thread(target=wait, daemon=True).start()
