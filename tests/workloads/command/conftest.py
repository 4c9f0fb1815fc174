"""A git repository with a command."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.workloads.script.conftest import git

BENCH = """#!/bin/sh
echo "score 1 in the first line"
echo "score 2.5 of $(cat settings.txt) seed $DMLS_RAY_SEED lib $LIBRARIES words $*"
echo '{"rate": 40}'
touch written.txt
"""


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository whose command reads a file: `old` in tag `before`, `new` in HEAD; git does not track `notes.txt`."""
    monkeypatch.setenv("DMLS_RAY_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.chdir(folder)
    git("init", "--quiet", folder=folder)
    (folder / "bench.sh").write_text(BENCH)
    (folder / "bench.sh").chmod(0o755)
    for name, tag in (("old", "before"), ("new", "after")):
        (folder / "settings.txt").write_text(name)
        git("add", ".", folder=folder)
        git("commit", "--quiet", "-m", name, folder=folder)
        git("tag", tag, folder=folder)
    (folder / "notes.txt").write_text("untracked")
    return folder
