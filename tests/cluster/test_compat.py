"""The private APIs of Ray that this package uses."""

from __future__ import annotations

import pkgutil
import re
from pathlib import Path

import pytest

from dmls_ray.cluster.compat import PRIVATE_NAMES
from tests.conftest import PROJECT


@pytest.mark.parametrize("name", PRIVATE_NAMES, ids=lambda name: name.partition(":")[2])
def test_a_private_name_of_ray_still_exists(name: str) -> None:
    pkgutil.resolve_name(name)


def test_private_modules_of_ray_are_imported_in_compat_only() -> None:
    private = re.compile(r"ray\.(_private|_raylet|core\.generated)|ray\.\w+(\.\w+)*\._internal")
    using = {path.name for path in Path(PROJECT / "dmls_ray").rglob("*.py") if private.search(path.read_text())}
    assert using == {"compat.py"}
