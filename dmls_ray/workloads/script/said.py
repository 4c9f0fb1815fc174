"""`--samples`: the samples and tokens of a step in the words of the user, as arithmetic over flags and fields."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Sequence

from dmls_ray.util.errors import ConfigError
from dmls_ray.util.text import did_you_mean

_UNITS = ("samples", "tokens")
_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
_EXAMPLE = "give arithmetic over flags: 'batch_size * world_size, tokens=batch_size * 1024'"


def counts_said(text: str, value_of: Callable[[str], float], names: Sequence[str]) -> dict[str, float]:
    """The samples and the tokens of a step, of all ranks, as far as a text names them.

    Args:
        text: `batch_size * world_size`, `tokens=batch_size * 1024`, or both with a comma between them.
        value_of: the number that a name stands for; raises KeyError for an unknown one.
        names: those that there are.

    Raises:
        ConfigError: the text is something else, has an unknown name, or gives no positive number.
    """
    try:
        call = ast.parse(f"f({text})", mode="eval").body
    except (SyntaxError, ValueError, RecursionError):
        call = None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise ConfigError(f"--samples {text} is no arithmetic; {_EXAMPLE}.")
    given = [("samples", item) for item in call.args] + [(str(item.arg), item.value) for item in call.keywords]
    units = [unit for unit, _ in given]
    if not given or len(set(units)) < len(units) or not set(units) <= {*_UNITS}:
        raise ConfigError(f"--samples {text} does not say samples, tokens, or both; {_EXAMPLE}.")

    def number(node: ast.expr) -> float:
        if isinstance(node, ast.Constant) and type(node.value) in (int, float):
            return float(node.value)  # type: ignore[arg-type]
        if isinstance(node, ast.Name):
            return named(node.id)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -number(node.operand)
        if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](number(node.left), number(node.right))
        raise ConfigError(f"--samples {text}: {ast.unparse(node)} is none of + - * / // ( ) and names; {_EXAMPLE}.")

    def named(name: str) -> float:
        try:
            return float(value_of(name))
        except KeyError:
            meant = did_you_mean(name, names)
            raise ConfigError(
                f"--samples {text}: there is no flag or field {name}; {meant}give one of {', '.join(names)}."
            ) from None
        except (TypeError, ValueError):
            value = value_of(name)
            raise ConfigError(f"--samples {text}: {name} is {value!r}, which is no number; give {name} one.") from None

    counts: dict[str, float] = {}
    for unit, node in given:
        try:
            counts[unit] = number(node)
        except ZeroDivisionError:
            counts[unit] = math.nan
        if not 0 < counts[unit] < math.inf:
            raise ConfigError(f"--samples {text}: {unit} of a step are {counts[unit]:g}; they have to be positive.")
    return counts
