"""Objects of the user that no other process can import, such as those of a notebook: the driver sends them along.

The digest of such an object is of its code and of all that it uses. It is the same after a restart of the kernel, after
the cell ran again, and after an edit of comments or docstrings: it depends on no file name, line number or identity of
an object. A pickle depends on all three.
"""

from __future__ import annotations

import base64
import dis
import functools
import inspect
import pickle
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Self

from dmls_ray.util.digests import file_of_user_module, source_digests, text_digest
from dmls_ray.util.errors import UserCodeError
from dmls_ray.util.importing import import_function, is_reference

_CONSTANTS = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))

_WRAPPED = {
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget", "fset", "fdel"),
    types.MethodType: ("__func__", "__self__"),
    type(functools.cache(len)): ("__wrapped__",),
}
"""Types of objects around functions -> the attributes with the functions."""

_OF_THE_INTERPRETER = frozenset({
    "__dict__", "__weakref__", "__module__", "__doc__", "__firstlineno__", "__static_attributes__",
    "__annotations_cache__", "__dataclass_fields__", "__abstractmethods__", "_abc_impl", "_autograd_function_id",
})  # fmt: skip
"""Attributes of classes that say nothing about what instances do, or that repeat what others say."""


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


def function_digest(*objects: Any) -> tuple[str, tuple[str, ...]]:
    """Return the digest of a function, and of what else belongs to it, and the user's modules that they use.

    Of a function or class that belongs to a module, only the name is in the digest: the module's file has its own.
    """
    walk = _Walk()
    lines = list(walk.lines(objects))
    modules = tuple(sorted(module for module in walk.modules if file_of_user_module(module)))
    if walk.unreadable:
        warnings.warn(
            f"{getattr(objects[0], '__qualname__', 'the function')} uses values of which a change is not noticed "
            f"({', '.join(sorted(walk.unreadable))}): use --fresh, or fresh=True, after one.",
            stacklevel=2,
        )
    return text_digest(*lines, *modules), modules


class _Walk:
    """Texts of objects and of all that they refer to; each object is described once."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self.unreadable: set[str] = set()
        """Types of the values that cannot be described: only their type counts."""
        self._seen: dict[int, tuple[int, Any]] = {}
        """id of each object -> its position, and the object itself: an id is unique only among living ones."""

    def lines(self, value: Any) -> Iterator[str]:
        """Describe a value and its type."""
        if isinstance(value, _CONSTANTS):
            yield f"{type(value).__name__} {value!r}"
            return
        if id(value) in self._seen:
            yield f"again {self._seen[id(value)][0]}"
            return
        self._seen[id(value)] = (len(self._seen), value)
        yield type(value).__name__
        try:
            yield from self._of_object(value)
        except Exception:  # noqa: BLE001 - whatever the user's objects raise when they are read must not end the sweep
            self.unreadable.add(type(value).__qualname__)

    def _of_object(self, value: Any) -> Iterator[str]:
        if isinstance(value, types.ModuleType):
            self.modules.add(value.__name__)
            yield value.__name__
        elif isinstance(value, types.CodeType):
            yield from self._of_code(value)
        elif type(value) in _WRAPPED:
            for name in _WRAPPED[type(value)]:
                yield from self.lines(getattr(value, name))
        elif (inspect.isroutine(value) or isinstance(value, type)) and _is_importable(value):
            self.modules.add(value.__module__)
            yield f"{value.__module__} {value.__qualname__}"
        elif isinstance(value, types.FunctionType):
            yield from self._of_function(value)
        elif isinstance(value, type):
            yield value.__qualname__
            yield from self.lines(value.__bases__)
            for name, attribute in vars(value).items():
                if name not in _OF_THE_INTERPRETER:
                    yield f"attribute {name}"
                    yield from self.lines(attribute)
        elif isinstance(value, types.CellType):
            yield from self.lines(value.cell_contents)
        elif type(value) in (list, tuple) or isinstance(value, Iterator):
            for item in value:
                yield from self.lines(item)
        elif isinstance(value, set | frozenset):
            # Its order differs from process to process.
            for item in sorted(value, key=repr):
                yield from self.lines(item)
        else:
            yield from self._of_instance(value)

    def _of_function(self, function: types.FunctionType) -> Iterator[str]:
        yield function.__qualname__
        yield from self.lines(function.__code__)
        yield from self.lines([function.__defaults__, function.__kwdefaults__, function.__closure__])
        for name in sorted(_global_names(function.__code__) & function.__globals__.keys()):
            yield f"global {name}"
            yield from self.lines(function.__globals__[name])

    def _of_code(self, code: types.CodeType) -> Iterator[str]:
        yield f"{code.co_name} {code.co_varnames} {code.co_argcount} {code.co_kwonlyargcount} {code.co_flags}"
        module = ""
        for step in dis.get_instructions(code):
            yield step.opname
            if step.opcode in dis.hasconst:
                yield from self.lines(step.argval)
                continue
            yield str(step.argval)
            if step.opname == "IMPORT_NAME":
                module = step.argval
                self.modules.add(module)
            elif step.opname == "IMPORT_FROM":
                self.modules.add(f"{module}.{step.argval}")

    def _of_instance(self, value: Any) -> Iterator[str]:
        """Describe an object by what its pickle would be made of; a tensor by its numbers."""
        yield from self.lines(type(value))
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):  # its pickle has its address
            value = value.detach().cpu().numpy()
        yield from self.lines(type(value).__reduce_ex__(value, 4))  # type: ignore[call-arg]


def _is_importable(value: Any) -> bool:
    """Whether another process finds a function or class by its name."""
    if value.__module__ in (None, "__main__"):
        return False
    found: Any = sys.modules.get(value.__module__)
    for part in value.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is value


def _global_names(code: types.CodeType) -> set[str]:
    """The global names that a function and the functions inside it look up, without names of attributes."""
    names = {step.argval for step in dis.get_instructions(code) if "GLOBAL" in step.opname}
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _global_names(constant)
    return names
