"""Check, before ranks start, that each machine of a joined cluster has what a rank needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dmls_ray.util.errors import ClusterError, ClusterLostError
from dmls_ray.util.text import first_line

if TYPE_CHECKING:
    from dmls_ray.cluster.resources import Resources

MISSING = "is missing"

_ANSWER_S = 60.0
"""How long a machine may take to start a worker that answers."""


def check_machines(resources: Resources) -> None:
    """Check that ranks can run on each machine.

    Args:
        resources: the machines; all of a cluster that was joined, or one that has joined it later.

    Raises:
        ClusterError: a machine lacks dmls_ray or a library, has another version of it, or does not answer.
        ClusterLostError: a machine has left; another start finds the others.
    """
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    look = ray.remote(num_cpus=0, max_retries=0)(make_look())
    answers = {}
    for machine in resources.machines:
        if machine.cores or machine.gpus:
            there = NodeAffinitySchedulingStrategy(machine.node_id, soft=False)
            answers[look.options(scheduling_strategy=there).remote()] = machine
    if not answers:
        return
    here = make_look()()
    _, late = ray.wait(list(answers), num_returns=len(answers), timeout=_ANSWER_S)
    if late:
        raise ClusterError(
            f"{answers[late[0]].name} has started no worker in {_ANSWER_S:g} s; its raylet.err and python-core-worker "
            "logs (/tmp/ray/session_latest/logs there) say why. Or take it out: ray stop there."
        )
    for answer, machine in answers.items():
        try:
            differences = differing(ray.get(answer), here)
        except (ray.exceptions.TaskUnschedulableError, ray.exceptions.NodeDiedError) as error:
            raise ClusterLostError(f"{machine.name} has left the cluster") from error
        except ray.exceptions.RayError as error:
            raise ClusterError(
                f"{machine.name} does not answer ({first_line(error)}); look at Ray's logs there, or take it out: ray "
                "stop there."
            ) from error
        if differences:
            raise ClusterError(
                f"{machine.name} cannot run ranks: {differences}; install the same there with pip, or let Ray bring "
                "dmls_ray along: ray job submit --working-dir . -- python SCRIPT"
            )


def differing(there: dict[str, str], here: dict[str, str]) -> str:
    """In which versions another machine differs from this one; empty for none."""
    differences = []
    for name, version in here.items():
        if version not in (MISSING, there[name]):
            differences.append(f"{name} {there[name]} (here {version})")
    return ", ".join(differences)


def make_look() -> Any:
    """Make the function that reports the versions of the libraries of a machine, and the digest of its dmls_ray.

    It is a nested function, which Ray sends by value, so that it runs where dmls_ray cannot be imported.
    """
    missing = MISSING

    def look() -> dict[str, str]:
        import hashlib
        import importlib.metadata
        import importlib.util
        import pathlib

        found = {}
        for package in ("torch", "torchvision", "numpy", "psutil", "joblib", "scikit-learn"):
            try:
                # One release is built for several kinds of GPU: 2.15.0+cpu, 2.15.0+cu130.
                found[package] = importlib.metadata.version(package).partition("+")[0]
            except importlib.metadata.PackageNotFoundError:
                found[package] = missing
        spec = importlib.util.find_spec("dmls_ray")
        found["dmls_ray"] = missing
        if spec is not None and spec.submodule_search_locations:
            folder = pathlib.Path(spec.submodule_search_locations[0])
            digest = hashlib.sha256()
            for file in sorted(folder.rglob("*.py")):
                digest.update(str(file.relative_to(folder)).encode() + file.read_bytes())
            found["dmls_ray"] = digest.hexdigest()[:12]
        return found

    return look
