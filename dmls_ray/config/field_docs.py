"""The docstring under each field of a dataclass, which is the help of its flag."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import textwrap


def field_docs(config_class: type) -> dict[str, str]:
    """The docstring under each field, also of base classes; empty without the source."""
    docs: dict[str, str] = {}
    for base in reversed(config_class.__mro__):
        if dataclasses.is_dataclass(base):
            docs |= _docs_in(base)
    return docs


def _docs_in(config_class: type) -> dict[str, str]:
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(config_class))).body[0]
    except (OSError, TypeError):  # typed into an interpreter
        return {}
    assert isinstance(body, ast.ClassDef)
    docs = {}
    for node, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(node, ast.AnnAssign) and isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            assert isinstance(node.target, ast.Name)
            docs[node.target.id] = inspect.cleandoc(str(after.value.value))
    return docs
