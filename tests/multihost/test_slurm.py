"""The Slurm script on simulated hosts; small scripts take the place of Slurm's commands."""

from __future__ import annotations

import json
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.conftest import PROJECT, call
from tests.multihost.hosts import Network

SCRIPT = PROJECT / "sweeps" / "cluster" / "slurm.sbatch"
TRAIN = str(PROJECT / "examples" / "train.py")
SMALL_SWEEP = ("--ranks-per-machine", "1", "--batch-size", "8", "--steps", "8", "--repeats", "1")

SCONTROL = """#!/bin/sh
[ "$1 $2" = "show hostnames" ] && echo "$3" | tr , '\\n'
"""

# As Slurm's srun, this script forwards SIGTERM to its command.
SRUN = """#!/bin/bash
while [[ $1 == --* ]]; do
    [[ $1 == --nodelist=* ]] && node=${1#*=}
    shift
done
case $node in
%s
esac
trap 'pkill -TERM -P $child' TERM
"${enter[@]}" env --chdir="$PWD" HOME=/tmp/home "$@" &
child=$!
wait $child; code=$?
while kill -0 $child 2>/dev/null; do wait $child; code=$?; done
exit $code
"""


def slurm(network: Network, folder: Path, *, broken: str = "") -> dict[str, str]:
    """Return the environment of a job on all hosts of the network; the broken host has no `ray` command."""
    (folder / "bin").mkdir()
    cases = []
    for host in network.hosts:
        enter = shlex.join(host.init.entered("--all", []))
        refuse = '[ "$1" = ray ] && { echo "no such ray"; exit 127; }; ' if host.name == broken else ""
        cases.append(f"{host.name}) {refuse}enter=({enter}) ;;")
    for name, text in {"scontrol": SCONTROL, "srun": SRUN % "\n".join(cases)}.items():
        (folder / "bin" / name).write_text(text)
        (folder / "bin" / name).chmod(0o755)
    kept = network.hosts[0].environment()
    return kept | {
        "PATH": f"{folder / 'bin'}:{kept['PATH']}",
        "SLURM_JOB_ID": "4242",
        "SLURM_JOB_NODELIST": ",".join(host.name for host in network.hosts),
        "SLURM_CPUS_PER_TASK": "1",
        "MARKER": "a-value-of-the-environment",
        "PYTHONPATH": str(PROJECT),
    }


def submitted(folder: Path, env: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    return call(["bash", SCRIPT, *words], folder, env=env, timeout=200)


@pytest.mark.multihost
def test_a_slurm_job_sweeps_a_script_on_all_of_its_nodes_and_leaves_no_process_of_ray(
    network: Network, tmp_path: Path
) -> None:
    network.add(2)
    env = slurm(network, tmp_path)
    words = ["python", "-m", "dmls_ray", "sweep", TRAIN, "--machines", "1", "2", *SMALL_SWEEP, "--out", "out"]
    done = submitted(tmp_path, env, *words)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [json.loads(line) for line in (tmp_path / "out" / "runs.jsonl").read_text().splitlines()]
    assert {(row["config"]["machines"], row["outcome"]) for row in rows} == {(1, "ok"), (2, "ok")}
    assert {row["metrics"]["samples_per_step"] for row in rows} == {8, 16}
    processes = [process for host in network.hosts for process in host.processes()]
    assert not [process.name() for process in processes if "ray" in " ".join(process.cmdline())]
    assert not list(tmp_path.glob(".ray-*")), "the token and the log of Ray are deleted with the job"
    written = b"".join(file.read_bytes() for file in (tmp_path / "out").rglob("*") if file.is_file())
    assert env["MARKER"].encode() not in written
    assert not {"\x1b", "\r"} & set(done.stdout)


@pytest.mark.multihost
def test_a_slurm_job_ends_at_once_and_names_the_node_on_which_ray_did_not_start(
    network: Network, tmp_path: Path
) -> None:
    network.add(2)
    done = submitted(tmp_path, slurm(network, tmp_path, broken="host-2"), "python", "-c", "print('ran')")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Ray has not started on host-2" in done.stderr
    assert "no such ray" in done.stderr
    processes = [process.name() for host in network.hosts for process in host.processes()]
    assert not [name for name in processes if "raylet" in name]
    assert not list(tmp_path.glob(".ray-*"))
