"""Revisions of a script: copies of the user's repository at a commit, or as it is, in which runs start.

    <cache>/revisions/<repository, commit and what is shared>/
        lock                held while one of the others is made equal to what it stands for
        <sweep>.tree/       what the runs of one sweep begin with: the files of the commit, and copies of those that git
                            does not track
        <sweep>.tree.lock   held by the command of the sweep; there is none on other machines
        0/, 1/, ...         the folders of runs that go on at once, made equal to a tree before each run
        0.lock, ...         held by the ranks of the run in the folder; has its name

A copy has its own index, and reads the objects of the repository, which stays as it is.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import shutil
import subprocess
import sys
import time
import uuid
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import IO

from dmls_ray.util.digests import digest_of_files, text_digest
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.files import cache_root, try_lock
from dmls_ray.util.importing import is_installed
from dmls_ray.util.mirror import make_equal, make_read_only, picture_of
from dmls_ray.workloads.script.copied import CopiedFiles
from dmls_ray.workloads.script.paths import in_copy

AS_IT_IS = "."
"""The revision that means the files as they are, with changes that are not committed."""

_KEPT_S = 7 * 24 * 3600
"""How long a copy is kept that no sweep has used."""
_BETWEEN_RUNS_S = 24 * 3600
"""How long after its last run here the tree of another machine's command is not given to another sweep."""
_KEPT_NAMES = ("__pycache__",)
"""What runs leave in their folders and others may find: compiled code, which names its source."""

_held: list[IO[str]] = []
"""The locks that this process holds until it ends."""


@dataclass(frozen=True)
class RepositoryCopy:
    """A copy of a repository, on each machine."""

    root: Path
    """The repository."""
    commit: str
    """Empty for the files as they are."""
    shared: Sequence[str] = ()
    """Paths in it that are linked, since the user says that runs only read them; they can do no more where the system
    can see to it."""
    sweep: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Name of the sweep: its runs find the files as they were when it began."""

    @property
    def tree(self) -> Path:
        """What runs begin with; no run starts there."""
        return self._folder / f"{self.sweep}.tree"

    @property
    def _folder(self) -> Path:
        return cache_root() / "revisions" / text_digest(str(self.root), self.commit, *self.shared)

    def make(self) -> None:
        """Make the tree of what the repository has now; no other sweep changes it while this object lives.

        Raises:
            ConfigError: the repository of this machine has no such commit, or has too much that git does not track.
        """
        with _locked(self._folder / "lock"):
            self._make()
            lock = _open(_lock_of(self.tree))
            fcntl.flock(lock, fcntl.LOCK_SH)
            weakref.finalize(self, lock.close)

    def _make(self) -> None:
        unfinished = self._folder / "unfinished"
        shutil.rmtree(unfinished, ignore_errors=True)
        for tree in [tree for tree in self._folder.glob("*.tree") if _is_left(tree)]:
            if unfinished.exists():
                shutil.rmtree(tree)
            else:
                tree.rename(unfinished)
            _lock_of(tree).unlink(missing_ok=True)
        if not unfinished.exists():
            self._initialize(unfinished)
        self._check_out(unfinished)
        files = CopiedFiles(self.root, self.shared)
        place = unfinished if self.commit else self.root
        files.add_tracked(_names(place, "--cached"), place)
        files.add_untracked(_names(self.root, "--others", "--directory"))
        make_equal(unfinished, files.picture, left_alone=(".git",))
        unfinished.rename(self.tree)

    def _initialize(self, folder: Path) -> None:
        """Make a repository with the objects of the user's."""
        folder.mkdir(parents=True)
        _git(folder, "init", "--quiet", "--template=")
        objects = _git(self.root, "rev-parse", "--path-format=absolute", "--git-path", "objects")
        info = folder / ".git" / "objects" / "info"
        info.mkdir(parents=True, exist_ok=True)
        (info / "alternates").write_text(f"{objects}\n", encoding="utf-8")

    def _check_out(self, folder: Path) -> None:
        """Let a repository be at the commit; for files as they are, at that of HEAD, and leave its files alone."""
        if self.commit:
            # By force: links that led out of the repository have become what they led to then.
            _git(folder, "checkout", "--quiet", "--force", "--detach", self.commit)
            return
        with contextlib.suppress(ConfigError):  # there is no commit yet
            _git(folder, "update-ref", "--no-deref", "HEAD", _git(self.root, "rev-parse", "--verify", "HEAD"))
            _git(folder, "read-tree", "HEAD")

    def check_working_folder(self, revision: str) -> None:
        """Refuse runs whose working folder, that of this process, would not be in the copy.

        Raises:
            ConfigError: with the way out.
        """
        here = os.getcwd()
        if not Path(here).is_relative_to(self.root):
            raise ConfigError(
                f"--revision {revision}: runs would write into {here}, which is not in the repository {self.root}; "
                "change to a folder of the repository, or add --own-folder."
            )

    @cached_property
    def digest(self) -> str:
        """A digest of the files that runs begin with, but for those of the commit and what is shared.

        Raises:
            OSError: a file cannot be read.
        """
        kinds = ["--others"] if self.commit else ["--others", "--cached"]
        # Where they are, so that what has not changed is read once.
        return digest_of_files(self.root, [str(self.root / name) for name in _names(self.tree, *kinds)])

    def take(self, run: str) -> Path:
        """A folder that is equal to the tree, for the ranks of one run on this machine, until their processes end.

        This process can only read what is shared from now on, where the system lets it say so.

        Args:
            run: name of the run; that of no other under way.

        Raises:
            ConfigError: as `make`, on another machine than that of the command.
        """
        with _locked(self._folder / "lock"):
            if not self.tree.exists():
                self._make()
            os.utime(self.tree)
            for number in itertools.count():
                lock = _open(self._folder / f"{number}.lock")
                lock.seek(0)
                if try_lock(lock):
                    make_equal(self._folder / str(number), picture_of(self.tree, _KEPT_NAMES), _KEPT_NAMES)
                    lock.truncate(0)
                    lock.write(run)
                    lock.flush()
                elif lock.read() != run:
                    lock.close()
                    continue
                fcntl.flock(lock, fcntl.LOCK_SH)
                os.set_inheritable(lock.fileno(), True)  # by a program that takes the place of this one
                _held.append(lock)
                make_read_only([str(self.root / path) for path in self.shared])
                return self._folder / str(number)
        raise AssertionError


def copy_for(script: str, revision: str, shared: Sequence[str] = ()) -> RepositoryCopy:
    """The copy of a script's repository at a revision, for one sweep.

    Raises:
        ConfigError: as `copy_around`, or the revision has no such script.
    """
    copy = copy_around(script, revision, shared)
    path = in_copy(script, copy.root, copy.tree)
    is_tracked = not copy.commit or _is_tracked(copy.tree, path)
    if not (os.path.isfile(path) and is_tracked):
        raise ConfigError(f"--revision {revision} has no {script}; give a revision that has it.")
    return copy


def copy_around(place: str, revision: str, shared: Sequence[str] = ()) -> RepositoryCopy:
    """The copy of the repository that a file or a folder is in, at a revision, for one sweep.

    Raises:
        ConfigError: there is no repository or no such revision, or too much is to be copied.
    """
    path = Path(os.path.abspath(place))
    root = next((folder for folder in (path, *path.parents) if (folder / ".git").exists()), None)
    if root is None:
        raise ConfigError(f"--revision {revision}: {place} is in no git repository; leave it out.")
    _git(root, "rev-parse", "--git-dir")  # fails where git does not trust the folder
    commit = ""
    if revision != AS_IT_IS:
        try:
            commit = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        except ConfigError as error:
            way_out = f"give a branch, a tag or a commit, or {AS_IT_IS} for the files as they are"
            raise ConfigError(f"--revision {revision}: {root} has no such revision; {way_out}.") from error
    paths = sorted({_shared_path(name, root) for name in shared})
    _remove_unused(cache_root() / "revisions")
    copy = RepositoryCopy(root, commit, tuple(paths))
    copy.make()
    return copy


def _shared_path(name: str, root: Path) -> str:
    """The path in the repository of what is to be shared.

    Raises:
        ConfigError: there is no such file or folder in it.
    """
    path = os.path.abspath(name)
    if not os.path.exists(path):
        raise ConfigError(f"--share {name}: there is no such file or folder; name one that git does not track.")
    if not Path(path).is_relative_to(root) or Path(path) == root:
        raise ConfigError(f"--share {name}: it is not in the repository {root}, so that runs use it as it is.")
    return str(Path(path).relative_to(root))


def imported_as_they_are(root: Path) -> list[str]:
    """Modules that this process has imported from the repository itself, and not from the copy that it has entered.

    An editable installation may lead to them.
    """
    files = {name: getattr(module, "__file__", None) for name, module in [*sys.modules.items()]}
    own = {name: file for name, file in files.items() if file and not is_installed(file)}
    return sorted(name for name, file in own.items() if Path(file).is_relative_to(root) and _is_tracked(root, file))


def _is_tracked(root: Path, file: str) -> bool:
    return bool(_git(root, "ls-files", "--", file))


def _names(folder: Path, *which: str) -> list[str]:
    """Paths that git lists."""
    return [name for name in _git(folder, "ls-files", "-z", *which).split("\0") if name]


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock alone; waits for it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _open(path) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        os.utime(path)
        yield


def _open(path: Path) -> IO[str]:
    return path.open("a+", encoding="utf-8")


def _lock_of(tree: Path) -> Path:
    return tree.with_name(f"{tree.name}.lock")


def _is_left(tree: Path) -> bool:
    """Whether the sweep of a tree is over."""
    if not _lock_of(tree).exists():
        return time.time() - tree.stat().st_mtime > _BETWEEN_RUNS_S
    with _open(_lock_of(tree)) as lock:
        return try_lock(lock)


def _remove_unused(folder: Path) -> None:
    """Remove the copies that no sweep has used for long, and that no run is in."""
    for lock in folder.glob("*/lock"):
        with contextlib.ExitStack() as locks, contextlib.suppress(FileNotFoundError):
            if time.time() - lock.stat().st_mtime < _KEPT_S:
                continue
            held = [locks.enter_context(_open(each)) for each in (lock, *lock.parent.glob("*.lock"))]
            if all(try_lock(lock) for lock in held):
                shutil.rmtree(lock.parent, ignore_errors=True)


def _git(folder: Path, *words: str) -> str:
    """What a command of git prints.

    Raises:
        ConfigError: it fails, with its last line.
    """
    # Variables of a hook of git name another repository.
    variables = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(
            ["git", *words],
            cwd=folder,
            env=variables,
            capture_output=True,
            encoding="utf-8",
            errors="surrogateescape",
            check=False,
        )
    except FileNotFoundError as error:
        raise ConfigError(
            "--revision needs git, which is not installed; install it, or leave --revision out."
        ) from error
    if done.returncode:
        said = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise ConfigError(f"git {' '.join(words)} in {folder}: {said}.")
    return done.stdout.removesuffix("\n")
