from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.conftest import PROJECT, call

pytest.importorskip("mpi4py", reason="backend mpi needs pip install 'dmls_ray[mpi]'")

MPIEXEC = Path(sys.executable).with_name("mpiexec")


@pytest.mark.parametrize("ranks", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_each_collective_of_training_equals_gloos_and_the_others_are_refused(ranks: int) -> None:
    words = ["-n", str(ranks), sys.executable, "-m", "mpi4py", "-m", "tests.training.mpi_checks", "60"]
    done = call([MPIEXEC, *words], PROJECT, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip() == f"60 cases on {ranks} ranks"


def test_without_mpi4py_the_error_names_the_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    from dmls_ray.training.mpi_backend import world
    from dmls_ray.util.errors import UnavailableError

    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(UnavailableError, match=r"pip install 'dmls_ray\[mpi\]'"):
        world()
