"""The wheel and the archive of the sources: what they install, and a sweep of a script from there."""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
import venv
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conftest import PROJECT

pytestmark = pytest.mark.slow

SCRIPT = """
import argparse

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
batch_size = parser.parse_args().batch_size
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(10):
    optimizer.zero_grad()
    model(torch.randn(batch_size, 8)).square().mean().backward()
    optimizer.step()
"""

TORCH = """Metadata-Version: 2.1
Name: torch
Version: 2.8.0+cpu
Requires-Dist: filelock
Requires-Dist: typing-extensions>=4.10.0
Requires-Dist: sympy>=1.13.3
Requires-Dist: networkx
Requires-Dist: jinja2
Requires-Dist: fsspec
"""


def run(*command: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> str:
    """Run a command; returns its output."""
    done = subprocess.run([*map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """The wheel and the sdist of the files that git knows."""
    sources, out = tmp_path_factory.mktemp("sources"), tmp_path_factory.mktemp("dist")
    run("git", "clone", "-q", PROJECT, sources / "clone", cwd=sources)
    run(sys.executable, "-m", "build", "--no-isolation", "-o", out, sources / "clone", cwd=sources)
    return {path.suffix: path for path in out.iterdir()}


def new_environment(folder: Path, *, sees_installed: bool) -> Path:
    """An environment without any package, or with those of this one but for dmls_ray; returns its Python."""
    venv.create(folder, with_pip=False)
    packages = next(folder.glob("lib/python*/site-packages"))
    if sees_installed:
        # Folders that a .pth file names are not searched for further .pth files, as that of an editable install.
        (packages / "others.pth").write_text("\n".join(site.getsitepackages()))
    return folder / "bin" / "python"


@pytest.mark.parametrize("suffix", [".whl", ".gz"])
def test_a_sweep_of_a_script_runs_from_the_wheel_and_from_the_sources(
    archives: Mapping[str, Path], suffix: str, tmp_path: Path
) -> None:
    python = new_environment(tmp_path / "env", sees_installed=True)
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-deps"]
    run(*pip, "--no-build-isolation", "--ignore-installed", archives[suffix], cwd=tmp_path)
    (tmp_path / "train.py").write_text(SCRIPT)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    place = run(python, "-c", "import dmls_ray; print(dmls_ray.__file__)", cwd=tmp_path, env=env)
    assert Path(place).is_relative_to(tmp_path / "env")
    skill = run(python.with_name("dmls-ray"), "skill", cwd=tmp_path, env=env)
    assert skill == (PROJECT / "dmls_ray" / "cli" / "commands" / "SKILL.md").read_text()
    command = [python.with_name("dmls-ray"), "sweep", "train.py", "--batch-size", "4", "8", "--repeats", "1"]
    run(*command, cwd=tmp_path, env=env)
    runs = (tmp_path / "results" / "train" / "runs.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["config"]["batch_size"] for line in runs) == [4, 8]
    assert {json.loads(line)["outcome"] for line in runs} == {"ok"}


def test_an_environment_with_a_torch_of_its_own_keeps_it(archives: Mapping[str, Path], tmp_path: Path) -> None:
    python = new_environment(tmp_path / "env", sees_installed=False)
    info = next((tmp_path / "env").glob("lib/python*/site-packages")) / "torch-2.8.0+cpu.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(TORCH)
    (info / "RECORD").write_text("")
    command = [sys.executable, "-m", "pip", "--python", python, "install", "--dry-run", "-q"]
    command += ["--report", tmp_path / "report.json", archives[".whl"]]
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"pip reached no package index: {done.stderr.strip().splitlines()[-1]}")
    report = json.loads((tmp_path / "report.json").read_text())
    names = {item["metadata"]["name"].lower().replace("_", "-") for item in report["install"]}
    assert {"ray", "pandas", "dmls-ray"} <= names
    assert not names & {"torch", "torchvision", "triton", "torchao", "scikit-learn", "tensorboard"}
    assert len(names) <= 45
