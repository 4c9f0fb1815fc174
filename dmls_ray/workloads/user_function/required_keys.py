"""Keys of a configuration given as `dict` that a training function reads in every call, from its source."""

from __future__ import annotations

import ast
import inspect
import symtable
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

_EVALUATED = {
    ast.AnnAssign: "value", ast.Assign: "value", ast.AugAssign: "value", ast.Expr: "value", ast.Return: "value",
    ast.If: "test", ast.While: "test", ast.For: "iter", ast.Match: "subject",
}  # fmt: skip
"""Statements -> the part that is evaluated whenever the statement is reached. Others may leave out, or catch, all."""

_METHODS_THAT_READ = ("copy", "get", "items", "keys", "values")
_FUNCTIONS_THAT_READ = ("dict", "len", "list", "print", "repr", "sorted", "str")


def required_keys(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the keys without which every call of the function raises KeyError.

    A key counts only where `config["key"]` is evaluated in every call, and nothing before it may have added the key:
    not within if, try, with or a loop, not after what may end the call, and not after the dict was assigned, changed,
    or handed to other code. Without a readable source, of a wrapped function and of a partial, there is none.

    Args:
        function: a function or a method whose first parameter is the dict.
    """
    plain = function.__func__ if inspect.ismethod(function) else function
    if not inspect.isfunction(plain) or hasattr(plain, "__wrapped__"):
        return ()
    name = next(iter(inspect.signature(function).parameters))
    try:
        source = textwrap.dedent(inspect.getsource(plain))
        (definition,) = ast.parse(source).body
        (scope,) = symtable.symtable(source, "<source>", "exec").get_children()
    except (OSError, TypeError, ValueError, SyntaxError, RecursionError):
        return ()
    # A file that was edited after its import may have other code at this line.
    if not isinstance(definition, ast.FunctionDef) or definition.name != plain.__name__:
        return ()
    parameter = scope.lookup(name)
    if parameter.is_assigned() or parameter.is_imported():
        return ()
    return tuple(dict.fromkeys(_keys_of_statements(definition.body, name)))


def _keys_of_statements(statements: list[ast.stmt], name: str) -> Iterator[str]:
    for statement in statements:
        if _may_change(statement, name):
            return
        evaluated = getattr(statement, _EVALUATED.get(type(statement), ""), None)
        if evaluated is not None:
            yield from _keys_of_expression(evaluated, name)
        if _may_end_the_call(statement, evaluated):
            return


def _may_end_the_call(statement: ast.stmt, evaluated: ast.AST | None) -> bool:
    """Whether the function may end there: by return, by raise, or within a call, such as sys.exit() in an if.

    Args:
        statement: any statement.
        evaluated: the part that is evaluated in every call. What it calls is taken to return.
    """
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return False
    if isinstance(statement, ast.Return | ast.Raise):
        return True
    parts = [part for part in ast.iter_child_nodes(statement) if part is not evaluated]
    nodes = [node for part in parts for node in ast.walk(part)]
    return any(isinstance(node, ast.Return | ast.Raise | ast.Call) for node in nodes)


def _keys_of_expression(node: ast.AST, name: str) -> Iterator[str]:
    if isinstance(node, ast.Subscript) and _is_name(node.value, name) and isinstance(node.slice, ast.Constant):
        if isinstance(node.slice.value, str):
            yield node.slice.value
        return
    for part in _parts_always_evaluated(node):
        yield from _keys_of_expression(part, name)


def _parts_always_evaluated(node: ast.AST) -> list[ast.AST]:
    if isinstance(node, ast.BoolOp):
        return [node.values[0]]
    if isinstance(node, ast.Compare):
        return [node.left, node.comparators[0]]
    if isinstance(node, ast.IfExp):
        return [node.test]
    if isinstance(node, ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp):
        return [node.generators[0].iter]
    if isinstance(node, ast.Lambda):
        return []
    return list(ast.iter_child_nodes(node))


def _may_change(statement: ast.stmt, name: str) -> bool:
    """Whether the statement does more with the dict than read it: it may add keys, or hand it to code that does."""
    uses = {id(node) for node in ast.walk(statement) if _is_name(node, name)}
    reads = {id(node) for reader in ast.walk(statement) for node in _what_is_read(reader)}
    return not uses <= reads


def _what_is_read(node: ast.AST) -> list[ast.expr]:
    """The parts of an expression that it reads and cannot change."""
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        return [node.value]
    if isinstance(node, ast.Attribute) and node.attr in _METHODS_THAT_READ:
        return [node.value]
    if isinstance(node, ast.Compare):
        pairs = zip(node.ops, node.comparators, strict=True)
        return [right for operator, right in pairs if isinstance(operator, ast.In | ast.NotIn)]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS_THAT_READ:
        return node.args
    if isinstance(node, ast.Dict):
        return [value for key, value in zip(node.keys, node.values, strict=True) if key is None]
    return [node.value] if isinstance(node, ast.FormattedValue) else []


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
