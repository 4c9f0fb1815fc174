"""The private APIs of Ray that this package uses."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dmls_ray.cluster.compat import PRIVATE_APIS, PrivateAPI
from tests.conftest import PROJECT


@pytest.mark.parametrize("api", PRIVATE_APIS, ids=lambda api: api.path.partition(":")[2])
def test_a_private_api_of_ray_still_exists(api: PrivateAPI) -> None:
    assert api.exists, f"{api.path}, seen in ray {api.seen_in}, is gone; without it: {api.without}"


def test_a_name_that_ray_does_not_have_is_reported() -> None:
    assert not PrivateAPI("ray._private.nowhere:x", "", "").exists
    assert not PrivateAPI("ray._private.utils:nothing", "", "").exists


def test_private_modules_of_ray_are_imported_in_compat_only() -> None:
    private = re.compile(r"ray\.(_private|_raylet|core\.generated)|ray\.\w+(\.\w+)*\._internal")
    using = {path.name for path in Path(PROJECT / "dmls_ray").rglob("*.py") if private.search(path.read_text())}
    assert using == {"compat.py"}
