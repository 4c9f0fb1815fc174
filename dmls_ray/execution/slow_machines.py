"""The machines that `dmls-ray doctor` has found to be slower than the others of a cluster."""

from __future__ import annotations

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
    """Keep the speed of each machine for sweeps that leave slower ones out."""
    known = {machine.hosts: machine.against_others for machine in machines}
    remember(_SPEEDS, {hosts: speed for hosts, speed in known.items() if speed is not None})


def leave_out_slower(resources: Resources, share: float, notify: Callable[[str], None]) -> set[str]:
    """Ray's ids of the machines that are slower than the others by more than a share, beyond chance.

    Args:
        resources: the machines.
        share: the share.
        notify: takes a message for the user.

    Raises:
        ClusterError: the speed of none of them is known.
    """
    speeds = remembered(_SPEEDS)
    known = [machine for machine in resources.machines if machine.name in speeds]
    if not known:
        raise ClusterError(
            f"--leave-out-slower {share:.0%}: no machine of this cluster has been compared with the others. Run "
            "dmls-ray doctor --address auto --lanes all here first, or leave it out."
        )
    slower = set()
    for machine in known:
        speed = speeds[machine.name]
        if is_below(speed, 1 - share):
            notify(f"{machine.name} is left out: doctor found {ratio_text(speed)} of the speed of the others.")
            slower.add(machine.node_id)
    return slower
