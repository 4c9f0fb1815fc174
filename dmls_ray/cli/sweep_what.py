"""`dmls-ray sweep WHAT`: a script, or a function, in place of a sweep script."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Sequence
from typing import NoReturn

from dmls_ray.cli.console import EXIT_BAD_INPUT, EXIT_OK, print_error
from dmls_ray.cli.sweep_script import Preset, main
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.programs import folder_name_of, is_program
from dmls_ray.util.text import did_you_mean

_USAGE = """usage: dmls-ray sweep WHAT [flags] [-- arguments of the script]

Run WHAT for each combination of the values of its flags, several times with different seeds, and report
which differences are real, where they come from, and what memory they take.

WHAT is
  train.py          a training script, which runs unchanged: its own flags take several values
  -m package.train  the same for a module, as after python
  module:function   a training function
  sweep.toml        a file with all settings; each results folder has one
  batch_size, ...   a question about the built-in models: {presets}

dmls-ray sweep WHAT --help lists the flags. A first look, without intervals: --repeats 1.
Example: dmls-ray sweep train.py --batch-size 16 32 64 --world-size 1 2 -- --data /d --lr 3e-4
"""

_TUNE_USAGE = """usage: dmls-ray tune WHAT [flags] [-- arguments of the script]

Find the fastest settings of a training within --budget 10m, without changing what is trained: loader workers, threads,
micro-batch and accumulation at one global batch, compile, and others that its flags allow. --change-training also tries
the batch, the precision and the optimizer. It ends with a command to paste. To choose a batch size or a number of
ranks, use: dmls-ray sweep train.py --batch-size 16 32 64 --world-size 1 2.

WHAT is a script (train.py), a function (module:function) or a workload (classification).
dmls-ray tune WHAT --help lists the flags. --budget is the time of the whole search; --steps 20 makes runs shorter.
Example: dmls-ray tune train.py --budget 10m -- --data /d
"""


_AB_USAGE = """usage: dmls-ray ab A B [flags] -- sweep train.py [flags] [-- arguments of the script]

Say whether revision B of a training script is slower than revision A, by runs of both in the same blocks: keep, discard
or cannot say. A and B are branches, tags or commits of the script's git repository; . means the files as they are.

Slower means by more than --equivalent 2%. Runs are repeated until that is decided, within --budget 10m. They start in
copies of the repository, which include untracked files; --share data lets them read a large folder in place.
--format github writes the verdict as an annotation, json everything as one object.
Exit codes: 0 keep, 1 A does not train, 2 wrong usage, 3 discard, 4 cannot say, 130 stopped.
Example: dmls-ray ab origin/main HEAD -- sweep train.py --steps 50 -- --data /d
"""


def sweep_what(words: Sequence[str]) -> NoReturn:
    """Run the sweep that the words after `dmls-ray sweep` ask for, and exit as `main` does."""
    what, count = _what_of(words)
    if what.endswith(".toml"):
        _sweep_file(what)
    if not (is_program(what) or ":" in what):
        _sweep_preset(what)
    name = _folder_of(what)
    description = f"Sweep {what}: a flag with several values is an axis."
    preset = Preset(name=name, axis=None, axes={}, description=description, given=("--train", what))
    main(preset, skipped=1 + count)


def preset_of_file(path: str) -> Preset:
    """What a sweep file asks.

    Raises:
        ConfigError: the file is wrong; the message names it.
    """
    from dmls_ray.config.sweep_file import read_sweep_file

    file = read_sweep_file(path)
    return Preset(
        axes={},
        description=f"The sweep of {path}; flags go before its values.",
        variants=file.variants,
        given=file.words,
        arguments=file.arguments,
        **{"name": "sweep", "axis": None, **file.script_options},
    )


def _sweep_file(path: str) -> NoReturn:
    try:
        preset = preset_of_file(path)
    except ConfigError as error:
        _refuse(f"dmls-ray sweep {error}")
    main(preset, skipped=2)


def _what_of(words: Sequence[str]) -> tuple[str, int]:
    """What is run, one word or `-m` and a module, and the number of its words."""
    if not words:
        return "--help", 1
    if words[0] != "-m":
        return words[0], 1
    if len(words) < 2 or words[1].startswith("-"):
        _refuse("dmls-ray sweep -m names no module; give one: -m package.train.")
    return f"-m {words[1]}", 2


def _folder_of(what: str) -> str:
    return folder_name_of(what) if is_program(what) else re.sub(r"\W+", "-", what).strip("-")


def _sweep_preset(name: str) -> NoReturn:
    from dmls_ray.cli.presets import PRESETS

    if name in ("-h", "--help"):
        print(_USAGE.format(presets=", ".join(PRESETS)), end="")
        sys.exit(EXIT_OK)
    if name in PRESETS:
        main(name, skipped=2)
    way_out = f"give a script (train.py), a function (module:function) or one of {', '.join(PRESETS)}"
    meant = did_you_mean(name, [*PRESETS])
    _refuse(f"dmls-ray sweep {name}: {meant}{way_out}.")


def tune_what(words: Sequence[str]) -> NoReturn:
    """Find the fastest settings of what the words after `dmls-ray tune` name, and exit as `main` does."""
    what, count = _what_of(words)
    if what in ("-h", "--help"):
        print(_TUNE_USAGE, end="")
        sys.exit(EXIT_OK)
    preset = Preset(
        name=f"{_folder_of(what)}-tune",
        axis=None,
        axes={},
        description=f"Find the fastest settings of {what}. --budget is the time of the whole search.",
        given=("--train", what) if is_program(what) or ":" in what else ("--workload", what),
        options={"budget": 600.0, "whole_blocks": True},
        command="dmls_ray.cli.tune:tune",
    )
    main(preset, skipped=1 + count)


def ab_what(words: Sequence[str]) -> NoReturn:
    """Compare the two revisions that the words after `dmls-ray ab` name, and exit as `main` does."""
    if not words or words[0] in ("-h", "--help"):
        print(_AB_USAGE, end="")
        sys.exit(EXIT_OK)
    end = words.index("--") if "--" in words else len(words)
    revisions = [*itertools.takewhile(lambda word: not word.startswith("-"), words[:end])]
    flags, asked = words[len(revisions) : end], words[end + 1 :]
    example = "dmls-ray ab main HEAD -- sweep train.py"
    if len(set(revisions)) != 2 or "--revision" in words:
        _refuse(f"dmls-ray ab {' '.join(revisions)}: name two revisions, and no more: {example}.")
    what, count = _what_of(asked[1:])
    if asked[:1] != ["sweep"] or not is_program(what):
        _refuse(f"dmls-ray ab {' '.join(revisions)}: say after -- which script is run: {example}.")
    preset = Preset(
        name=f"{_folder_of(what)}-ab",
        axis="revision",
        axes={},
        description=f"Compare revisions {' and '.join(revisions)} of {what}.",
        given=("--train", what, "--revision", *revisions, *flags),
        # A verdict needs an interval much narrower than the 2% that may be lost.
        options={"budget": 600.0, "within": 0.005, "whole_blocks": True},
        formats=("text", "json", "github"),
        command="dmls_ray.cli.ab:ab",
    )
    main(preset, skipped=end + 3 + count)


def _refuse(line: str) -> NoReturn:
    sys.exit(print_error(line, EXIT_BAD_INPUT))
