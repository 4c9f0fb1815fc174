"""Revisions of a script: copies of the user's repository at a commit, in which runs start.

A copy has its own index and work tree, and reads the objects of the repository, which stays as it is. What git does not
track there, as data and environments, is linked into the copy, so that relative paths lead to it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from dmls_ray.util.digests import text_digest
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.files import cache_root, temporary_name
from dmls_ray.util.importing import is_installed

AS_IT_IS = "."
"""The revision that means the files as they are, with changes that are not committed."""


def commit_of(script: str, revision: str) -> str:
    """The commit that a revision of a script's repository names, checked out; empty for the files as they are.

    Raises:
        ConfigError: there is no such revision, or it has no such script.
    """
    if revision == AS_IT_IS:
        return ""
    root = repository_of(script)
    if root is None:
        raise ConfigError(f"--revision {revision}: {script} is in no git repository; leave it out.")
    _git(root, "rev-parse", "--git-dir")  # fails where git does not trust the folder
    try:
        commit = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
    except ConfigError as error:
        way_out = f"give a branch, a tag or a commit, or {AS_IT_IS} for the files as they are"
        raise ConfigError(f"--revision {revision}: {root} has no such revision; {way_out}.") from error
    copy = copy_of(root, commit)
    path = script_at(script, commit)
    if not (path.is_file() and _is_in(path, copy)):
        raise ConfigError(f"--revision {revision} has no {script}; give a revision that has it.")
    _link_untracked(root, copy)
    return commit


def script_at(script: str, commit: str) -> Path:
    """The file of a script at a commit; of no commit, as it is.

    Raises:
        ConfigError: the repository of this machine has no such commit.
    """
    root = repository_of(script)
    if not commit or root is None:
        return Path(script)
    return copy_of(root, commit) / Path(os.path.abspath(script)).relative_to(root)


def repository_of(script: str) -> Path | None:
    """The folder of the git repository that a script is in; None without one."""
    folders = Path(os.path.abspath(script)).parents
    return next((folder for folder in folders if (folder / ".git").exists()), None)


def copy_of(root: Path, commit: str) -> Path:
    """The copy of a repository at a commit, in the folder of caches; made by the first call.

    Raises:
        ConfigError: the repository of this machine has no such commit.
    """
    folder = cache_root() / "revisions" / text_digest(str(root), commit)
    if folder.exists():
        return folder
    made = folder.with_name(temporary_name(folder.name))
    made.mkdir(parents=True)
    try:
        _git(made, "init", "--quiet")
        objects = _git(root, "rev-parse", "--path-format=absolute", "--git-path", "objects")
        (made / ".git" / "objects" / "info" / "alternates").write_text(f"{objects}\n", encoding="utf-8")
        _git(made, "checkout", "--quiet", "--detach", commit)
        _link_untracked(root, made)
        made.rename(folder)
    except OSError:
        if not folder.exists():  # else another process has made it
            raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return folder


def enter(root: Path, commit: str) -> None:
    """Let this process work in the copy of a commit: its working folder and its imports are those of the copy."""
    copy = copy_of(root, commit)
    sys.path[:] = [_in_copy(entry, root, copy) for entry in sys.path]
    os.chdir(_in_copy(os.getcwd(), root, copy))


def imported_as_they_are(root: Path) -> list[str]:
    """Modules that this process has imported from the repository itself, and not from the copy that it has entered.

    An editable installation may lead to them.
    """
    files = {name: getattr(module, "__file__", None) for name, module in [*sys.modules.items()]}
    own = {name: file for name, file in files.items() if file and not is_installed(file)}
    return sorted(name for name, file in own.items() if Path(file).is_relative_to(root) and _is_tracked(root, file))


def _in_copy(path: str, root: Path, copy: Path) -> str:
    """A folder of the repository in the copy; other folders, and those that git does not track, as they are."""
    absolute = Path(os.path.abspath(path))
    if not absolute.is_relative_to(root):
        return path
    moved = copy / absolute.relative_to(root)
    return str(moved) if moved.is_dir() and _is_in(moved, copy) else path


def _is_in(path: Path, copy: Path) -> bool:
    """Whether a path of a copy is no link to what git does not track."""
    return path.resolve().is_relative_to(copy.resolve())


def _is_tracked(root: Path, file: str) -> bool:
    return bool(_git(root, "ls-files", "--", file))


def _link_untracked(root: Path, copy: Path) -> None:
    """Link the files and folders that git does not track into a copy, where it has no others of their names."""
    for name in filter(None, _git(root, "ls-files", "--others", "--directory", "-z").split("\0")):
        place = copy / name.rstrip("/")
        if place.name != "__pycache__" and place.parent.is_dir() and not os.path.lexists(place):
            place.symlink_to(root / name)


def _git(folder: Path, *words: str) -> str:
    """What a command of git prints.

    Raises:
        ConfigError: it fails, with its last line.
    """
    # Variables of a hook of git name another repository.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", *words], cwd=folder, env=variables, capture_output=True, text=True, encoding="utf-8", check=False
        )
    except FileNotFoundError as error:
        raise ConfigError(
            "--revision needs git, which is not installed; install it, or leave --revision out."
        ) from error
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise ConfigError(f"git {' '.join(words)} in {folder}: {said}.")
    return done.stdout.strip()
