"""The machines that `dmls-ray doctor` has found to be slower than the others of a cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from dmls_ray.analysis.stats.formatting import ratio_text
from dmls_ray.analysis.stats.intervals import is_below
from dmls_ray.analysis.trials.machine_speeds import MachineSpeed
from dmls_ray.cluster.resources import Resources
from dmls_ray.execution.remembered import remember, remembered
from dmls_ray.util.errors import ClusterError

_SPEEDS = "machine_speeds"
"""Name under which speeds are remembered, by host."""


def remember_speeds(machines: Sequence[MachineSpeed]) -> None:
    """Keep the speed of each machine for sweeps that leave slower ones out, where it has an interval."""
    counts = Counter(machine.hosts for machine in machines)
    known = {}
    for machine in machines:
        # Lanes of one machine, or machines of one name, are no machine.
        if counts[machine.hosts] == 1 and machine.against_others is not None and machine.against_others.low is not None:
            known[machine.hosts] = machine.against_others
    if known:
        remember(_SPEEDS, known)


def slower_machines(resources: Resources, share: float, notify: Callable[[str], None]) -> set[str]:
    """The hosts that are slower than others by more than a share, beyond chance; those of machines that may join, too.

    Args:
        resources: the machines.
        share: the share.
        notify: takes a message for the user.

    Raises:
        ClusterError: the speed of no machine is known, or all are slower.
    """
    speeds = remembered(_SPEEDS)
    given = f"--leave-out-slower {100 * share:g}%"
    here = {machine.name for machine in resources.machines}
    if not speeds.keys() & here:
        raise ClusterError(
            f"{given}: no machine of this cluster has been compared with the others. Run dmls-ray doctor --address "
            "auto --lanes all here first, with at least three blocks for each machine, or leave it out."
        )
    slower = {name for name, speed in speeds.items() if is_below(speed, 1 - share)}
    if here <= slower:
        raise ClusterError(f"{given}: all machines of this cluster were found to be slower; leave it out.")
    for name in sorted(slower & here):
        notify(f"{name} is left out: doctor found {ratio_text(speeds[name])} of the speed of the others.")
    return slower
