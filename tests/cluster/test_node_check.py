from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from dmls_ray.cluster.node_check import _looker, objection_to
from dmls_ray.cluster.resources import Machine

ONE = Machine("one", "1", 2, 0)


def found(**changes: Any) -> dict[str, Any]:
    here = {"python": "/opt/bin/python", "libraries": {"torch": "2.15.0", "numpy": "2.1"}, "dmls_ray": "abc"}
    return {**here, "where": "/opt/dmls_ray", **changes}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, ""),
        ({"dmls_ray": None}, "dmls_ray is missing; there, /opt/bin/python -m pip install . in a checkout"),
        ({"dmls_ray": "other"}, "its dmls_ray in /opt/dmls_ray is not the one here"),
        (
            {"libraries": {"torch": None, "numpy": "1.26"}},
            "torch is missing (here 2.15.0), numpy 1.26 (here 2.1); there, /opt/bin/python -m pip install "
            "torch==2.15.0 numpy==2.1.",
        ),
    ],
)
def test_a_machine_that_lacks_something_is_refused_in_one_line_with_the_remedy(
    changes: dict[str, Any], message: str
) -> None:
    objection = objection_to(ONE, found(**changes), found())
    assert message in objection
    assert objection.startswith("one cannot run ranks: ") == bool(message)
    assert "\n" not in objection


def test_a_machine_is_looked_at_where_dmls_ray_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "look").write_bytes(cloudpickle.dumps(_looker()))
    script = "import pickle, sys; sys.path[:] = [p for p in sys.path if p]; sys.meta_path.insert(0, type('No', (), {"
    script += "'find_spec': staticmethod(lambda name, *_: (_ for _ in ()).throw(ImportError(name)) if name.startswith("
    script += "'dmls_ray.') else None)})()); print(sorted(pickle.load(open(sys.argv[1], 'rb'))()))"
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "look")], capture_output=True, text=True, cwd="/", check=False
    )
    assert done.stdout == "['dmls_ray', 'libraries', 'python', 'where']\n", done.stderr


def test_this_machine_has_what_it_needs_itself() -> None:
    here = pickle.loads(cloudpickle.dumps(_looker()))()
    assert here["dmls_ray"]
    assert objection_to(ONE, here, here) == ""
