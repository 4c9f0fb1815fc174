from __future__ import annotations

import subprocess
import types
from pathlib import Path
from typing import Any

import pynvml
import pytest

from dmls_ray.records import provenance
from dmls_ray.records.provenance import (
    describe_checkout,
    describe_environment,
    differing_facts,
    hardware_key,
    machine_facts,
    software_facts,
)


def commit_all(folder: Path) -> None:
    """Make a folder a checkout whose only commit has all its files."""
    identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for words in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-q", "-m", "First"]):
        subprocess.run(["git", *words], cwd=folder, check=True)


def refuse(*_: object) -> None:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


NVML = {
    "nvmlInit": lambda: None,
    "nvmlShutdown": lambda: None,
    "nvmlDeviceGetCount": lambda: 2,
    "nvmlDeviceGetHandleByIndex": lambda index: index,
    "nvmlDeviceGetName": lambda handle: f"GPU {handle}",
    "nvmlDeviceGetMemoryInfo": lambda handle: types.SimpleNamespace(total=(80 - 56 * handle) * 2**30),
    "nvmlSystemGetDriverVersion": lambda: "575.1",
}
"""A machine with one GPU of 80 GiB and one of 24, as NVML describes them."""

NAMES = ["GPU 0", "GPU 1"]


@pytest.mark.parametrize(
    ("changes", "gpus"),
    [
        ({}, {"gpus": NAMES, "gpu_memory_mib": [81920, 24576], "driver": "575.1"}),
        ({"nvmlDeviceGetMemoryInfo": refuse}, {"gpus": NAMES, "gpu_memory_mib": [], "driver": "575.1"}),
        ({"nvmlInit": refuse}, {"gpus": [], "gpu_memory_mib": None, "driver": None}),
    ],
    ids=["known", "memory unknown", "no driver"],
)
def test_the_gpus_of_a_machine_are_described(
    changes: dict[str, Any], gpus: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, answer in (NVML | changes).items():
        monkeypatch.setattr(pynvml, name, answer)
    machine = machine_facts.__wrapped__()  # not the machine that an earlier test has found
    assert {name: machine.get(name) for name in gpus} == gpus


def test_hardware_is_equal_if_host_cpu_cores_and_gpus_are() -> None:
    machine = {"host": "a", "cpu": "EPYC", "cores": 8, "gpus": ["H200"], "memory_mib": 1024}
    assert hardware_key(machine) == hardware_key({**machine, "memory_mib": 2048})
    for change in ({"host": "b"}, {"cpu": "Xeon"}, {"cores": 4}, {"gpus": []}):
        assert hardware_key(machine) != hardware_key({**machine, **change})


def test_software_is_equal_if_versions_commit_and_changes_of_the_package_are() -> None:
    versions, git = {"torch": "2.9", "cuda": "12.8"}, {"commit": "a" * 40, "dirty": True, "changes": ""}
    facts = software_facts(versions, git)
    assert facts == {"torch": "2.9", "cuda": "12.8", "commit": "a" * 12}
    assert facts == software_facts(versions, {**git, "dirty": False}), "other files of the checkout do not count"
    for other in ({"commit": "b" * 40}, {"changes": "01"}):
        assert facts != software_facts(versions, {**git, **other})
    assert facts != software_facts({**versions, "cuda": "13"}, git)
    assert software_facts({}, {}) == {}
    assert differing_facts([{"a": "1", "b": "2"}, {"a": "1"}]) == ["b 2", "b unknown"]


def test_the_checkout_of_a_user_is_dirty_with_changes_or_new_code_and_not_with_new_results(
    tmp_path: Path,
) -> None:
    script = tmp_path / "src" / "train.py"
    script.parent.mkdir()
    script.write_text("steps = 1\n")
    (tmp_path / "README.md").write_text("Read me.\n")
    assert describe_checkout(script) == describe_checkout(script.parent) == {}
    commit_all(tmp_path)
    described = describe_checkout(script)
    assert (len(described["commit"]), described["dirty"]) == (40, False)
    for name, is_code in (
        ("results/runs.jsonl", False), ("src/.ipynb_checkpoints/a.ipynb", False), ("new ones/a.py", True),
        ("new/a.ipynb", True),
    ):  # fmt: skip
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("")
        assert describe_checkout(script.parent) == described | {"dirty": is_code}
        (tmp_path / name).unlink()
    (tmp_path / "README.md").write_text("Of another folder.\n")
    assert describe_checkout(script) == described | {"dirty": True}
    script.write_text("steps = 2\n")
    edited = describe_checkout(script)
    assert edited == described | {"dirty": True, "changes": edited["changes"]}
    assert edited["changes"] != ""


def test_a_folder_that_git_knows_nothing_of_is_no_part_of_the_checkout_around_it(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("")
    commit_all(tmp_path)
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").write_text("")
    assert describe_checkout(tmp_path / "project" / "train.py") == {}


def test_the_environment_has_the_variables_of_pytorch_and_its_libraries_and_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    relevant = {
        "CUDA_VISIBLE_DEVICES": "0", "GLOO_SOCKET_IFNAME": "lo", "MKL_NUM_THREADS": "2", "NCCL_ALGO": "Ring",
        "OMP_NUM_THREADS": "1", "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "TORCH_LOGS": "",
    }  # fmt: skip
    secret = {"AWS_SECRET_ACCESS_KEY": "a", "WANDB_API_KEY": "b", "HF_TOKEN": "c", "MY_NCCL_ALGO": "d", "TORCHX": "e"}
    monkeypatch.setattr(provenance.os, "environ", {"PATH": "/bin", **secret, **relevant})
    assert describe_environment() == relevant
