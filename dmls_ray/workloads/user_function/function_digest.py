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
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

from dmls_ray.util.source_digest import is_user_module, text_digest

_OF_THE_INTERPRETER = frozenset({
    "__dict__", "__weakref__", "__module__", "__doc__", "__firstlineno__", "__static_attributes__", "__annotate_func__",
    "__annotations_cache__", "__dataclass_fields__", "__abstractmethods__", "_abc_impl", "_autograd_function_id",
})  # fmt: skip
"""Attributes of classes that say nothing about what instances do, or that repeat what others say."""


def function_digest(*objects: Any) -> tuple[str, tuple[str, ...]]:
    """Return the digest of a function, and of what else belongs to it, and the user's modules that they use.

    Of a function or class that belongs to a module, only the name is in the digest: the module's file has its own.
    """
    described = _Description()
    lines = list(described.lines(objects))
    modules = tuple(sorted(filter(is_user_module, described.modules)))
    if described.unreadable:
        types_left = ", ".join(sorted(described.unreadable))
        warnings.warn(
            f"{getattr(objects[0], '__qualname__', 'the function')} uses values of which a change is not noticed "
            f"({types_left}): use --fresh, or fresh=True, after one.",
            stacklevel=2,
        )
    return text_digest(*lines, *modules), modules


class _Description:
    """Texts of objects and of all that they refer to; each object is described once."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self.unreadable: set[str] = set()
        """Types of the values that cannot be described: only their type counts."""
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
        try:
            yield from self._of_object(value)
        except Exception:  # noqa: BLE001 - whatever the user's objects raise when they are read must not end the sweep
            self.unreadable.add(type(value).__qualname__)
            yield f"unreadable {type(value).__qualname__}"

    def _of_object(self, value: Any) -> Iterator[str]:
        if isinstance(value, types.ModuleType):
            self.modules.add(value.__name__)
            yield f"module {value.__name__}"
        elif isinstance(value, types.CodeType):
            yield from self._of_code(value)
        elif isinstance(value, staticmethod | classmethod):
            yield type(value).__name__
            yield from self.lines(value.__func__)
        elif isinstance(value, property):
            yield "property"
            for function in (value.fget, value.fset, value.fdel):
                yield from self.lines(function)
        elif isinstance(value, type) or (callable(value) and isinstance(getattr(value, "__qualname__", None), str)):
            yield from self._of_definition(value)
        elif isinstance(value, types.CellType):
            yield from self._of_cell(value)
        elif isinstance(value, Mapping) and type(value) in (dict, types.MappingProxyType):
            yield f"dict {len(value)}"
            for item in value.items():
                yield from self.lines(item)
        elif isinstance(value, set | frozenset):
            yield type(value).__name__
            # Each by itself: the order of a set differs from process to process.
            for lines in sorted(list(self._alone().lines(item)) for item in value):
                yield from lines
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
        else:  # a function in a wrapper, of functools.cache for example
            yield from self.lines(getattr(value, "__wrapped__", None))

    def _alone(self) -> _Description:
        """A description that has described nothing yet."""
        alone = _Description()
        alone.modules, alone.unreadable = self.modules, self.unreadable
        return alone

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
        self.modules.update(_imported_names(code))
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
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Tensor):  # its pickle has its address
            yield f"{value.dtype} {tuple(value.shape)} {value.requires_grad}"
            content = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
            yield hashlib.sha256(memoryview(content.numpy())).hexdigest()
            return
        try:
            parts = type(value).__reduce_ex__(value, 4)  # type: ignore[call-arg]
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
    """The global names that a function and the functions inside it look up, without names of attributes."""
    inner = (constant for constant in code.co_consts if isinstance(constant, types.CodeType))
    steps = dis.get_instructions(code)
    names = {step.argval for step in steps if "GLOBAL" in step.opname or step.opname == "LOAD_NAME"}
    return names.union(*map(_global_names, inner))


def _imported_names(code: types.CodeType) -> set[str]:
    """What import statements in a function name: modules, and what they import from modules, which may be modules."""
    names, module = set(), ""
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME":
            module = step.argval
            names.add(module)
        elif step.opname == "IMPORT_FROM":
            names.add(f"{module}.{step.argval}")
    if {"import_module", "__import__"} & set(code.co_names):
        names |= {text for text in code.co_consts if isinstance(text, str) and text.replace(".", "").isidentifier()}
    return names
