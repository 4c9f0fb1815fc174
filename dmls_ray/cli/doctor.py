"""`dmls-ray doctor`: one configuration against itself. `diagnosis` prints what that says of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

from dmls_ray.cli.sweep_script import Preset, main

PRESET = Preset(
    name="doctor",
    axis="seed",
    axes={"seed": [0, 1], "batch_per_rank": [32]},
    # Nothing is decided before the time is up. With the start of Ray, this is two minutes.
    options={"out": "results/doctor", "fresh": True, "budget": 90.0, "within": 0.001, "equivalent": 0.001},
    ending="dmls_ray.cli.diagnosis:show_diagnosis",
    description="""
        Which differences can this machine show? One configuration is trained against itself.

        Its two trials differ only in their seed, which does not change the speed, so any difference between them is
        noise. The flags of a sweep follow WHAT (train.py, module:function); the arguments of a script follow --.
        --budget
        (default: 90s) and --max-repeats (default: 30) limit the repeats. Each call has a new results folder.
        """,
)


def doctor(words: Sequence[str]) -> NoReturn:
    """Run what the words after `dmls-ray doctor` ask for, and exit as `main` does."""
    what = list(words[:1]) if words and not words[0].startswith("-") else []
    given = ("--train", *what) if what else ()
    main(replace(PRESET, given=given), skipped=1 + len(what))
