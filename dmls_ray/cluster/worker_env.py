"""The environment of a rank's process: working directory, imports, network interface and device."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Sequence

import psutil

from dmls_ray.workloads.registry import default_entrypoint


def enter_working_dir(folder: str, module_path: Sequence[str]) -> None:
    """Use the driver's working directory and module search path, where they exist on this machine."""
    if os.path.isdir(folder):
        os.chdir(folder)
    # As in the driver, `import_function` adds the working directory after installed packages.
    for entry in reversed(module_path):
        if entry not in sys.path:
            sys.path.insert(0, entry)


def preload_imports() -> None:
    """Import what runs need, so that no run is timed with these imports.

    Imported objects are kept from the garbage collector. Without collections the imports take three quarters of the
    time, and the collection at the start of each run examines only the objects of runs.
    """
    gc.disable()
    import torch

    default_entrypoint()

    # The first optimizer of a process imports much of PyTorch's compiler.
    torch.optim.SGD([torch.zeros(1, requires_grad=True)])
    gc.freeze()
    gc.enable()


def use_interface_of(address: str) -> None:
    """Let gloo and NCCL use the network interface of this address; that of the host name may be the loopback."""
    for interface, addresses in psutil.net_if_addrs().items():
        if any(candidate.address == address for candidate in addresses):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
            os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)


def accelerator() -> str:
    """Device of this process, as Ray Train assigns it: `cuda:N` or `cpu`."""
    from ray.train.torch import get_device

    return str(get_device())
