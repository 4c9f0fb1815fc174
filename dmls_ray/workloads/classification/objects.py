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
from dmls_ray.workloads.classification.models import builtin_model
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
        if given is None:
            continue
        if hasattr(given, "tolist"):
            if str(getattr(given, "dtype", "")) != "object":  # an array of names
                continue
            given = given.tolist()
        is_several = isinstance(given, Sequence | set | frozenset) and not isinstance(given, str)
        names = [_name_of(field, value) for value in (given if is_several else [given])]
        for name in names:
            if isinstance(name, SentName):
                _check_is_free(field, name, digests)
        named[field] = names if is_several else names[0]
    return named


def _name_of(field: str, value: Any) -> str:
    """The name of an object; a text as it is.

    Raises:
        ConfigError, UserCodeError: as `name_objects`.
    """
    if isinstance(value, str):
        return value
    if field == "dataset" and isinstance(value, Mapping) and value.keys() == {"train", "test"}:
        for split, samples in value.items():
            _check_is_map_style(split, samples)
        return _sent(field, type(value["train"]).__qualname__, functools.partial(_split_of, dict(value)))
    shown = f"{field}=<{type(value).__qualname__}>"
    has_samples = not isinstance(value, type) and hasattr(value, "__getitem__")
    if field == "dataset" and (has_samples or not callable(value)):
        raise ConfigError(
            f"{shown} is not the samples of two splits; give {{'train': ..., 'test': ...}}, or a function that returns "
            "the samples of the split that it is given."
        )
    torch = sys.modules.get("torch")
    if field == "model" and torch is not None and isinstance(value, torch.nn.Module):
        raise ConfigError(
            f"{shown} is a model already made, and each run makes its own; give its class, or a function that returns "
            "a new one."
        )
    if not callable(value):
        raise ConfigError(
            f"{shown} is no model; give a name, a class, a function that returns a model, or a list of these."
        )
    name, is_importable = function_name(value, flag=field)
    return name if is_importable else _sent(field, name, value)


def _check_is_map_style(split: str, samples: Any) -> None:
    """Refuse what gives no sample by its index.

    Raises:
        ConfigError: with what it is, and what to give.
    """
    kind = type(samples).__qualname__
    is_pair = isinstance(samples, tuple | list) and len(samples) == 2
    if is_pair and all(hasattr(part, "shape") for part in samples):
        raise ConfigError(
            f"dataset: {split} is a {kind} of two arrays; give torch.utils.data.TensorDataset(images, labels) of two "
            "tensors."
        )
    if not (hasattr(samples, "__len__") and hasattr(samples, "__getitem__")):
        raise ConfigError(
            f"dataset: {split} is of type {kind}; give a map-style data set, len() and [index] -> (image, label): of a "
            "DataLoader, loader.dataset."
        )


def _sent(field: str, name: str, value: Any) -> SentName:
    return SentName(name, send(value, value, given=f"{field}={name}"))


def _check_is_free(field: str, name: SentName, digests: dict[str, str]) -> None:
    """Refuse a name that would mean two things in the records.

    Args:
        field: `model` or `dataset`.
        name: the name of an object.
        digests: names of earlier objects -> their digests; gets this one, too.

    Raises:
        ConfigError: it is the name of another object, or of a built-in model or data set.
    """
    if builtin_model(name) or builtin_dataset(name):
        raise ConfigError(f"{field}={name} is the name of a built-in one; give yours another name.")
    if digests.setdefault(name, name.sent.digest) != name.sent.digest:
        parameters = "shape, classes" if field == "model" else "split"
        raise ConfigError(
            f"{field}={name} is the name of two different objects; give each a name of its own, as a function: "
            f"def NAME({parameters})."
        )


def _split_of(halves: Mapping[str, Any], split: str) -> Any:
    return halves[split]
