"""Packages of one module with a workload, installed with an entry point, and sweeps of them in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dmls_ray.cli.sweep_script import main
from dmls_ray.config.sweep_file import Preset
from dmls_ray.workloads import registry

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Install]:
    """Write a module and its metadata, as pip installs them, into the working folder, and return that folder."""
    number = 0

    def add(source: str, entry: str = "odd", reference: str = "{package}:Odd") -> Path:
        nonlocal number
        number += 1
        # A module that another test has imported is not imported again.
        package = f"odd_{abs(hash((request.node.name, number)))}"
        (tmp_path / f"{package}.py").write_text(source.replace("PACKAGE", package))
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: package-{number}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\n{entry} = {reference.format(package=package)}\n")
        forget_workloads()
        return tmp_path

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield add
    forget_workloads()


def forget_workloads() -> None:
    registry.installed.cache_clear()
    registry.registered_metrics.cache_clear()


def sweep(*words: object, **preset: Any) -> int:
    """The exit status of a sweep script without ranks of Ray."""
    with pytest.raises(SystemExit) as ended:
        main(
            Preset(**{"name": "sweep", "question": "Why?", "axis": None, "axes": {}, **preset}),
            [*map(str, words), "--launcher", "inline", "--device", "cpu"],
        )
    return int(ended.value.code or 0)
