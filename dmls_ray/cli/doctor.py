"""`dmls-ray doctor`: one configuration against itself. `diagnosis` prints what that says of this machine."""

from __future__ import annotations

from dataclasses import replace

from dmls_ray.analysis.results import Results
from dmls_ray.analysis.stats.intervals import is_below
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.trials.machine_speeds import MachineSpeed, machine_speeds
from dmls_ray.analysis.words import join_names
from dmls_ray.cli.call import Call
from dmls_ray.cli.console import EXIT_OK, EXIT_SLOWER
from dmls_ray.cli.diagnosis import show_diagnosis
from dmls_ray.cli.request import Request
from dmls_ray.cli.sweep_command import answer
from dmls_ray.config.grid import Plan
from dmls_ray.config.sweep_file import Preset, What
from dmls_ray.execution.slow_machines import remember_speeds
from dmls_ray.execution.view import ProgressConsole

SLOWER = 0.05
"""Share of the speed of the others by which a machine is slower at least, if doctor is to fail."""

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
    --budget (default: 90s) and --max-repeats (default: 30) limit the repeats. Each call has a new results folder.
    On a cluster (--address auto --lanes all) every machine measures whole blocks of its own, and has a line with its
    speed against the others, which sweeps use for --leave-out-slower; the exit code is 3 if one is slower by more
    than 5%, beyond chance. --world-size 2 adds the time for communication, and --machines 2 that of pairs of machines.

    With --metric NAME, a number that the script logs or prints (--metric-regex), it says how much that differs by the
    seed, and which differences 3, 5, 10 and 30 seeds show at which cost; --steps none runs the script to its end.
    """
    what = None
    if call.words and not call.words[0].startswith("-"):
        what = What(train=call.take(1)[0])
    machines: list[MachineSpeed] = []

    def show(results: Results, plan: Plan, request: Request, console: ProgressConsole) -> None:
        show_diagnosis(results, plan, request, console)
        machines.extend(machine_speeds(make_table(results).rows))

    code = answer(replace(PRESET, description=doctor.__doc__ or ""), call, what, show)
    remember_speeds(machines)
    slower = [machine.hosts for machine in machines if is_below(machine.against_others, 1 - SLOWER)]
    if code != EXIT_OK or not slower:
        return code
    print(
        f"Slower than the others by more than {SLOWER:.0%}, beyond chance: {join_names(slower)}. A sweep leaves slower"
    )
    print(f"machines out with --leave-out-slower {SLOWER:.0%}.")
    return EXIT_SLOWER
