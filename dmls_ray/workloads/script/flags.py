"""The flags of a program: read from its parser, without running the program further than that."""

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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dmls_ray.config.fields import FieldSpec
from dmls_ray.util.digests import file_of_program, source_digests
from dmls_ray.util.errors import UserCodeError
from dmls_ray.util.programs import module_beside, module_of
from dmls_ray.util.template_copy import Copy, start_copy
from dmls_ray.util.template_request import RUNS, known_templates
from dmls_ray.util.text import did_you_mean
from dmls_ray.workloads.script.printed import last_line_of

_Process = subprocess.Popen[bytes] | Copy
_READER = "dmls_ray.workloads.script.flag_reader"

READ_TIMEOUT_S = 120.0
"""How long a program may take until it reads its command line, with its imports."""

_PARSES = re.compile(r"pars|argv|click|typer|tyro|absl|flags|\bcli\b|CLI")
"""What the text of a program has that may read a command line; others need not be started."""
_DEFAULT = re.compile(r"\s*\(default:? [^()]*\)", re.IGNORECASE)
"""The default of a flag in its help."""
NUMBER_OR_TEXT = int | float | str
"""What is not a number reaches the program as it was typed."""
SEED_FLAGS = ("seed", "random_seed", "manual_seed", "manualSeed", "rng_seed", "global_seed")
"""Names of flags that seed a script."""
_HINTS: dict[str, Any] = {"str": str, "int": int, "float": float, "any": NUMBER_OR_TEXT}


@dataclass(frozen=True)
class ScriptFlag:
    """One flag of a program, or a variable of its environment, or a name in braces among its fixed arguments."""

    option: str
    """The flag as the program has it: `--batch-size`; for the other kinds the name."""
    kind: Literal["value", "switch", "bool", "variable", "template"]
    """value: followed by its value; switch: given or not; bool: `option` or `off`."""
    several: bool = False
    """Whether several words may follow it; they are separated by spaces in one value."""
    given: tuple[str, ...] | None = None
    """The last value that the fixed arguments of the program give it, as words; None where they give it none."""
    places: tuple[int, ...] = ()
    """Which of them do, and nothing else."""
    off: str = ""
    """Of a bool, the flag for false: `--no-amp`."""
    default: Any = None
    """Its value where none is given, if that is a plain one."""

    def words(self, value: Any) -> list[str]:
        """The words of the command line that give it this value."""
        if self.kind == "switch":
            return [self.option] if value else []
        if self.kind == "bool":
            return [self.option if value else self.off]
        if self.kind != "value":
            return []
        return [self.option, *str(value).split()] if self.several else [self.option, str(value)]


class FlagReader:
    """A process that has run the program up to where it reads its command line.

    Args:
        program: path of the file, or `-m` and the name of a module.
        words: its fixed arguments.
        copy: the repository, and the copy of it in which the program starts; empty for the files as they are.
        variables: of its environment, with a value each.

    Raises:
        UserCodeError: the program failed.
    """

    def __init__(
        self, program: str, words: Sequence[str], copy: tuple[str, str] = ("", ""), variables: Mapping[str, str] = {}
    ) -> None:
        self.program = program
        self.flags: dict[str, ScriptFlag] = {}
        """By the name of the field."""
        self.specs: dict[str, FieldSpec] = {}
        self.aliases: dict[str, str] = {}
        """Other names of flags -> the field."""
        self._short: dict[str, str] = {}
        """Short names of flags -> the long one."""
        self.subcommands: dict[str, list[str]] = {}
        """Each subcommand that may follow the words, with its flags."""
        self.unknown_because = ""
        """Why the flags are not known; empty where they are."""
        self._process: _Process | None = None
        self._folder = tempfile.TemporaryDirectory(prefix="dmls_ray-flags-", ignore_cleanup_errors=True)
        """Temporary files of the program, and what it prints: a pipe that nobody reads would stop it."""
        if _may_parse(program):
            self._start(words, copy, variables)
        else:
            self.unknown_because = "nothing in it looks like a parser"

    def _start(self, words: Sequence[str], copy: tuple[str, str], variables: Mapping[str, str]) -> None:
        folder = self._folder.name
        own = {
            "TMPDIR": folder,
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHON_TYRO_BACKEND": "argparse",  # tyro has a parser of its own, too
        }
        asked, ask = os.pipe()
        answer, answered = os.pipe()
        self._questions, self._answers = os.fdopen(ask, "w", encoding="utf-8"), os.fdopen(answer, encoding="utf-8")
        with open(asked, "rb"), open(answered, "wb"), open(Path(folder, "said"), "wb") as said:
            streams = (asked, answered, said.fileno())
            self._process = _start([folder, *copy, self.program, *words], streams, {**os.environ, **variables, **own})
        ready, _, _ = select.select([answer], [], [], READ_TIMEOUT_S)
        if not ready:
            self._process.kill()
            self.unknown_because = f"it has not read its command line after {READ_TIMEOUT_S:g} s"
            return
        line = self._answers.readline()
        if line:
            described = json.loads(line)
            self.subcommands = described["subcommands"]
            for flag in described["flags"]:
                self._add(flag)
            if described["reason"]:
                self.unknown_because = f"{described['reason']} before a parser that is known reads its command line"
            return
        self._process.wait()
        said_last = last_line_of(str(Path(folder, "said"))).rstrip(".") or "it says nothing"
        # An argument that is filled for each run may be wrong in braces.
        if any("{" in word for word in words):
            self.unknown_because = f"it fails with braces among its arguments: {said_last}"
            return
        self.close()
        file = file_of_program(self.program)
        module = module_beside(str(file)) if file and not module_of(self.program) else ""
        if module and "no known parent package" in said_last:
            raise UserCodeError(f"{self.program} is a module of a package ({said_last}); give {module}.")
        raise UserCodeError(f"{self.program} failed before it read its command line: {said_last}.")

    def _add(self, described: dict[str, Any]) -> None:
        option, *others = described["options"]
        if not option:
            return  # a word without a flag is given after --
        name = _field_of(option)
        for other in others:
            if not other.startswith("--"):
                self._short[other] = option
            elif _field_of(other) != name:
                self.aliases[_field_of(other)] = name
        given = tuple(described["given"][-1]) if described["given"] else None
        kind, several, default = described["kind"], described["several"], described["default"]
        places = tuple(described["places"])
        self.flags[name] = ScriptFlag(option, kind, several, given, places, described["off"], default)
        hint: Any = bool if kind != "value" else _HINTS[described["type"]]
        if described["choices"]:
            hint = Literal[tuple(described["choices"])]
        if several:
            hint = str
        # The help of a sweep shows the default of each flag.
        self.specs[name] = FieldSpec(name, _DEFAULT.sub("", described["help"]), default, hint)

    @property
    def seed_flag(self) -> str:
        """The flag that seeds the program, by its name; empty without one."""
        named = {**{name: name for name in self.flags}, **self.aliases}
        found = [self.flags[field_name].option for name, field_name in named.items() if name in SEED_FLAGS]
        return found[0] if found else ""

    def error_of(self, words: Sequence[str]) -> str:
        """What the program's parser says against its whole command line; empty if it takes it, or has no parser."""
        if self._process is None or self.unknown_because:
            return ""
        print(json.dumps([*words]), file=self._questions, flush=True)
        answer: str = json.loads(self._answers.readline() or '""')
        return answer

    def about(self) -> str:
        """What --help says where the flags are not known; empty where they are."""
        if not self.unknown_because:
            return ""
        return (
            f"The flags of {self.program} are not known: {self.unknown_because}. Names in braces and variables can "
            "vary: --set batch 16 32 -- --batch_size={batch}, and --env NAME=1,2."
        )

    def about_unknown(self, flag: str, meant: str, way_out: str) -> str:
        """The line about a flag that there is not.

        Args:
            flag: as it was typed.
            meant: what of dmls_ray may have been meant, as a question.
            way_out: the flags and arguments that give the program this one unseen.
        """
        if self.unknown_because:
            return (
                f"{flag} is no flag of dmls-ray; {meant}Those of {self.program} are not known "
                f"({self.unknown_because}); as it writes them: {way_out}."
            )
        having = [name for name, options in self.subcommands.items() if flag in options]
        if having:
            return (
                f"{flag} is a flag of {self.program} {having[0]}: give its subcommand after --, as in -- {having[0]}."
            )
        options = [option for name in self.flags for option in (f"--{name}", f"--{name.replace('_', '-')}")]
        options += [f"--{name}" for name in self.aliases]
        meant = f"give {self._short[flag]}; " if flag in self._short else did_you_mean(flag, options) or meant
        return f"{flag} is no flag; {meant}--help lists them all; one that {self.program} reads by itself: {way_out}."

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._questions.close()
            self._answers.close()
        self._folder.cleanup()


def _start(words: Sequence[str], streams: tuple[int, int, int], environment: Mapping[str, str]) -> _Process:
    """Start the process of a reader; where there is a template, as a copy that has imported PyTorch.

    Args:
        words: its arguments.
        streams: its standard streams.
        environment: its environment.
    """
    if folder := known_templates():
        read = f"{_READER}:read_in_copy"
        copy = start_copy(RUNS, read, words, folder=folder, streams=streams, environment=environment)
        if copy is not None:
            return copy
    questions, answers, said = streams
    command = [sys.executable, "-m", _READER, *words]
    return subprocess.Popen(command, env=environment, stdin=questions, stdout=answers, stderr=said)


def _field_of(option: str) -> str:
    return re.sub(r"\W", "_", option.lstrip("-"))


def reader_of(
    program: str, words: tuple[str, ...], copy: tuple[str, str] = ("", ""), variables: Mapping[str, str] = {}
) -> FlagReader:
    """The reader of a program with these fixed arguments, started once for each version; it ends with this process.

    Raises:
        UserCodeError: as `FlagReader`.
    """
    file = file_of_program(program)
    changed_ns = os.stat(file).st_mtime_ns if file else 0
    return _reader_of(program, words, copy, tuple(variables.items()), os.getcwd(), changed_ns)


@functools.cache
def _reader_of(
    program: str,
    words: tuple[str, ...],
    copy: tuple[str, str],
    variables: tuple[tuple[str, str], ...],
    folder: str,
    changed_ns: int,
) -> FlagReader:
    reader = FlagReader(program, words, copy, dict(variables))
    atexit.register(reader.close)
    return reader


def _may_parse(program: str) -> bool:
    """Whether a program, or a module of the user that it imports, may read a command line: others are not started."""
    file = file_of_program(program)
    if file is None:
        return True  # of a copy
    name = module_of(program)
    folder = Path() if name else file.resolve().parent
    files = [file, *(folder / entry for entry in source_digests([program if name else os.path.abspath(program)]))]
    return any(_PARSES.search(each.read_text(encoding="utf-8", errors="replace")) for each in files if each.is_file())
