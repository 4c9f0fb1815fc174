"""The worker processes of a cluster that is started here are copies of templates."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform != "linux", reason="templates are for Linux alone"),
]

CLUSTER = """
import json
import os
import signal
import sys
import threading

import psutil
import ray

from dmls_ray.cluster.connect import RaySession


class Actor:
    def describe(self):
        made = []
        thread = threading.Thread(target=lambda: made.append(ray.NodeID.from_random().hex()))
        thread.start()
        thread.join()
        parent = psutil.Process(os.getppid())
        return {
            "pid": os.getpid(),
            "parent": parent.pid,
            "grandparents": [process.pid for process in parent.parents()],
            "has_torch": "torch" in sys.modules,
            "threads": os.environ["OMP_NUM_THREADS"],
            "variable": os.environ.get("A"),
            "ids": [*made, ray.NodeID.from_random().hex()],
        }


def answers(*environments):
    actors = [ray.remote(num_cpus=0)(Actor).options(runtime_env={"env_vars": one}).remote() for one in environments]
    return ray.get([actor.describe.remote() for actor in actors])


with RaySession(None, dashboard=False, verbose=False).connected():
    found = answers({}, {}, {"A": "1"})
    if sys.argv[1] == "kill":
        os.kill(found[0]["parent"], signal.SIGKILL)
    print(json.dumps({"driver": os.getpid(), "found": found, "later": answers({"B": "2"})}))
left = [process.pid for process in psutil.Process().children(recursive=True)]
assert not left, left
"""


def cluster(*words: str) -> dict[str, Any]:
    done = subprocess.run([sys.executable, "-c", CLUSTER, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_workers_are_copies_that_have_pytorch_their_own_environment_and_their_own_ids() -> None:
    seen = cluster("go on")
    found = seen["found"]
    assert len({one["parent"] for one in found}) == 1
    assert seen["driver"] in found[0]["grandparents"]
    assert all(one["has_torch"] for one in found)
    assert {one["threads"] for one in found} == {"1"}
    assert [one["variable"] for one in found] == [None, None, "1"]
    ids = [made for one in found for made in one["ids"]]
    assert len(set(ids)) == len(ids)


def test_without_their_template_workers_start_by_themselves() -> None:
    seen = cluster("kill")
    [later] = seen["later"]
    assert later["parent"] != seen["found"][0]["parent"]
    assert not later["has_torch"]
