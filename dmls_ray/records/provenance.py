"""Provenance of a run: the machine, the versions and the state of the source code, as plain values."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import itertools
import os
import platform
import shutil
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

from dmls_ray.records.gpu_state import open_gpus, read_nvml
from dmls_ray.util.cores import usable_cores


@functools.cache
def machine_facts() -> dict[str, Any]:
    """Host, CPU, cores, memory, and GPUs with their memory and their driver."""
    cpu = platform.processor() or platform.machine()
    if sys.platform == "linux":
        for line in reversed(Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()):
            if line.startswith(("model name", "Model", "Hardware")):
                cpu = line.partition(":")[2].strip()
    described: dict[str, Any] = {
        "host": socket.gethostname(),
        "os": platform.platform(),
        "cpu": cpu,
        "cores": usable_cores(),
        "memory_mib": round(psutil.virtual_memory().total / 2**20),
    }
    return described | _gpus()


def machine_text(described: Mapping[str, Any]) -> str:
    """`host-2: AMD EPYC, 8 cores, 2 x NVIDIA H200`."""
    gpus = [f"{count} x {name}" for name, count in Counter(described["gpus"]).items()]
    parts = [described["cpu"], f"{described['cores']} cores", *gpus]
    return f"{described['host']}: {', '.join(parts)}"


def kind_of_machine(described: Mapping[str, Any]) -> str:
    """`AMD EPYC, 250 GiB, NVIDIA H200`: what machines have in common that are equally fast, but their cores.

    Memory has two digits, since machines of one kind report a little more or less.
    """
    memory = f"{described.get('memory_mib', 0) / 1024:.2g} GiB"
    return ", ".join([str(described.get("cpu")), memory, *described.get("gpus", [])])


@functools.cache
def describe_versions() -> dict[str, str]:
    """Versions of Python and of the packages that do the work; none of the packages is imported."""
    versions = {"python": platform.python_version()}
    for package in ("dmls_ray", "torch", "torchvision", "ray", "numpy"):
        versions[package] = version_of(package) or "not installed"
    # PyTorch may come with CUDA and NCCL as wheels of their own names.
    for label, package in (("cuda", "nvidia-cuda-runtime"), ("nccl", "nvidia-nccl")):
        if version := version_of(package) or version_of(f"{package}-cu13") or version_of(f"{package}-cu12"):
            versions[label] = version
    return versions


@functools.cache
def describe_git() -> dict[str, Any]:
    """The checkout that dmls_ray runs from; empty where it is installed."""
    return describe_checkout(Path(__file__).parents[1])


def describe_checkout(path: Path) -> dict[str, Any]:
    """Commit of the checkout that a file or folder is in, and a digest of the changes to the folder. The checkout is
    dirty if it has changes, or new Python files or notebooks that are not ignored. Empty outside a checkout.
    """
    folder = path if path.is_dir() else path.parent
    commit = _git(folder, "rev-parse", "HEAD")
    # A home folder may be a checkout of settings, and a project or an environment in it no part of that.
    if not commit or not _git(folder, "ls-files", "--", "."):
        return {}
    edited = _git(folder, "status", "--porcelain", "--untracked-files=no")
    # Untracked results are no change of the code.
    untracked = ("ls-files", "--others", "--exclude-standard", "--exclude=.ipynb_checkpoints")
    new = _git(folder, *untracked, "--", ":/*.py", ":/*.ipynb")
    changes = _git(folder, "diff", "HEAD", "--", ".")
    digest = hashlib.sha256(changes.encode()).hexdigest()[:8] if changes else ""
    return {"commit": commit, "dirty": bool(edited or new), "changes": digest}


_PREFIXES = ("CUDA_", "GLOO_", "MKL_", "NCCL_", "OMP_", "PYTORCH_", "TORCH_")
"""Of the environment variables that are recorded. The values of others may be secrets."""


def describe_environment() -> dict[str, str]:
    """The environment variables of this process that change what PyTorch and its libraries do, with their values."""
    return {name: value for name, value in sorted(os.environ.items()) if name.startswith(_PREFIXES)}


def has_cpp_compiler() -> bool:
    """Whether there is a C++ compiler where PyTorch looks for it."""
    return bool(shutil.which("c++") or shutil.which("g++") or shutil.which("clang++"))


def hardware_key(machine: Mapping[str, Any]) -> tuple[str, ...]:
    """Host, CPU, cores and GPUs of a described machine. Times are comparable only where these are equal."""
    return tuple(str(machine.get(name)) for name in ("host", "cpu", "cores", "gpus"))


def commit_text(git: Mapping[str, Any]) -> str:
    """`0123456789ab with changes 89abcdef`: what a described checkout contributes to a run; empty without a commit."""
    commit = str(git.get("commit") or "")[:12]
    if commit and git.get("changes"):
        return f"{commit} with changes {git['changes']}"
    return commit


def software_facts(versions: Mapping[str, Any], git: Mapping[str, Any]) -> dict[str, str]:
    """Versions and the commit of dmls_ray by name. Runs are comparable only where all are equal."""
    facts = {name: str(version) for name, version in versions.items()}
    if commit := commit_text(git):
        facts["commit"] = commit
    return facts


def differing_facts(described: Sequence[Mapping[str, str]]) -> list[str]:
    """For each of several `software_facts`, those that not all share: `torch 2.9.0, commit 0123456789ab`."""
    texts: list[list[str]] = [[] for _ in described]
    for name in dict.fromkeys(itertools.chain.from_iterable(described)):
        values = [facts.get(name, "unknown") for facts in described]
        if len({*values}) > 1:
            for text, value in zip(texts, values, strict=True):
                text.append(f"{name} {value}")
    return list(map(", ".join, texts))


def version_of(package: str) -> str:
    """Version of a package; empty where it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _gpus() -> dict[str, Any]:
    gpus = open_gpus()
    if not gpus:
        return {"gpus": []}
    memory = []
    for gpu in gpus:
        known = read_nvml("nvmlDeviceGetMemoryInfo", gpu)
        if known is not None:  # a GPU that shares the host's memory has no number
            memory.append(round(known.total / 2**20))
    return {
        "gpus": [read_nvml("nvmlDeviceGetName", gpu) for gpu in gpus],
        "gpu_memory_mib": memory,
        "driver": read_nvml("nvmlSystemGetDriverVersion"),
    }


def _git(folder: Path, *words: str) -> str:
    """The output of a command of git; empty where it fails."""
    try:
        done = subprocess.run(["git", *words], cwd=folder, capture_output=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.decode(errors="replace").strip()
