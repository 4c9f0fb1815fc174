"""Kinds of faults. A new kind is a class with `strike` and `restore`, and an entry in `KINDS`."""

from __future__ import annotations

import contextlib
import random
import signal
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import psutil

from benchmarks.chaos.command import Command
from benchmarks.chaos.places import Disk, Lanes, Launched, Machines, Memory, Place, Store

MIB = 2**20


class NoVictimError(Exception):
    """There is nothing to strike at this moment."""


@dataclass(kw_only=True)
class Moment:
    """What a fault finds when it strikes."""

    place: Any
    command: Command
    chance: random.Random
    pause_s: float


class Fault(ABC):
    """One fault, from its strike to its end."""

    lasts_s = 0.0
    """Seconds until it is restored; 0 if there is nothing to restore."""

    @abstractmethod
    def strike(self, now: Moment) -> str:
        """Do it; returns what was struck.

        Raises:
            NoVictimError: nothing was done, and it may be possible later.
        """

    def restore(self, now: Moment) -> None:  # noqa: B027 - a killed process has nothing to restore
        """End it."""


# --- processes ------------------------------------------------------------------------------------------------

Words = list[str]


def _is_rank(words: Words) -> bool:
    is_launched = "dmls_ray.launchers" in words and "torch.distributed.run" not in words
    return words[0].startswith("ray::RayTrainWorker") or is_launched


VICTIMS: dict[str, Callable[[Words], bool]] = {
    "rank": _is_rank,
    "broker": lambda words: words[0].startswith("ray::Broker"),
    "Train's controller": lambda words: words[0].startswith("ray::TrainController"),
    "Tune's actor": lambda words: words[0].startswith("ray::RunTrainable"),
    "sweep": lambda words: any("/sweeps/" in word for word in words),
    "raylet": lambda words: words[0].endswith("/raylet"),
    "GCS": lambda words: words[0].endswith("/gcs_server"),
    "launcher's agent": lambda words: "torch.distributed.run" in words,
}


def victim(name: str, now: Moment) -> psutil.Process:
    """A process of the sweep.

    Raises:
        NoVictimError: there is none.
    """
    supervisor = now.command.supervisor
    if name == "supervisor":
        found = [supervisor] if supervisor else []
    else:
        found = [process for process, words in now.place.processes() if VICTIMS[name](words)]
        found = [process for process in found if process != supervisor]
    if not found:
        raise NoVictimError(name)
    return now.chance.choice(sorted(found, key=lambda process: process.pid))


class Signal(Fault):
    """A signal to a process: SIGKILL; or SIGSTOP, and SIGCONT later."""

    def __init__(self, name: str, number: signal.Signals) -> None:
        self._name, self._number = name, number

    def strike(self, now: Moment) -> str:
        self._process = victim(self._name, now)
        try:
            self._process.send_signal(self._number)
        except psutil.NoSuchProcess as error:
            raise NoVictimError(self._name) from error
        if self._number == signal.SIGSTOP:
            self.lasts_s = now.pause_s
        return self._name

    def restore(self, now: Moment) -> None:
        with contextlib.suppress(psutil.NoSuchProcess):
            self._process.resume()
        if self._name == "supervisor":
            # nsenter has stopped with its child.
            with contextlib.suppress(psutil.NoSuchProcess):
                psutil.Process(now.command.process.pid).resume()


class ClockStep(Fault):
    """The system clock appears to step: /proc/stat has another time of boot, from which start times are computed.

    A rank is stopped at the same time, so that the sweep has a process to find and to end.
    """

    def __init__(self) -> None:
        self._stop = Signal("rank", signal.SIGSTOP)

    def strike(self, now: Moment) -> str:
        what = self._stop.strike(now)
        self.lasts_s = self._stop.lasts_s
        seconds = now.chance.choice((-3600, -5, 5, 3600))
        shift = f"awk '$1==\"btime\" {{$2+={seconds}}} 1' /proc/stat >/tmp/stat && mount --bind /tmp/stat /proc/stat"
        now.place.host.run(["sh", "-c", shift], check=True)
        return f"{seconds:+} s, and a stopped {what}"

    def restore(self, now: Moment) -> None:
        now.place.host.run(["umount", "/proc/stat"], check=True)
        self._stop.restore(now)


# --- places ---------------------------------------------------------------------------------------------------


class FullDisk(Fault):
    """The disk of the results folder has no free block."""

    def strike(self, now: Moment) -> str:
        self.lasts_s = now.pause_s
        spare = now.chance.choice((0, 4096, 3 * 4096))
        fill = f"cat /dev/zero >/tmp/disk/filler 2>/tmp/filled; truncate -s -{spare} /tmp/disk/filler"
        now.place.host.run(["sh", "-c", fill], check=True)
        return f"{spare:,} bytes left"

    def restore(self, now: Moment) -> None:
        now.place.host.run(["rm", "/tmp/disk/filler"], check=True)


class StoreFails(Fault):
    """The object store fails in a way that `store_proxy` knows."""

    def __init__(self, mode: str) -> None:
        self._mode = mode

    def strike(self, now: Moment) -> str:
        self.lasts_s = now.pause_s
        now.place.mode(self._mode)
        return self._mode

    def restore(self, now: Moment) -> None:
        now.place.mode("pass")


_HOG = f"""
import time
open("/proc/self/oom_score_adj", "w").write("-1000")
taken = []
while len(taken) < 64:
    taken.append(bytearray(8 * {MIB}))
    time.sleep(0.02)
time.sleep(3600)
"""


class ShortMemory(Fault):
    """Another process takes 512 MiB of a cgroup that has 128 MiB more than it uses. The kernel spares that process."""

    def strike(self, now: Moment) -> str:
        self.lasts_s = now.pause_s / 2
        cgroup = now.place.cgroup
        cgroup.limit(cgroup.used() + 128 * MIB)
        self._hog = now.place.host.start(cgroup.entered([sys.executable, "-c", _HOG]))
        return "128 MiB left"

    def restore(self, now: Moment) -> None:
        self._hog.send_signal(signal.SIGKILL)
        self._hog.wait()
        now.place.cgroup.limit(None)


class LostMachine(Fault):
    """The second machine loses its power, and joins again later."""

    def strike(self, now: Moment) -> str:
        self.lasts_s = now.pause_s
        now.place.second.kill()
        return "host-2"

    def restore(self, now: Moment) -> None:
        now.place.rejoin()


class CutLink(Fault):
    """The link between the machines is cut, and works again before the head gives the machine up."""

    def strike(self, now: Moment) -> str:
        self.lasts_s = min(5.0, now.pause_s)
        now.place.second.cut()
        return "host-2"

    def restore(self, now: Moment) -> None:
        now.place.second.restore()


@dataclass(frozen=True, kw_only=True)
class Kind:
    """An entry of `KINDS`."""

    make: Callable[[], Fault]
    places: tuple[type[Place], ...] = ()
    """Where it is possible; everywhere if empty."""
    not_at: tuple[type[Place], ...] = ()
    ends_command: bool = False
    """Whether the command may end with it, and is given again. Other faults are answered by a restart or a retry."""
    outcomes: frozenset[str] = frozenset()
    """Outcomes other than ok that a run may keep after it."""

    def is_possible_at(self, place: type[Place]) -> bool:
        """Whether the fault can strike there."""
        return (not self.places or place in self.places) and place not in self.not_at


def _of_process(name: str, *, ends_command: bool = False, **options: Any) -> dict[str, Kind]:
    """A process that is killed, and that is stopped."""
    return {
        f"kill {name}": Kind(make=lambda: Signal(name, signal.SIGKILL), ends_command=ends_command, **options),
        f"stop {name}": Kind(make=lambda: Signal(name, signal.SIGSTOP), **options),
    }


KINDS: dict[str, Kind] = {
    **_of_process("rank"),
    **_of_process("broker"),
    **_of_process("Train's controller", not_at=(Launched,)),
    **_of_process("Tune's actor"),
    **_of_process("sweep"),
    **_of_process("supervisor", ends_command=True),
    # A cluster of several machines is its user's to start again.
    **_of_process("raylet", not_at=(Machines,)),
    **_of_process("GCS", not_at=(Machines,)),
    **_of_process("launcher's agent", places=(Launched,)),
    "step of the clock": Kind(make=ClockStep, places=(Place,)),
    "full disk": Kind(make=FullDisk, places=(Disk,), ends_command=True),
    "store answers 500": Kind(make=lambda: StoreFails("500"), places=(Store,), ends_command=True),
    "store does not answer": Kind(make=lambda: StoreFails("silent"), places=(Store,), ends_command=True),
    "store cuts uploads": Kind(make=lambda: StoreFails("cut"), places=(Store,), ends_command=True),
    "short memory": Kind(make=ShortMemory, places=(Memory,), ends_command=True, outcomes=frozenset({"oom"})),
    "lost machine": Kind(make=LostMachine, places=(Machines, Lanes)),
    "cut link": Kind(make=CutLink, places=(Machines, Lanes)),
}
"""Each kind of fault by its name."""
