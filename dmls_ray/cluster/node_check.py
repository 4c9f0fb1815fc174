"""Check, before ranks start, that each machine of a joined cluster has what a rank needs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dmls_ray.cluster.address_check import raylet_commands
from dmls_ray.util.errors import ClusterError
from dmls_ray.util.text import first_line

if TYPE_CHECKING:
    from dmls_ray.cluster.resources import Machine, Resources

_LIBRARIES = ("torch", "torchvision", "numpy", "psutil", "joblib", "sklearn")
"""What a rank imports."""

_ANSWER_S = 60.0
"""Seconds that a machine has to start a worker that answers."""


def check_machines(resources: Resources) -> None:
    """Check that ranks can run on each machine.

    The driver's machine is checked only if the cluster uses another Python there than this process.

    Args:
        resources: the machines; all of a cluster that was joined, or one that has joined it later.

    Raises:
        ClusterError: a machine lacks dmls_ray or a library, has another version of it, or does not answer.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    here = ray.get_runtime_context().get_node_id()
    asked = [
        machine
        for machine in resources.machines
        if (machine.cores or machine.gpus) and (machine.node_id != here or not _runs_this_python(here))
    ]
    if not asked:
        return
    look = ray.remote(num_cpus=0, max_retries=0)(_looker())
    answers = {
        look.options(scheduling_strategy=NodeAffinitySchedulingStrategy(machine.node_id, soft=False)).remote(): machine
        for machine in asked
    }
    _, late = ray.wait(list(answers), num_returns=len(answers), timeout=_ANSWER_S)
    if late:
        raise ClusterError(
            f"{answers[late[0]].name} has started no worker in {_ANSWER_S:g} s; its raylet.err and python-core-worker "
            "logs (/tmp/ray/session_latest/logs there) say why. Or take it out: ray stop there."
        )
    expected = _looker()()
    for answer, machine in answers.items():
        try:
            reported = ray.get(answer)
        except ray.exceptions.RayError as error:
            first = first_line(error)
            raise ClusterError(
                f"{machine.name} could not be asked whether ranks can run there ({first}); look at Ray's logs there, "
                "or take it out: ray stop there."
            ) from error
        if objection := objection_to(machine, reported, expected):
            raise ClusterError(objection)


def objection_to(machine: Machine, reported: dict[str, Any], expected: dict[str, Any]) -> str:
    """Why ranks cannot run on a machine, and the way out; empty where they can.

    Args:
        machine: the machine.
        reported: its answer.
        expected: the answer of the driver's process.
    """
    pip = f"{reported['python']} -m pip install"
    there, here = reported["libraries"], expected["libraries"]
    wrong = [name for name in here if here[name] is not None and there[name] != here[name]]
    if wrong:
        differences = ", ".join(f"{name} {there[name] or 'is missing'} (here {here[name]})" for name in wrong)
        packages = " ".join(f"{_PACKAGES.get(name, name)}=={here[name]}" for name in wrong)
        return f"{machine.name} cannot run ranks: {differences}; there, {pip} {packages}."
    if reported["dmls_ray"] is None:
        return (
            f"{machine.name} cannot run ranks: dmls_ray is missing; there, {pip} . in a checkout of it, or let Ray "
            "bring it along: ray job submit --working-dir . -- python SCRIPT"
        )
    if reported["dmls_ray"] != expected["dmls_ray"]:
        return (
            f"{machine.name} cannot run ranks: its dmls_ray in {reported['where']} is not the one here; there, {pip} . "
            "in the same checkout, or let Ray bring it along: ray job submit --working-dir . -- python SCRIPT"
        )
    return ""


_PACKAGES = {"sklearn": "scikit-learn"}


def _looker() -> Any:
    """The function that reports the libraries of a machine.

    It is a nested function, which Ray sends by value, so that it runs where dmls_ray cannot be imported.
    """
    libraries, packages = _LIBRARIES, _PACKAGES

    def look() -> dict[str, Any]:
        import hashlib
        import importlib.metadata
        import importlib.util
        import pathlib
        import sys

        def version(name: str) -> str | None:
            if importlib.util.find_spec(name) is None:
                return None
            # One release is built for several kinds of GPU: 2.15.0+cpu, 2.15.0+cu130.
            return importlib.metadata.version(packages.get(name, name)).partition("+")[0]

        spec = importlib.util.find_spec("dmls_ray")
        where = next(iter(spec.submodule_search_locations or ()), None) if spec is not None else None
        digest = hashlib.sha256()
        folder = pathlib.Path(where or ".")
        for file in sorted(folder.rglob("*.py")) if where else ():
            digest.update(str(file.relative_to(folder)).encode() + file.read_bytes())
        return {
            "python": sys.executable,
            "libraries": {name: version(name) for name in libraries},
            "dmls_ray": digest.hexdigest() if where else None,
            "where": where,
        }

    return look


def _runs_this_python(node_id: str) -> bool:
    """Whether the workers of a node on this machine use the Python of this process."""
    for words in raylet_commands():
        if f"--node_id={node_id}" in words:
            command = next((word for word in words if word.startswith("--python_worker_command=")), "")
            return Path(command.partition("=")[2].partition(" ")[0]).parent == Path(sys.executable).parent
    return False
