"""The private APIs of Ray that this package uses."""

from __future__ import annotations

import pkgutil
import re
import subprocess
import sys
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


THREE_MAKERS = """
import ray
from ray.util.placement_group import PlacementGroup, placement_group, placement_group_table
from dmls_ray.cluster.compat import free_placement_groups_of

@ray.remote(num_cpus=0)
class Maker:
    def make(self) -> PlacementGroup:
        return placement_group([{"CPU": 1}])

ray.init(address="local", num_cpus=3, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
dies, lives = Maker.remote(), Maker.remote()
groups = [placement_group([{"CPU": 1}]), *ray.get([lives.make.remote(), dies.make.remote()])]
for group in groups:
    assert group.wait(60)
ray.kill(dies)
try:
    ray.get(dies.make.remote())
except ray.exceptions.ActorDiedError as error:
    free_placement_groups_of(error.actor_id)
print([placement_group_table(group)["state"] for group in groups])
"""


@pytest.mark.slow
def test_only_the_placement_groups_of_the_actor_that_died_are_freed() -> None:
    done = subprocess.run([sys.executable, "-c", THREE_MAKERS], capture_output=True, text=True, timeout=280, check=True)
    assert done.stdout.splitlines()[-1] == str(["CREATED", "CREATED", "REMOVED"])
