"""Whether what `dmls-ray up` holds serves a command. tests/cluster/test_standby.py has real ones."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from dmls_ray.util.standby import Standby, circumstances, find_standby, state_file


@pytest.fixture
def standby(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Standby:
    """One that commands find."""
    monkeypatch.setenv("DMLS_RAY_CACHE", str(tmp_path / "cache"))
    found = Standby(
        holder=os.getpid(),
        address="127.0.0.1:1",
        templates=str(tmp_path),
        parts={},
        circumstances=circumstances(),
        path=[],
    )
    state_file().parent.mkdir()
    found.write(state_file())
    return found


def test_a_standby_is_found_by_its_user_alone(standby: Standby, monkeypatch: pytest.MonkeyPatch) -> None:
    assert state_file().stat().st_mode & 0o077 == 0
    assert find_standby() == standby
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    assert find_standby() is None


def test_a_link_or_a_damaged_file_names_no_standby(standby: Standby) -> None:
    whole = state_file().rename(state_file().with_name("whole"))
    state_file().symlink_to(whole)
    assert find_standby() is None
    state_file().unlink()
    for text in ("", "[]", '{"holder": 1}'):
        state_file().write_text(text)
        assert find_standby() is None


def test_what_a_start_depends_on_is_compared_and_what_a_terminal_sets_is_not(
    standby: Standby, monkeypatch: pytest.MonkeyPatch
) -> None:
    standby = replace(standby, circumstances=circumstances())  # pytest sets a variable for each test
    for name in ("TERM", "PWD", "SSH_CONNECTION", "COLUMNS", "XDG_SESSION_ID"):
        monkeypatch.setenv(name, "other")
    assert standby.differences() == []
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("PATH")
    mask = os.umask(0o027)
    try:
        assert sorted(standby.differences()) == ["umask", "variable OMP_NUM_THREADS", "variable PATH"]
    finally:
        os.umask(mask)


def test_no_value_of_a_variable_is_written(standby: Standby, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_TOKEN", "a-secret-word")
    Standby(holder=1, address="", templates="", parts={}, circumstances=circumstances(), path=[]).write(state_file())
    assert "A_TOKEN" in state_file().read_text()
    assert "a-secret-word" not in state_file().read_text()
