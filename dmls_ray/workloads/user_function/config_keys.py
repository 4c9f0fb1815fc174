"""The keys that a training function reads from its configuration, where that is a dict, found in its source."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

_CONDITIONAL = (
    ast.If, ast.IfExp, ast.BoolOp, ast.For, ast.While, ast.Match, ast.With, ast.Try, ast.TryStar, ast.Lambda,
    ast.Assert, ast.Compare, ast.FunctionDef, ast.ClassDef, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
)  # fmt: skip
"""Code that may evaluate nothing of what it contains, or that may catch its error."""


def required_keys(function: Callable[..., Any]) -> list[str]:
    """The keys without which every call of a function raises KeyError; none where its source does not show them.

    A key counts where every call evaluates `config["key"]`, before the function may return, and before it does anything
    with the dict that may add a key, such as handing it to other code.
    """
    body, name = _body_of(function)
    keys: list[str] = []
    for statement in body.body:
        nodes = list(ast.walk(statement))
        read = [node.value for node in nodes if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load)]
        read += [node.value for node in nodes if isinstance(node, ast.Attribute) and node.attr == "get"]
        if _uses(nodes, name) > _uses(read, name):
            break
        keys += _keys(getattr(statement, "iter", statement), name)
        if any(isinstance(node, ast.Return | ast.Raise) for node in nodes):
            break
    return keys


def optional_keys(function: Callable[..., Any]) -> dict[str, Any]:
    """The keys that a function reads by `config.get("key", default)`, with defaults that its source shows."""
    body, name = _body_of(function)
    found: dict[str, Any] = {}
    for node in ast.walk(body):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id=read), attr="get"),
                args=[ast.Constant(value=str(key)), ast.Constant(value=default)],
            ) if read == name:
                found[key] = default
    return found


def _body_of(function: Callable[..., Any]) -> tuple[ast.Module, str]:
    """The statements of a function, none where its source does not show them, and the name of its first parameter."""
    name = next(iter(inspect.signature(function).parameters), "")
    nothing = ast.Module([], type_ignores=[])
    try:
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(function.__code__))).body
    except (AttributeError, OSError, ValueError, SyntaxError):
        return nothing, name
    # The code of a decorator has another name, as may that of a file that was edited after its import.
    if not isinstance(definition, ast.FunctionDef) or definition.name != function.__name__ or not name:
        return nothing, name
    return ast.Module(definition.body, type_ignores=[]), name


def _uses(nodes: Sequence[ast.AST], name: str) -> int:
    return sum(isinstance(node, ast.Name) and node.id == name for node in nodes)


def _keys(node: ast.AST, name: str) -> Iterator[str]:
    """The keys that are read whenever a node is evaluated."""
    match node:
        case ast.Subscript(value=ast.Name(id=read), slice=ast.Constant(value=str(key))) if read == name:
            yield key
    if not isinstance(node, _CONDITIONAL):
        for part in ast.iter_child_nodes(node):
            yield from _keys(part, name)
