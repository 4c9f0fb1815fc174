"""The flags of a script: read from its argparse parser, without running the script further than that."""

from __future__ import annotations

import atexit
import functools
import json
import os
import re
import select
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dmls_ray.config.fields import FieldSpec
from dmls_ray.util.digests import source_digests
from dmls_ray.util.errors import UserCodeError

READ_TIMEOUT_S = 120.0
"""How long a script may take until it reads its command line."""

_PARSES = re.compile(r"argparse|ArgumentParser|parse_args")
NUMBER_OR_TEXT = int | float | str
"""What is not a number reaches the script as it was typed."""
_HINTS: dict[str, Any] = {"str": str, "int": int, "float": float, "any": NUMBER_OR_TEXT}


@dataclass(frozen=True)
class ScriptFlag:
    """One flag of a script, or a variable of its environment, or a name in braces among its fixed arguments."""

    option: str
    """The flag as the script has it: `--batch-size`; for the other kinds the name."""
    kind: Literal["value", "switch", "bool", "variable", "template"]
    """value: followed by its value; switch: given or not; bool: `--flag` or `--no-flag`."""
    several: bool = False
    """Whether several words may follow it; they are separated by spaces in one value."""
    given: tuple[str, ...] | None = None
    """The last value that the fixed arguments of the script give it, as words; None where they give it none."""
    places: tuple[int, ...] = ()
    """Which of them do, and nothing else."""

    @property
    def hint(self) -> Any:
        """What values it takes, where no parser says it: a variable has texts."""
        return Any if self.kind == "variable" else NUMBER_OR_TEXT

    def words(self, value: Any) -> list[str]:
        """The words of the command line that give it this value."""
        if self.kind == "switch":
            return [self.option] if value else []
        if self.kind == "bool":
            return [self.option if value else self.option.replace("--", "--no-", 1)]
        if self.kind != "value":
            return []
        return [self.option, *str(value).split()] if self.several else [self.option, str(value)]


class FlagReader:
    """A process that has run the script up to where it reads its command line.

    Args:
        script: path of the script.
        words: its fixed arguments.

    Raises:
        UserCodeError: the script failed, or did not read its command line in time.
    """

    def __init__(self, script: str, words: Sequence[str]) -> None:
        self.script = script
        self.flags: dict[str, ScriptFlag] = {}
        """By the name of the field."""
        self.specs: dict[str, FieldSpec] = {}
        self._process: subprocess.Popen[str] | None = None
        self._said = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - open as long as the process
        """What the script prints: a pipe that nobody reads would stop it."""
        if _has_parser(script):
            self._start(words)

    def _start(self, words: Sequence[str]) -> None:
        command = [sys.executable, "-m", "dmls_ray.workloads.script.flag_reader", self.script, *words]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said, text=True, encoding="utf-8"
        )
        self._process = process
        assert process.stdout is not None
        ready, _, _ = select.select([process.stdout], [], [], READ_TIMEOUT_S)
        if not ready:
            self.close()
            raise UserCodeError(
                f"{self.script} did not read its command line within {READ_TIMEOUT_S:g} s; give its arguments after -- "
                "with {name} for what is to vary, and --set name VALUE ..."
            )
        line = process.stdout.readline()
        if not line:
            said = self._last_line()
            if process.returncode:
                raise UserCodeError(f"{self.script} failed before it read its command line: {said}.")
            return
        for described in json.loads(line):
            self._add(described)

    def _add(self, described: dict[str, Any]) -> None:
        name = re.sub(r"\W", "_", described["option"].lstrip("-") or described["dest"])
        if not described["option"]:
            return  # a word without a flag is given after --
        given = tuple(described["given"][-1]) if described["given"] else None
        self.flags[name] = ScriptFlag(
            described["option"], described["kind"], described["several"], given, tuple(described["places"])
        )
        hint: Any = bool if described["kind"] != "value" else _HINTS[described["type"]]
        if described["choices"]:
            hint = Literal[tuple(described["choices"])]
        if described["several"]:
            hint = str
        self.specs[name] = FieldSpec(name, described["help"], described["default"], hint)

    def error_of(self, words: Sequence[str]) -> str:
        """What the script's parser says against its whole command line; empty if it takes it, or has no parser."""
        if not self.flags:
            return ""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([*words]), file=self._process.stdin, flush=True)
        answer: str = json.loads(self._process.stdout.readline() or '""')
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.communicate()
        self._said.close()

    def _last_line(self) -> str:
        assert self._process is not None
        self._process.communicate()
        self._said.seek(0)
        lines = [line.strip() for line in self._said if line.strip()]
        return lines[-1].rstrip(".") if lines else f"exit code {self._process.returncode}"


def reader_of(script: str, words: tuple[str, ...]) -> FlagReader:
    """The reader of a script with these fixed arguments, started once for each version; it ends with this process.

    Raises:
        UserCodeError: as `FlagReader`.
    """
    return _reader_of(script, words, os.path.abspath(script), os.stat(script).st_mtime_ns)


@functools.cache
def _reader_of(script: str, words: tuple[str, ...], path: str, changed_ns: int) -> FlagReader:
    reader = FlagReader(script, words)
    atexit.register(reader.close)
    return reader


def _has_parser(script: str) -> bool:
    """Whether a script, or a module of its folder that it imports, names argparse: others need not be started."""
    files = [Path(script)]
    folder = Path(script).resolve().parent
    files += [folder / name for name in source_digests([os.path.abspath(script)])]
    return any(_PARSES.search(file.read_text(encoding="utf-8", errors="replace")) for file in files if file.is_file())
