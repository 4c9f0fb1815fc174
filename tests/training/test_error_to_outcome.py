from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dmls_ray.config.identity import Identity
from dmls_ray.training.error_to_outcome import check_code
from dmls_ray.util.digests import source_digests
from dmls_ray.util.errors import CodeDiffersError
from tests.new_processes import run_inline
from tests.training.test_engine import config


@pytest.fixture(autouse=True)
def importable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])


def test_a_rank_with_other_sources_names_the_files_and_its_machine(tmp_path: Path) -> None:
    (tmp_path / "checked_a.py").write_text("import checked_b\n")
    (tmp_path / "checked_b.py").write_text("x = 1\n")
    here = source_digests(["checked_a"])
    check_code(Identity(modules=("checked_a",), code={**here, "train()": "of the driver"}), "host-2")
    with pytest.raises(CodeDiffersError, match=r"machine host-2 are not .* \(checked_b.py\)"):
        check_code(Identity(modules=("checked_a",), code={**here, "checked_b.py": "another"}), "host-2")
    with pytest.raises(CodeDiffersError, match=r"\(checked_a.py, checked_b.py\)"):
        check_code(Identity(modules=("checked_a",), code={}), "host-2")


def test_what_a_process_has_imported_counts_and_not_what_its_file_became(tmp_path: Path) -> None:
    (tmp_path / "checked_c.py").write_text("x = 1\n")
    identity = Identity(modules=("checked_c",), code=source_digests(["checked_c"]))
    check_code(identity, "host-1")
    (tmp_path / "checked_c.py").write_text("x = 2\n")
    check_code(identity, "host-1")


def test_a_run_with_other_sources_ends_in_an_error_before_it_trains(tmp_path: Path) -> None:
    (tmp_path / "checked_d.py").write_text("x = 1\n")
    result = run_inline(config(), identity=Identity(modules=("checked_d",), code={"checked_d.py": "of the driver"}))
    assert result.outcome == "error"
    assert result.reason.startswith("CodeDiffersError: the files on machine ")


def test_a_module_that_extends_the_search_path_is_checked_with_what_it_imports_from_there(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "checked_g.py").write_text("")
    (tmp_path / "checked_f.py").write_text(
        f"import sys\nsys.path.insert(0, {str(tmp_path / 'lib')!r})\nimport checked_g\n"
    )
    code = dict.fromkeys(("checked_f.py", "checked_g.py"), "x")
    with pytest.raises(CodeDiffersError, match=r"\(checked_f.py, checked_g.py\)"):
        check_code(Identity(modules=("checked_f",), code=code), "host-2")


def test_the_import_of_the_users_modules_is_in_no_time_of_the_first_run(tmp_path: Path) -> None:
    (tmp_path / "checked_h.py").write_text(
        "import time\nfrom torch import nn\ntime.sleep(2.5)\n"
        "def tiny(): return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
    )
    identity = Identity(modules=("checked_h",), code=source_digests(["checked_h"]))
    result = run_inline(config(model="checked_h:tiny"), identity=identity)
    assert result.outcome == "ok", result.traceback
    assert result.values["instruments_s"] >= 2.5
    assert result.values["setup_s"] < 2.5
