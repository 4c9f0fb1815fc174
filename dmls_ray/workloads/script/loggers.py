"""Numbers that a script gives to a logger of experiments: TensorBoard's writer, Weights & Biases, trackio, MLflow.

Each is looked at when the script imports it, and never otherwise. Nothing of a run goes over the network, unless the
user's environment says so.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from dmls_ray.training.observed.hooks import Faults
from dmls_ray.workloads.script.told_numbers import ToldNumbers, is_counter

Numbers = Mapping[str, Any]


def _of_scalar(tag: Any = None, scalar_value: Any = None, *_: Any, **__: Any) -> Numbers:
    return {tag: scalar_value}


def _of_dict(data: Any = None, *_: Any, **named: Any) -> Numbers:
    given = data if data is not None else named.get("metrics")
    return given if isinstance(given, Mapping) else {}


def _of_mlflow(run_id: Any, key: Any, value: Any, *_: Any, **__: Any) -> Numbers:
    return {key: value}


def _of_batch(run_id: Any, metrics: Sequence[Any] = (), *_: Any, **__: Any) -> Numbers:
    return {metric.key: metric.value for metric in metrics}


_METHODS: Mapping[str, Mapping[str, Callable[..., Numbers]]] = {
    "torch.utils.tensorboard.writer": {"SummaryWriter.add_scalar": _of_scalar},
    "tensorboardX.writer": {"SummaryWriter.add_scalar": _of_scalar},
    "wandb.sdk.wandb_run": {"Run.log": _of_dict},
    "trackio.run": {"Run.log": _of_dict},
    "mlflow.tracking.client": {"MlflowClient.log_metric": _of_mlflow, "MlflowClient.log_batch": _of_batch},
}
"""Module -> its methods that take numbers -> what finds these in the arguments."""


@contextmanager
def numbers_logged(folder: str, faults: Faults) -> Iterator[ToldNumbers]:
    """While the context lasts, collect the numbers that are logged, without counters.

    Args:
        folder: where loggers write that would send their numbers elsewhere.
        faults: takes what failed in looking.
    """
    found = ToldNumbers()
    for name, value in {
        "WANDB_MODE": "offline",
        "WANDB_SILENT": "true",
        "WANDB_DIR": folder,
        "TRACKIO_DIR": os.path.join(folder, "trackio"),
        "MLFLOW_TRACKING_URI": f"file:{folder}/mlruns",
        "MLFLOW_ALLOW_FILE_STORE": "true",
    }.items():
        os.environ.setdefault(name, value)
    finder = _Finder(found, faults)
    sys.meta_path.insert(0, finder)
    for name in _METHODS.keys() & sys.modules.keys():  # by --preload
        finder.execute(lambda module: None, sys.modules[name])
    try:
        yield found
    finally:
        sys.meta_path.remove(finder)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of loggers as usual, and lets their methods tell what they are given.

    Args:
        found: receives the numbers.
        faults: takes what failed in looking.
    """

    def __init__(self, found: ToldNumbers, faults: Faults) -> None:
        self._found = found
        self._faults = faults

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _METHODS:
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        specs = (finder.find_spec(fullname, path, target) for finder in others)
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module
            spec.loader.exec_module = functools.partial(self.execute, execute)  # type: ignore[method-assign]
        return spec

    def execute(self, execute: Callable[[ModuleType], None], module: ModuleType) -> None:
        """Execute a module, and let its methods tell what they are given."""
        execute(module)
        for path, numbers_of in _METHODS[module.__name__].items():
            owner, _, name = path.partition(".")
            method = getattr(getattr(module, owner, None), name, None)
            if method is not None:
                setattr(getattr(module, owner), name, self._telling(method, numbers_of))

    def _telling(self, method: Callable[..., Any], numbers_of: Callable[..., Numbers]) -> Callable[..., Any]:
        @self._faults.guarded
        def take(*args: Any, **kwargs: Any) -> None:
            for name, value in numbers_of(*args, **kwargs).items():
                number = _number(value)
                if number is not None and not is_counter(str(name)):
                    self._found.add(str(name), number)

        @functools.wraps(method)
        def telling(self_: Any, *args: Any, **kwargs: Any) -> Any:
            returned = method(self_, *args, **kwargs)
            take(*args, **kwargs)
            return returned

        return telling


def _number(value: Any) -> float | None:
    """The value as a number; None for pictures, tables and texts."""
    if isinstance(value, str | bool):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError):  # RuntimeError: a tensor of several elements
        return None
