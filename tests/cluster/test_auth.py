from __future__ import annotations

from pathlib import Path

import pytest

from dmls_ray.cluster.auth import keep_token_private
from dmls_ray.util.errors import ClusterError


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("RAY_AUTH_MODE", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def written(file: Path) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text("secret")
    file.chmod(0o644)
    return file


def mode_of(file: Path) -> int:
    return file.stat().st_mode & 0o777


def test_a_started_cluster_gets_a_token_that_only_its_owner_can_read(home: Path) -> None:
    keep_token_private(make=True)
    file = home / ".ray" / "auth_token"
    assert mode_of(file) == 0o600
    assert len(file.read_text()) == 64
    before = file.read_text()
    keep_token_private(make=True)
    assert file.read_text() == before


@pytest.mark.parametrize("make", [True, False])
@pytest.mark.parametrize("name", [".ray/auth_token", "named by a variable"])
def test_a_token_that_others_can_read_is_made_private(
    home: Path, name: str, make: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    file = written(home / name)
    if name != ".ray/auth_token":
        monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(file))
    keep_token_private(make=make)
    assert (mode_of(file), file.read_text()) == (0o600, "secret")


def test_one_that_cannot_be_made_private_is_refused_with_the_cure(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    file = written(home / ".ray" / "auth_token")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(Path, "chmod", refuse)
    with pytest.raises(ClusterError, match=f"{file} cannot be kept private.*name a file that you own"):
        keep_token_private(make=False)


def test_nothing_is_written_where_ray_is_configured_without_a_token(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    keep_token_private(make=True)
    assert not (home / ".ray").exists()
