"""Models and data sets that are given to `sweep` as Python objects, by the rules of training functions.

A function or class that other processes can import has the name `module:function`. Any other is sent to the ranks: its
name is recorded, with the digest of its code as its version.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.classification.datasets import builtin_dataset
from dmls_ray.workloads.classification.models import MODELS
from dmls_ray.workloads.user_function.schema import function_name
from dmls_ray.workloads.user_function.sent import SentName, send


def name_objects(axes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the axes with a name in place of each model and each data set that is an object.

    Args:
        axes: `model` is a function or class that returns a model; `dataset` is a function or class that is called with
            a split and returns its samples, or a dict of the samples of "train" and "test". Each may be a sequence of
            these, and of names.

    Raises:
        ConfigError: an object is a model already made, no model, or no two splits; or two objects have one name.
        UserCodeError: an object cannot be sent to another process.
    """
    named = dict(axes)
    digests: dict[str, str] = {}
    for field in ("model", "dataset"):
        given = axes.get(field)
        if isinstance(given, Sequence | set | frozenset) and not isinstance(given, str):
            named[field] = [_name_of(field, value, digests) for value in given]
        elif given is not None:
            named[field] = _name_of(field, given, digests)
    return named


def _name_of(field: str, value: Any, digests: dict[str, str]) -> str:
    """The name of an object; a text as it is.

    Raises:
        ConfigError, UserCodeError: as `name_objects`.
    """
    if isinstance(value, str):
        return value
    shown = f"{field}=<{type(value).__qualname__}>"
    if field == "dataset" and isinstance(value, Mapping) and value.keys() == {"train", "test"}:
        name, value = type(value["train"]).__qualname__, functools.partial(_split_of, dict(value))
        return _sent(field, name, value, digests)
    if field == "dataset" and (hasattr(type(value), "__getitem__") or not callable(value)):
        raise ConfigError(
            f"{shown} is not the samples of two splits; give {{'train': ..., 'test': ...}}, or a function that returns "
            "the samples of the split that it is given."
        )
    torch = sys.modules.get("torch")
    is_made = torch is not None and isinstance(value, torch.nn.Module)
    if is_made or not callable(value):
        raise ConfigError(f"{shown} makes no model for each run; give its class, or a function that returns a new one.")
    name, is_importable = function_name(value, flag=field)
    return name if is_importable else _sent(field, name, value, digests)


def _sent(field: str, name: str, value: Any, digests: dict[str, str]) -> SentName:
    """The name of an object that is sent along, which must mean one thing in the records.

    Args:
        field: `model` or `dataset`.
        name: the name of the object.
        value: the object.
        digests: names of earlier objects -> their digests; gets this one, too.

    Raises:
        ConfigError: it is the name of another object, or of a built-in model or data set.
    """
    sent = send(value, value, given=f"{field}={name}")
    if name in MODELS or builtin_dataset(name):
        raise ConfigError(f"{field}={name} is the name of a built-in one; give yours another name.")
    if digests.setdefault(name, sent.digest) != sent.digest:
        raise ConfigError(f"{field}={name} is the name of two different objects; give each another name.")
    return SentName(name, sent)


def _split_of(halves: Mapping[str, Any], split: str) -> Any:
    return halves[split]
