"""Check that a rank executes the sources that its sweep began with."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from dmls_ray.config.identity import OF_FUNCTION, Identity
from dmls_ray.util.digests import AND_IMPORTS, source_digests
from dmls_ray.util.errors import CodeDiffersError
from dmls_ray.util.importing import try_import


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
    differing = [name for name in expected.keys() | here.keys() if expected.get(name) != here.get(name)]
    files = sorted(name for name in differing if not name.endswith(AND_IMPORTS))
    if files:
        raise CodeDiffersError(
            f"the files on machine {machine} are not those that the sweep began with ({', '.join(files)}). Copy the "
            "files to each machine or share their folder; if they were edited since, run the same command again"
        )


@functools.cache
def _sources_of_this_process(modules: tuple[str, ...]) -> Mapping[str, str]:
    """Digests at the first run that imports the modules: a process imports a module once, whatever happens to its file
    afterwards.

    The modules are imported here: one may extend the search path for those that it imports, and the first run of a
    process would otherwise have the time and the memory of the imports in its numbers.
    """
    for module in modules:
        try_import(module)
    return source_digests(modules)
