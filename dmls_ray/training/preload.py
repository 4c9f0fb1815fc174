"""`preload`: import what runs need, so that no run is timed with these imports."""

from __future__ import annotations

import gc
import importlib


def preload(entrypoint: str) -> None:
    """Import what runs with an entry point need.

    Imported objects are kept from the garbage collector. Without collections the imports take three quarters of the
    time, and the collection at the start of each run examines only the objects of runs.

    Args:
        entrypoint: `module:function`.
    """
    gc.disable()
    import torch

    # Not by `import_function`, which would take a broken installation for an error in the user's code.
    importlib.import_module(entrypoint.partition(":")[0])
    importlib.import_module("dmls_ray.training.child_run")

    # The first optimizer of a process imports much of PyTorch's compiler.
    torch.optim.SGD([torch.zeros(1, requires_grad=True)])
    gc.freeze()
    gc.enable()
