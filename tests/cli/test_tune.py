"""`dmls-ray tune`: what it recognizes, what it refuses, and the command that it ends with."""

from __future__ import annotations

import json
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dmls_ray import load
from dmls_ray.workloads.registry import workload, workload_of_script
from tests.conftest import Command

SCRIPT = """
import argparse, time

def numbers(text):
    import torch
    return torch.tensor([float(part) for part in text.split(",")])

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("-j", "--workers", type=int, default=0)
parser.add_argument("--amp", action="store_true")
parser.add_argument("--no-amp", action="store_false", dest="amp")
parser.add_argument("--betas", type=numbers)
given = parser.parse_args()

import torch
from torch.utils.data import DataLoader, Dataset

class Slow(Dataset):
    def __len__(self):
        return 10**6

    def __getitem__(self, index):
        time.sleep(0.001)
        return torch.full((8,), float(index % 7))

model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in DataLoader(Slow(), given.batch_size, num_workers=given.workers):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT)
    return tmp_path


def tune(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dmls_ray", "tune", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_help_says_what_can_be_tuned(typed: Command) -> None:
    shown = typed("tune", "--help")
    assert shown.returncode == 0
    assert "--change-training" in shown.stdout


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("missing.py", "missing.py: there is no such file"),
        ("train.py --batch-size 8 16", "--batch-size 8 16: tune starts from one value; give one."),
        ("train.py --repeats 3", "--repeats 3: tune repeats until a setting is decided"),
        ("train.py --budget none", "--budget none: tune needs a time"),
        ("train.py --dry-run", "--dry-run: tune has no plan to print"),
        ("train.py --flag batches=--batch-size", "--flag batches=--batch-size: did you mean batch?"),
        ("train.py --flag batch=--size", "--flag batch=--size: there is no flag --size"),
    ],
)
def test_bad_input_is_one_line_before_anything_starts(
    folder: Path, words: str, line: str, typed: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    done = typed("tune", *words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_command_to_paste_is_that_of_python_or_torchrun(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    workload, given = workload_of_script("train.py", ["--workers=1", "--amp"]).split_off(("workers", "batch_size"))
    assert given == {"workers": 1}
    assert workload.command_of({"workers": 2}) == "python train.py --amp --workers 2"
    values = {"world_size": 2, "threads_per_rank": 1, "batch_size": 8}
    command = "OMP_NUM_THREADS=1 torchrun --standalone --nproc-per-node 2 train.py --amp --batch-size 8"
    assert workload.command_of(values) == command
    noted = workload_of_script("train.py", variables={"NOTE": ["a b"]})
    assert noted.command_of({"NOTE": "a b"}) == "NOTE='a b' python train.py"


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("--workers 1", {"workers": 1}),
        ("--workers=1", {"workers": 1}),
        ("-j 1", {"workers": 1}),
        ("-j1", {"workers": 1}),
        ("--wor 1 --amp", {"workers": 1}),
        ("--workers 8 --batch-size 8", {"workers": 8, "batch_size": 8}),
        ("--workers 2 -j3", {"workers": 3}),
        ("--betas 0.9,0.99 -j 1", {"workers": 1}),
    ],
)
def test_the_settings_at_the_start_are_those_of_the_command_line_however_they_are_spelled(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: str, given: dict[str, int]
) -> None:
    monkeypatch.chdir(folder)
    workload, found = workload_of_script("train.py", words.split()).split_off(("workers", "batch_size"))
    assert found == given
    rest = " --amp" if "--amp" in words else " --betas 0.9,0.99" if "--betas" in words else ""
    assert workload.command_of({"workers": 2}) == f"python train.py{rest} --workers 2"


def test_one_of_two_switches_of_an_argument_is_not_the_other(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    workload, found = workload_of_script("train.py", ["--no-amp"]).split_off(("amp", "no_amp"))
    assert found == {"no_amp": True}
    assert workload.command_of(found) == "python train.py --no-amp"


def test_of_a_workload_it_is_a_sweep() -> None:
    command = workload("classification").command_of({"batch_per_rank": 32, "compile": "default"})
    assert command == "dmls-ray sweep grid --workload classification --batch-per-rank 32 --compile default"


@pytest.mark.slow
def test_a_loader_without_workers_is_found_and_nothing_that_changes_the_training_is_tried(folder: Path) -> None:
    done = tune("train.py", "--budget", "60", "--steps", "20", "--out", "out", "--", "--workers", "0", folder=folder)
    assert done.returncode == 0, done.stderr
    command = re.search(r"^Set +(.*)$", done.stdout, re.MULTILINE)
    assert command is not None
    assert re.search(r"python train.py --workers [124]", command[1])
    assert "--amp" not in command[1]
    gain = re.search(r"([\d.]+)x \[[\d.]+, [\d.]+\] \(n=\d+\) as fast as now", done.stdout)
    assert gain is not None
    assert float(gain[1]) > 1.3
    now, then = re.search(r"MFU (\S+) \[.*\] instead of (\S+) \[", done.stdout).groups()  # type: ignore[union-attr]
    assert 1.3 < float(now) / float(then) < 2 * float(gain[1])
    assert re.search(r"^(not tried| *) *precision: .*--change-training", done.stdout, re.MULTILINE)
    records = load(folder / "out").records
    assert {record.outcome.value for record in records} == {"ok"}
    assert {record.config["workers"] for record in records} >= {0, 1, 2}


@pytest.mark.slow
def test_a_change_of_the_training_is_named_with_its_loss_and_a_batch_is_known_by_its_value(folder: Path) -> None:
    script = (folder / "train.py").read_text().replace("--batch-size", "--chunk").replace("batch_size", "chunk")
    (folder / "train.py").write_text(script)
    words = ["--change-training", "--budget", "90", "--steps", "20", "--flag", "loader-workers=none", "precision=none"]
    done = tune("train.py", *words, "--out", "out", folder=folder)
    assert done.returncode == 0, done.stderr
    assert "batch=--chunk (16)" in done.stdout
    assert re.search(r"chunk=\d+ .*changes the training \(last loss", done.stdout)
    assert "workers=" not in done.stdout.replace("loader-workers=", "")


@pytest.mark.slow
def test_what_was_found_is_written_as_json(folder: Path) -> None:
    words = ["--budget", "120", "--steps", "20", "--flag", "threads=none", "--format", "json", "--out", "out"]
    done = tune("train.py", *words, "--", "--workers", "0", folder=folder)
    found = json.loads(done.stdout)
    assert found["is_faster"]
    assert 1 < found["gain"]["low"] <= found["gain"]["value"]
    assert found["command"] == f"python train.py --workers {found['kept'][0]['values']['workers']}"
    assert found["not_tried"]["precision"]
    assert {tried["does"] for tried in found["kept"]} == {""}


@pytest.mark.slow
def test_a_training_that_fails_is_said_and_nothing_is_tried(folder: Path) -> None:
    (folder / "train.py").write_text("raise SystemExit(3)\n" + SCRIPT)
    done = tune("train.py", "--out", "out", folder=folder)
    assert done.returncode != 0
    assert "Set" not in done.stdout


@pytest.mark.slow
def test_where_no_time_is_left_the_way_out_is_said_and_a_sweep_of_the_script_has_another_folder(folder: Path) -> None:
    done = tune("train.py", "--budget", "1", "--steps", "20", folder=folder)
    assert done.returncode == 0, done.stderr
    assert "nothing was tried; a run takes" in done.stdout
    assert [path.name for path in (folder / "results").iterdir()] == ["train-tune"]


LARGE_TENSORS = """
import resource, torch

weight = torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([weight], lr=0.01)
data = torch.ones(9 * 2**20)
for step in range(6):
    if step == 2:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    optimizer.zero_grad()
    (data * weight).square().mean().backward()
    optimizer.step()
print("faults", resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library reads no such variable")
def test_variables_of_the_environment_are_tried_and_say_what_they_do(folder: Path) -> None:
    (folder / "train.py").write_text(LARGE_TENSORS)
    words = ["--flag", "threads=none", "--metric-regex", "faults", r"faults (\d+)", "--steps", "none"]
    done = tune("train.py", "--budget", "120", *words, "--out", "out", folder=folder)
    assert done.returncode == 0, done.stderr
    assert "kept-memory=MALLOC_MMAP_MAX_ (not set)" in done.stdout
    assert re.search(r"MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=\d+ \d.*cause no page faults", done.stdout)
    assert re.search(r"tf32: it has no effect on cpu$", done.stdout, re.MULTILINE)
    faults: dict[bool, list[float]] = {True: [], False: []}
    for record in load(folder / "out").records:
        faults["MALLOC_MMAP_MAX_" in record.config].append(record.metrics["faults"])
    assert 3 * max(faults[True]) < min(faults[False])
