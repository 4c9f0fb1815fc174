"""Objects of the user that no other process can import, such as those of a notebook: the driver sends them along."""

from __future__ import annotations

import base64
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Self

from dmls_ray.util.digests import source_digests
from dmls_ray.util.errors import UserCodeError
from dmls_ray.util.importing import import_function, is_reference
from dmls_ray.workloads.user_function.function_digest import function_digest


@dataclass(frozen=True, kw_only=True)
class Sent:
    """A pickle of objects, and what identifies their code."""

    pickled: str
    """In base64."""
    digest: str
    """Digest of the objects and of all that they use."""
    modules: tuple[str, ...]
    """The user's modules that they use."""

    def load(self) -> Any:
        """The objects, in whichever process this is."""
        return pickle.loads(base64.b64decode(self.pickled))


class SentName(str):
    """The name of an object that brings the object along: a value of a field whose records have the name alone."""

    sent: Sent

    def __new__(cls, name: str, sent: Sent) -> Self:
        named = super().__new__(cls, name)
        named.sent = sent
        return named

    def __getnewargs__(self) -> tuple[str, Sent]:  # type: ignore[override]
        return str(self), self.sent


def load_named(name: str, *, flag: str) -> Callable[..., Any]:
    """The object of a name that a configuration has: sent along with it, or imported.

    Raises:
        UnknownNameError, UserCodeError: as `import_function`.
    """
    if isinstance(name, SentName):
        loaded: Callable[..., Any] = name.sent.load()
        return loaded
    return import_function(name, flag=flag)


def code_of(name: str) -> dict[str, str]:
    """Digests of the code behind the name of a user's object: of its modules, and of an object that was sent along."""
    if isinstance(name, SentName):
        return {str(name): name.sent.digest, **source_digests(name.sent.modules)}
    return source_digests([name.partition(":")[0]]) if is_reference(name) else {}


def send(content: Any, *identifying: Any, given: str) -> Sent:
    """Make the pickle of objects.

    Args:
        content: the objects.
        identifying: of these objects is the digest.
        given: the flag or field and its value, for an error.

    Raises:
        UserCodeError: an object cannot be pickled.
    """
    import cloudpickle  # type: ignore[import-untyped]

    digest, modules = function_digest(*identifying)
    try:
        pickled = base64.b64encode(cloudpickle.dumps(content)).decode()
    except (pickle.PicklingError, TypeError) as error:
        raise UserCodeError(
            f"{given} cannot be sent to another process ({error}); put it in a module, at its top level."
        ) from error
    return Sent(pickled=pickled, digest=digest, modules=modules)
