"""Kernels of this project. PyTorch's extension loader builds them at their first use on a machine, into the cache."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import sysconfig
from collections.abc import Callable
from pathlib import Path

import torch
from filelock import FileLock

from dmls_ray.util.errors import UnavailableError
from dmls_ray.util.files import cache_root

Kernel = Callable[[torch.Tensor, torch.Tensor, bool], None]
"""Function of pixels, memory for their grey levels, and whether the pixels are planar; see `Images`."""

_SOURCES = Path(__file__).parent / "csrc"


@functools.cache
def cpu_kernel() -> Kernel:
    """The kernel for the processor.

    Raises:
        UnavailableError: the machine has no C++ compiler, or no ninja.
        RuntimeError: the kernel cannot be compiled.
        OSError: the kernel cannot be loaded.
    """
    return _build("dmls_ray_grey_cpu", "cpu.cpp", with_cuda=False)


@functools.cache
def cuda_kernel() -> Kernel:
    """The kernel for a GPU, with a thread per pixel.

    Raises:
        UnavailableError: the machine has no nvcc, no C++ compiler, or no ninja.
        RuntimeError: the kernel cannot be compiled.
        OSError: the kernel cannot be loaded.
    """
    from torch.utils import cpp_extension

    cpp_extension.CUDA_HOME = cuda_home()
    if cpp_extension.CUDA_HOME is None:
        raise UnavailableError(f"our CUDA kernel needs nvcc; install the CUDA toolkit {torch.version.cuda}.")
    return _build("dmls_ray_grey_cuda", "cuda.cpp", "kernel.cu", with_cuda=True)


def cuda_home() -> str | None:
    """The folder of a CUDA toolkit; None if there is none."""
    from torch.utils import cpp_extension

    # PyTorch takes the folder around an nvcc for a toolkit, also where that nvcc is a script of another folder.
    for folder in (cpp_extension.CUDA_HOME, "/usr/local/cuda"):
        if folder is not None and Path(folder, "include", "cuda_runtime.h").exists():
            return folder
    return None


def _build(name: str, *sources: str, with_cuda: bool) -> Kernel:
    """Build a library of operators where it has not been built yet, load it, and return its operator `grey`."""
    from torch.utils import cpp_extension

    compiler = os.environ.get("CXX") or "c++"
    if not shutil.which(compiler):
        raise UnavailableError(f"{name} needs a C++ compiler, and there is no {compiler}; install g++, or set CXX.")
    # In an environment that was not activated, ninja lies next to Python, outside of PATH.
    os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", ""), sysconfig.get_path("scripts")])
    if not cpp_extension.is_ninja_available():
        raise UnavailableError(f"{name} needs ninja: pip install 'dmls_ray[kernels]'.")
    # Of these sources with this PyTorch and this compiler, for this GPU.
    key = hashlib.sha256(f"{torch.__version__} {compiler}".encode())
    if torch.cuda.is_available():
        key.update(str(torch.cuda.get_device_capability()).encode())
    for path in sorted(_SOURCES.iterdir()):
        key.update(path.read_bytes())
    folder = cache_root() / "kernels" / f"{name}-{key.hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        # The loader locks by a file that stays if a builder is killed: the next builder would wait for ever.
        (folder / "lock").unlink(missing_ok=True)
        cpp_extension.load(
            name,
            [str(_SOURCES / source) for source in sources],
            is_python_module=False,
            with_cuda=with_cuda,
            build_directory=str(folder),
            extra_cflags=["-O3", "-fopenmp"],
            extra_cuda_cflags=["-O3"],
        )
    kernel: Kernel = getattr(torch.ops, name).grey
    return kernel
