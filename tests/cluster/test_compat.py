"""The private APIs of Ray that this package uses."""

from __future__ import annotations

import ast
import pkgutil
import re
from pathlib import Path

import pytest

from tests.conftest import PROJECT

COMPAT = PROJECT / "dmls_ray" / "cluster" / "compat.py"
LOOP = PROJECT / "dmls_ray" / "workloads" / "user_function" / "ray_loop.py"
"""Imports no module of the cluster, which stands above it."""

ATTRIBUTES = (
    "ray._private.auto_init_hook:enable_auto_connect",
    "ray._private.ray_constants:ENABLE_RAY_CLUSTER",
    "ray._private.worker:_worker_logs_enabled",
    "ray.train.torch:TorchTrainer._create_default_callbacks",
)
NODES = [node for path in (COMPAT, LOOP) for node in ast.walk(ast.parse(path.read_text()))]
IMPORTS = [ast.unparse(node) for node in NODES if isinstance(node, ast.ImportFrom)]


@pytest.mark.parametrize("name", ATTRIBUTES)
def test_a_private_attribute_of_ray_still_exists(name: str) -> None:
    pkgutil.resolve_name(name)


def test_private_names_of_ray_can_be_imported() -> None:
    for statement in IMPORTS:
        exec(statement, {})


def test_private_modules_of_ray_are_imported_in_two_places_only() -> None:
    private = re.compile(r"ray\.(_private|_raylet|core\.generated)|ray\.\w+(\.\w+)*\._internal")
    using = {path.name for path in Path(PROJECT / "dmls_ray").rglob("*.py") if private.search(path.read_text())}
    assert using == {COMPAT.name, LOOP.name}
