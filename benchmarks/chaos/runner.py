"""Play a scenario: start the sweep, strike and restore, and give the same command again, as a user would."""

from __future__ import annotations

import itertools
import random
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.chaos.check import Counts, Key, Measured, compare, key_of, measured
from benchmarks.chaos.command import Command, Sweep
from benchmarks.chaos.faults import KINDS, Fault, Moment, NoVictimError
from benchmarks.chaos.places import PLACES, Place
from benchmarks.chaos.scenario import Scenario, Strike
from dmls_ray.records.model import RunRecord
from dmls_ray.records.provenance import describe_git

PATIENCE_S = 240.0
"""Time without a row, and without a fault under way, after which a sweep counts as hung.

Ray needs 60 s to notice the death of its GCS while it starts. On a busy machine, another start takes as long.
"""

MAX_FRUITLESS = 3
"""Commands in a row without a new row after which the sweep is given up."""

LEFT_AFTER_S = 20.0
"""Time after the last command until which its processes have to have ended."""

_POLL_S = 0.02

_SEARCH_AGAIN_S = 0.1
"""Interval in which a victim is looked for that is not there yet. A look at all processes takes some milliseconds."""


@dataclass
class Struck:
    """A fault that has struck."""

    kind: str
    what: str
    after_rows: int
    lost_s: float | None = None
    """Time without the rows that an undisturbed sweep would have made meanwhile."""
    ended_command: bool = False


@dataclass
class Played:
    """What came of a scenario."""

    seed: int
    place: str
    runs: int
    counts: Counts = field(default_factory=Counts)
    struck: list[Struck] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    """Faults that found no victim."""
    exit_codes: list[int] = field(default_factory=list)
    """Of each command; negative: ended by a signal."""
    restarts: int = 0
    """How often supervisors have started the sweep again."""
    gave_up: list[str] = field(default_factory=list)
    """What commands printed last that ended with a failure and without a fault that explains it."""
    hung: list[str] = field(default_factory=list)
    """What commands printed last that hung."""
    tracebacks: int = 0
    left: list[str] = field(default_factory=list)
    """Processes and temporary folders that remained."""
    took_s: float = 0.0
    commit: str = ""
    output: str = ""

    @property
    def passes(self) -> bool:
        """Whether nothing was lost, doubled, wrong or hung, and no command failed without a reason."""
        return not (self.counts.is_bad or self.hung or self.gave_up)


class Player:
    """Plays one scenario at a place."""

    def __init__(self, scenario: Scenario, place: Place, note: Callable[[str], None]) -> None:
        self.scenario, self.place, self._note = scenario, place, note
        self.played = Played(seed=scenario.seed, place=scenario.place, runs=scenario.sweep.runs)
        self._waiting = deque(scenario.strikes)
        self._active: list[tuple[str, Fault, float]] = []
        self._moments: list[tuple[float, int]] = []
        """When each fault struck, and how many rows there were."""
        self._commands: list[Command] = []
        self._excused = False
        """A fault that may end the command has struck it."""

    def play(self) -> None:
        """Until every run has a row, or it is clear that some never will."""
        began, fruitless = time.monotonic(), 0
        while True:
            before = len(self.rows())
            code = self._follow(self._start())
            self.played.exit_codes.append(code)
            fruitless = 0 if len(self.rows()) > before else fruitless + 1
            if (code == 0 and not self._missing()) or fruitless == MAX_FRUITLESS:
                break
        self.played.took_s = time.monotonic() - began
        self.played.missed = [strike.kind for strike in self._waiting]
        self.played.tracebacks = sum("Traceback (most recent" in line for line in self._lines())
        self.played.output = "".join(self._lines())
        self.played.restarts = sum(command.restarts for command in self._commands)
        self._count_lost_time()
        self.played.left = self._left()

    def _start(self) -> Command:
        self._excused = False
        # A sweep whose supervisor was killed ends by itself, in seconds.
        until = time.monotonic() + LEFT_AFTER_S
        while any("/sweeps/" in title for title in self.place.left()) and time.monotonic() < until:
            time.sleep(0.1)
        command = self.place.start()
        self._commands.append(command)
        return command

    def _follow(self, command: Command) -> int:
        """Strike and restore until the command ends; returns its exit code."""
        quiet_since, rows = time.monotonic(), len(self.rows())
        due: float | None = None
        while not command.has_ended():
            now = time.monotonic()
            if len(self.rows()) > rows or self._active:
                quiet_since, rows = now, len(self.rows())
            for _, fault, until in list(self._active):
                if now > until:
                    self._restore(fault, command)
            if self._waiting and rows >= self._waiting[0].after_rows:
                due = due or now + self._waiting[0].delay_s
                if now >= due and self._strike(self._waiting[0], command):
                    self._waiting.popleft()
                    due = None
                elif now >= due:
                    due = now + _SEARCH_AGAIN_S
            if now - quiet_since > PATIENCE_S:
                self.played.hung.append(self._last_words(command))
                self._note(f"hung: {self.played.hung[-1]}")
                command.end()
                self._excused = True
            time.sleep(_POLL_S)
        command.join()
        for _, fault, _ in list(self._active):
            self._restore(fault, command)
        code = command.process.returncode
        if code != 0:
            if self.played.struck:
                self.played.struck[-1].ended_command = True
            if not self._excused:
                self.played.gave_up.append(f"exit code {code}: {self._last_words(command)}")
            self._note(f"the command ended with {code}: {self._last_words(command)[-300:]}")
        return code

    def _strike(self, strike: Strike, command: Command) -> bool:
        kind = KINDS[strike.kind]
        if kind.places and any(KINDS[name].places for name, _, _ in self._active):
            return False  # what it strikes is not there, or not whole, before the other fault is over
        fault = kind.make()
        try:
            what = fault.strike(self._moment(strike.seed, command))
        except NoVictimError:
            return False
        rows = len(self.rows())
        self._moments.append((time.monotonic(), rows))
        self.played.struck.append(Struck(strike.kind, what, rows))
        self._excused = self._excused or kind.ends_command
        self._note(f"after {rows} rows: {strike.kind} ({what})")
        if fault.lasts_s:
            self._active.append((strike.kind, fault, time.monotonic() + fault.lasts_s))
        return True

    def _restore(self, fault: Fault, command: Command) -> None:
        self._active = [active for active in self._active if active[1] is not fault]
        fault.restore(self._moment(0, command))

    def _moment(self, seed: int, command: Command) -> Moment:
        return Moment(place=self.place, command=command, chance=random.Random(seed), pause_s=self.scenario.pause_s)

    def rows(self) -> list[tuple[float, str, str]]:
        return [row for command in self._commands for row in command.rows]

    def _lines(self) -> list[str]:
        return [line for command in self._commands for line in command.lines]

    def _missing(self) -> int:
        explained = self.explained() | {"ok"}
        done = {key_of(record) for record in self._records() if record.outcome in explained}
        return len(self.scenario.sweep.keys - done)

    def _records(self) -> list[RunRecord]:
        return [RunRecord.from_json(line) for line in self.place.lines()]

    def explained(self) -> set[str]:
        return {outcome for struck in self.played.struck for outcome in KINDS[struck.kind].outcomes}

    def _last_words(self, command: Command) -> str:
        return "".join(command.lines[-6:]).strip()

    def _count_lost_time(self) -> None:
        """Share the time without rows among the faults."""
        ends = [moment for moment, _, _ in self.rows()]
        pace = statistics.median(b - a for a, b in itertools.pairwise(ends)) if len(ends) > 1 else 0.0
        moments = [*self._moments, (max([*ends, 0.0]), len(ends))]
        for struck, (start, rows), (end, rows_then) in zip(self.played.struck, moments, moments[1:], strict=False):
            struck.lost_s = round(end - start - (rows_then - rows) * pace, 2)

    def _left(self) -> list[str]:
        until = time.monotonic() + LEFT_AFTER_S
        while (left := self.place.left()) and time.monotonic() < until:
            time.sleep(0.5)
        return [*left, *self.place.left_in_tmp()]


class References:
    """Results of undisturbed sweeps, measured once each.

    Args:
        folder: for their results.
    """

    def __init__(self, folder: Path, note: Callable[[str], None]) -> None:
        self._folder, self._note = folder, note
        self._measured: dict[Key, Measured] = {}
        self._measuring = threading.Lock()

    def of(self, sweep: Sweep) -> dict[Key, Measured]:
        """The results by batch, world size and repeat: equal at every place."""
        with self._measuring:
            if not sweep.keys <= self._measured.keys():
                self._measure(sweep)
            return self._measured

    def _measure(self, sweep: Sweep) -> None:
        undisturbed = Sweep(repeats=sweep.repeats)
        self._folder.mkdir(exist_ok=True)
        began = time.monotonic()
        with PLACES["machine"](self._folder, undisturbed) as place:
            command = place.start()
            command.process.wait()
            command.join()
            if command.process.returncode:
                raise SystemExit(f"the undisturbed sweep failed:\n{''.join(command.lines)}")
            self._measured |= {key_of(record): measured(record) for record in map(RunRecord.from_json, place.lines())}
        self._note(f"undisturbed: {undisturbed.runs} runs in {time.monotonic() - began:.1f} s")


def play(scenario: Scenario, folder: Path, references: References, note: Callable[[str], None]) -> Played:
    """Play a scenario in an empty folder, and compare its rows with those of the undisturbed sweep."""
    with PLACES[scenario.place](folder, scenario.sweep) as place:
        player = Player(scenario, place, note)
        player.play()
        lines: Sequence[bytes] = place.lines()
    played = player.played
    played.commit = describe_git().get("commit", "")[:7]
    expected = references.of(scenario.sweep)
    names = [name for _, name, outcome in player.rows() if outcome == "ok"]
    played.counts = compare(lines, scenario.sweep.keys, expected, explained=player.explained(), reported=names)
    return played
