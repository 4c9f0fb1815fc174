"""Check that a rank executes the sources that its sweep began with."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from dmls_ray.records.identity import OF_FUNCTION, Identity
from dmls_ray.util.errors import CodeDiffersError
from dmls_ray.util.source_digest import source_digests


def check_code(identity: Identity, machine: str) -> None:
    """Refuse to run other sources than those of the identity.

    Args:
        identity: what the run is to have.
        machine: the name of this machine.

    Raises:
        CodeDiffersError: with the files and the machine.
    """
    expected = {name: digest for name, digest in identity.code.items() if not name.endswith(OF_FUNCTION)}
    here = _sources_of_this_process(identity.modules)
    differing = sorted(name for name in expected.keys() | here.keys() if expected.get(name) != here.get(name))
    if differing:
        are = "is" if len(differing) == 1 else "are"
        raise CodeDiffersError(
            f"{', '.join(differing)} on machine {machine} {are} not of the version that this sweep began with; copy "
            "the files to each machine, or share their folder. If they were edited since, run the same command again."
        )


@functools.cache
def _sources_of_this_process(modules: tuple[str, ...]) -> Mapping[str, str]:
    """Digests at the first run that imports the modules: a process imports a module once, whatever happens to its file
    afterwards.
    """
    return source_digests(modules)
