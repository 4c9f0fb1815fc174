from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import cloudpickle
import pytest

from dmls_ray.cluster.node_check import MISSING, differing, make_look

HERE = {"torch": "2.15.0", "numpy": "2.1", "torchvision": MISSING, "dmls_ray": "abc"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, ""),
        ({"torchvision": "0.30"}, ""),
        ({"dmls_ray": MISSING}, "dmls_ray is missing (here abc)"),
        ({"torch": MISSING, "numpy": "1.26"}, "torch is missing (here 2.15.0), numpy 1.26 (here 2.1)"),
    ],
)
def test_what_a_machine_lacks_or_has_in_another_version(changes: dict[str, str], expected: str) -> None:
    assert differing({**HERE, **changes}, HERE) == expected


def test_a_machine_is_looked_at_where_dmls_ray_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "look").write_bytes(cloudpickle.dumps(make_look()))
    script = "import pickle, sys; sys.path[:] = [p for p in sys.path if p]; sys.meta_path.insert(0, type('No', (), {"
    script += "'find_spec': staticmethod(lambda name, *_: (_ for _ in ()).throw(ImportError(name)) if name.startswith("
    script += "'dmls_ray.') else None)})()); print(sorted(pickle.load(open(sys.argv[1], 'rb'))()))"
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "look")], capture_output=True, text=True, cwd="/", check=False
    )
    assert "'dmls_ray'" in done.stdout, done.stderr
