"""`ClusterTemplates`: the processes of which those of a cluster that is started here are copies.

PyTorch, Ray and this package take most of the time until the first run, and need nothing that a command says. So a
command that is likely to start a cluster prepares them first, and parses its words while they are imported.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dmls_ray.cluster.compat import worker_environment
from dmls_ray.cluster.environment import set_environment
from dmls_ray.util.files import PREFIX, TemporaryFolder, short_folder
from dmls_ray.util.template import Template
from dmls_ray.util.template_request import RUNS, TEMPLATES, WORKERS, request

_PREPARES = {RUNS: "dmls_ray.training.rank:preload", WORKERS: "dmls_ray.cluster.compat:load_workers"}
"""Ranks and their fork servers are started most, and those that control them need what ranks need and more."""


class ClusterTemplates:
    """Starts the templates; they import while this process goes on.

    Args:
        further: name of the socket of a template beyond those of a cluster -> what prepares it.
        folder: of their sockets.
    """

    def __init__(self, further: Mapping[str, str], folder: TemporaryFolder) -> None:
        self._folder = folder
        sockets = {self._folder.path / name: prepare for name, prepare in {**_PREPARES, **further}.items()}
        # Libraries read it when they are imported. Ray sets it so for each rank, unless the user has.
        threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
        self._template = Template(sockets, threads | worker_environment())

    @property
    def folder(self) -> Path:
        """The folder of their sockets."""
        return self._folder.path

    @contextmanager
    def known(self) -> Iterator[None]:
        """Processes that are started meanwhile, and those that they start, can ask for copies."""
        os.environ[TEMPLATES] = str(self._folder.path)
        try:
            yield
        finally:
            del os.environ[TEMPLATES]

    def wait_for(self, name: str) -> None:
        """Wait until the template of a socket serves.

        Raises:
            OSError: it cannot import what it needs.
        """
        with request(name, "os:getpid", (), folder=str(self.folder)) as copy:
            copy.recv(1)

    def end(self) -> None:
        """Let the templates end, and their copies; see `close`."""
        self._template.end()

    def close(self) -> None:
        """End them, and wait for it."""
        self._template.end()
        self._template.wait()
        self._folder.remove()


_prepared: list[ClusterTemplates] = []
"""Those that no cluster has taken."""


def prepare_templates(further: Mapping[str, str] | None = None) -> None:
    """Start templates for the next cluster that this process starts, where a fork is safe; see `ClusterTemplates`."""
    if sys.platform == "linux" and not _prepared:
        set_environment()
        below = f"/{PREFIX}templates-12345678-12345678/{WORKERS}"
        folder = TemporaryFolder("templates", short_folder(Path(tempfile.gettempdir()), below))
        _prepared.append(ClusterTemplates(further or {}, folder))


def take_templates() -> ClusterTemplates | None:
    """The templates for a cluster; None where there are none."""
    prepare_templates()
    return _prepared.pop() if _prepared else None


def drop_templates() -> None:
    """End templates that were prepared and are not needed."""
    while _prepared:
        _prepared.pop().close()
