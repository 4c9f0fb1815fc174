"""Names in braces among the fixed arguments of a script: `--batch_size={batch}`."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

from dmls_ray.util.errors import ConfigError

_BRACES = re.compile(r"(?<![${])\{(\w+)\}(?!\})")
"""A name in braces; `${name}` is one of other programs, and `{{name}}` stands for the braces themselves."""
_DOUBLED = re.compile(r"\{\{(\w+)\}\}")


def names_in_braces(words: Sequence[str]) -> list[str]:
    """The names in braces, in their order."""
    return [name for word in words for name in _BRACES.findall(word)]


def filled(word: str, value_of: Callable[[str], Any]) -> str:
    """A word with values in place of its names in braces.

    Args:
        word: the word.
        value_of: the value of a name; raises KeyError for an unknown one.

    Raises:
        ConfigError: a name has no value.
    """

    def fill(braces: re.Match[str]) -> str:
        name = braces[1]
        try:
            value = value_of(name)
        except KeyError:
            value = None
        if value is None:
            way_out = f"give --set {name} VALUE ..., or {{{{{name}}}}} for the braces themselves"
            raise ConfigError(f"{braces[0]} among the words after -- is filled by nothing; {way_out}.")
        if (name, value) == ("steps", "auto"):
            raise ConfigError(f"{braces[0]} among the words after -- needs a number of steps; give --steps 50.")
        return str(value)

    return _DOUBLED.sub(r"{\1}", _BRACES.sub(fill, word))
