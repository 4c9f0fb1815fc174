"""Digest of a function that no other process can import, as one of a notebook: of its code and of all that it uses.

It is equal after a restart of the kernel, after the cell ran again, and wherever the cell stands: it depends on no file
name, no line number and no identity of an object. A pickle of the function depends on all three.
"""

from __future__ import annotations

import dataclasses
import dis
import hashlib
import sys
import types
from collections.abc import Iterator, Mapping
from typing import Any

from dmls_ray.util.source_digest import is_user_module, text_digest

_OF_THE_INTERPRETER = frozenset({
    "__dict__", "__weakref__", "__module__", "__doc__", "__firstlineno__", "__static_attributes__", "__annotate_func__",
    "__annotations_cache__", "__dataclass_fields__", "__abstractmethods__", "_abc_impl",
})  # fmt: skip
"""Attributes of classes that say nothing about what instances do, or that repeat what others say."""


def function_digest(*objects: Any) -> tuple[str, tuple[str, ...]]:
    """Return the digest of a function, and of what else belongs to it, and the user's modules that they use.

    Of a function or class that belongs to a module, only the name is in the digest: the module's file has its own.
    """
    described = _Description()
    digest = text_digest(*described.lines(objects))
    return digest, tuple(sorted(filter(is_user_module, described.modules)))


class _Description:
    """Texts of objects and of all that they refer to; each object is described once."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self._places: dict[int, int] = {}
        """id of each object that was described -> its position among them."""
        self._kept: list[Any] = []
        """The described objects: an id is unique only among living ones."""

    def lines(self, value: Any) -> Iterator[str]:
        """Describe a value and its type."""
        if isinstance(value, bytes | bytearray):
            yield f"{type(value).__name__} {hashlib.sha256(value).hexdigest()}"
            return
        if value is None or isinstance(value, bool | int | float | complex | str) or value is Ellipsis:
            yield f"{type(value).__name__} {value!r}"
            return
        if id(value) in self._places:
            yield f"again {self._places[id(value)]}"
            return
        self._places[id(value)] = len(self._kept)
        self._kept.append(value)

        if isinstance(value, types.ModuleType):
            self.modules.add(value.__name__)
            yield f"module {value.__name__}"
        elif isinstance(value, types.CodeType):
            yield from self._of_code(value)
        elif isinstance(value, type) or (callable(value) and hasattr(value, "__qualname__")):
            yield from self._of_definition(value)
        elif isinstance(value, types.CellType):
            yield from self._of_cell(value)
        elif isinstance(value, Mapping) and type(value) in (dict, types.MappingProxyType):
            yield f"dict {len(value)}"
            for item in value.items():
                yield from self.lines(item)
        elif isinstance(value, set | frozenset):
            yield f"{type(value).__name__} {sorted(map(repr, value))}"
        elif type(value) in (list, tuple):
            yield f"{type(value).__name__} {len(value)}"
            for item in value:
                yield from self.lines(item)
        else:
            yield from self._of_instance(value)

    def _of_definition(self, value: Any) -> Iterator[str]:
        """A class or a function: by its name if it can be imported, else by its content."""
        module, name = getattr(value, "__module__", None) or "", value.__qualname__
        yield f"{type(value).__name__} {name}"
        if _is_importable(value, module, name):
            self.modules.add(module)
            yield f"of {module}"
        elif isinstance(value, types.FunctionType):
            yield from self._of_function(value)
        elif isinstance(value, type):
            yield from self._of_class(value)
        elif isinstance(value, types.MethodType):
            yield from self.lines(value.__func__)
            yield from self.lines(value.__self__)

    def _of_function(self, function: types.FunctionType) -> Iterator[str]:
        yield from self.lines(function.__code__)
        yield from self.lines(function.__defaults__)
        yield from self.lines(function.__kwdefaults__)
        yield from self.lines(function.__closure__)
        for name in sorted(_global_names(function.__code__) & function.__globals__.keys()):
            yield f"global {name}"
            yield from self.lines(function.__globals__[name])

    def _of_code(self, code: types.CodeType) -> Iterator[str]:
        yield f"code {code.co_name} {code.co_argcount} {code.co_posonlyargcount} {code.co_kwonlyargcount}"
        yield f"flags {code.co_flags}"
        yield f"{code.co_code!r} {code.co_names} {code.co_varnames} {code.co_freevars} {code.co_cellvars}"
        self.modules |= _imported_names(code)
        for constant in code.co_consts:
            yield from self.lines(constant)

    def _of_cell(self, cell: types.CellType) -> Iterator[str]:
        try:
            content = cell.cell_contents
        except ValueError:  # a name that was never assigned
            yield "empty cell"
            return
        yield from self.lines(content)

    def _of_class(self, cls: type) -> Iterator[str]:
        for base in cls.__bases__:
            yield from self.lines(base)
        if dataclasses.is_dataclass(cls):
            for field in dataclasses.fields(cls):
                yield f"field {field.name} {field.type if isinstance(field.type, str) else ''}"
                yield from self.lines([field.type, field.default, field.default_factory, dict(field.metadata)])
        for name, value in vars(cls).items():
            if name not in _OF_THE_INTERPRETER:
                yield f"attribute {name}"
                yield from self.lines(value)

    def _of_instance(self, value: Any) -> Iterator[str]:
        """An object, by what its pickle would be made of; a tensor by its numbers."""
        yield from self.lines(type(value))
        if hasattr(value, "detach") and hasattr(value, "tolist"):  # the pickle of a tensor has its address
            yield f"{value.dtype} {tuple(value.shape)} {value.requires_grad}"
            yield from map(repr, value.detach().reshape(-1).tolist())
            return
        try:
            parts = value.__reduce_ex__(4)
        except TypeError:  # a lock or a file: its type is all there is
            return
        if isinstance(parts, str):
            yield parts
            return
        for part in parts:
            yield from self.lines(list(part) if isinstance(part, Iterator) else part)


def _is_importable(value: Any, module: str, name: str) -> bool:
    """Whether another process finds the object by its name."""
    found: Any = None if module == "__main__" else sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found is value


def _global_names(code: types.CodeType) -> set[str]:
    """The names that a function and the functions inside it look up."""
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    return set(code.co_names).union(*map(_global_names, inner))


def _imported_names(code: types.CodeType) -> set[str]:
    """What import statements in a function name: modules, and what they import from modules, which may be modules."""
    names, module = set(), ""
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            module = step.argval
            names.add(module)
        elif step.opname == "IMPORT_FROM":
            names.add(f"{module}.{step.argval}")
    return names
