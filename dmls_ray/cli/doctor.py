"""`dmls-ray doctor`: one configuration against itself. `diagnosis` prints what that says of this machine."""

from __future__ import annotations

from dataclasses import replace

from dmls_ray.cli.call import Call
from dmls_ray.cli.diagnosis import show_diagnosis
from dmls_ray.cli.sweep_command import answer
from dmls_ray.config.sweep_file import Preset, What

PRESET = Preset(
    name="doctor",
    axis="seed",
    axes={"seed": [0, 1], "batch_per_rank": [32]},
    # Nothing is decided before the time is up. With the start of Ray, this is two minutes.
    options={"name": "doctor", "out": "results/doctor", "fresh": True, "budget": 90.0}
    | dict.fromkeys(("within", "equivalent"), 0.001),
)


def doctor(call: Call) -> int:
    """Which differences can this machine show? One configuration is trained against itself.

    Its two trials differ only in their seed, which does not change the speed, so any difference between them is
    noise. The flags of a sweep follow WHAT (train.py, module:function); the arguments of a script follow --.
    --budget
    (default: 90s) and --max-repeats (default: 30) limit the repeats. Each call has a new results folder.
    """
    what = None
    if call.words and not call.words[0].startswith("-"):
        what = What(train=call.take(1)[0])
    return answer(replace(PRESET, description=doctor.__doc__ or ""), call, what, show_diagnosis)
