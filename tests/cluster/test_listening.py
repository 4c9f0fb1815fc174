"""What a sweep on a cluster of its own opens to others: nothing."""

from __future__ import annotations

import socket
import time
from ipaddress import ip_address
from pathlib import Path

import psutil
import pytest

from tests.conftest import SMALL, command_line

RUN = ("--dataset", SMALL, "--world-size", "2", "--batch-per-rank", "1", "--epochs", "15", "--repeats", "1")


def reaches_beyond(address: str) -> bool:
    """Whether what listens at this address can be reached from another machine."""
    parsed = ip_address(address)
    return not (getattr(parsed, "ipv4_mapped", None) or parsed).is_loopback


def listening(sweep: psutil.Process) -> set[tuple[str, str]]:
    """Where a sweep and all that it has started wait for others, and who does."""
    found = set()
    for one in [sweep, *sweep.children(recursive=True)]:
        try:
            opened = [link.laddr.ip for link in one.net_connections("inet") if link.status == psutil.CONN_LISTEN]
            # One that is about to end has its name for a while when its words are gone.
            found |= {(" ".join([one.name(), *one.cmdline()]), address) for address in opened}
        except psutil.Error:
            continue  # it has ended meanwhile
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "others"),
    [
        (("--dashboard",), ()),
        (("--launcher", "spawn"), ()),
        # What these bring along listens everywhere, and cannot be told not to.
        (("--launcher", "torchrun"), ("torch.distributed.run",)),
        (("--launcher", "mpirun"), ("mpiexec", "hydra_pmi_proxy", "mpi4py")),
    ],
    ids=["ray", "spawn", "torchrun", "mpirun"],
)
def test_nothing_of_a_sweep_listens_beyond_this_machine(
    flags: tuple[str, ...], others: tuple[str, ...], tmp_path: Path
) -> None:
    addresses = [at.address for ats in psutil.net_if_addrs().values() for at in ats if at.family == socket.AF_INET]
    if not any(map(reaches_beyond, addresses)):
        pytest.skip(f"no interface of this machine reaches beyond it: {addresses}")
    with open(tmp_path / "said", "w") as said:
        sweep = psutil.Popen(command_line("batch_size", *RUN, *flags), cwd=tmp_path, stdout=said, stderr=said)
    found: set[tuple[str, str]] = set()
    while sweep.poll() is None:
        found |= listening(sweep)
        time.sleep(0.2)
    assert sweep.returncode == 0, (tmp_path / "said").read_text()
    ranks = "ray::RayTrainWorker" if flags == ("--dashboard",) else "gcs_server"
    assert {ranks in name for name, _ in found} == {True, False}, found
    assert not [one for one in found if reaches_beyond(one[1]) and not any(name in one[0] for name in others)]
