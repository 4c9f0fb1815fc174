"""The files in sweeps/cluster: what Slurm and Ray's cluster launcher are given."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PROJECT, call

FOLDER = PROJECT / "sweeps" / "cluster"

# In a process of its own: Ray's modules warn when they are loaded.
VALIDATE = """
import sys, yaml
from ray.autoscaler._private.util import prepare_config, validate_config
validate_config(prepare_config(yaml.safe_load(open(sys.argv[1]))))
"""


@pytest.mark.parametrize("name", ["on_premise.yaml", "aws.yaml"])
def test_rays_cluster_launcher_takes_the_file(name: str) -> None:
    done = call([sys.executable, "-c", VALIDATE, FOLDER / name])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["on_premise.yaml", "aws.yaml", "slurm.sbatch"])
def test_every_ray_that_is_started_asks_for_a_token_and_shows_nothing_to_others(name: str) -> None:
    text = (FOLDER / name).read_text()
    starts = [line for line in text.splitlines() if "ray start -" in line and not line.lstrip().startswith("#")]
    assert starts
    assert "export RAY_AUTH_MODE=token" in text or all("RAY_AUTH_MODE=token" in line for line in starts)
    assert "0.0.0.0" not in text


def test_shellcheck_has_nothing_against_the_slurm_script() -> None:
    beside = Path(sys.executable).with_name("shellcheck")
    shellcheck = str(beside) if beside.exists() else shutil.which("shellcheck")
    if shellcheck is None:
        pytest.skip("shellcheck is not installed; it comes with pip install -e '.[dev]'")
    done = call([shellcheck, FOLDER / "slurm.sbatch"])
    assert done.returncode == 0, done.stdout


def slurm_script(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the script in a job of three nodes on which no step can start."""
    for name, text in {"scontrol": "echo n1; echo n2; echo n3", "srun": 'echo "$@" >>steps; exit 2'}.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    path = f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    job = {"PATH": path, "SLURM_JOB_ID": "1", "SLURM_JOB_NODELIST": "n[1-3]", "SLURM_JOB_CPUS_PER_NODE": "4,2(x2)"}
    return call(["bash", FOLDER / "slurm.sbatch"], folder, env=job | variables, timeout=60)


def test_a_head_that_the_other_nodes_do_not_find_is_reported_in_a_line(tmp_path: Path) -> None:
    done = slurm_script(tmp_path)
    assert done.returncode == 1
    assert done.stderr == "slurm.sbatch: n3 finds no IPv4 address of n1; give it as RAY_HEAD_IP.\n"
    assert not list(tmp_path.glob(".ray-*"))
    (step,) = (tmp_path / "steps").read_text().splitlines()
    assert {"--nodelist=n3", "--cpus-per-task=2"} < set(step.split())


def test_a_number_of_requeues_that_is_none_is_refused_before_anything_starts(tmp_path: Path) -> None:
    done = slurm_script(tmp_path, SWEEP_REQUEUE="yes")
    assert done.returncode == 2
    assert done.stderr.startswith("slurm.sbatch: SWEEP_REQUEUE=yes: ")
    assert not (tmp_path / "steps").exists()
