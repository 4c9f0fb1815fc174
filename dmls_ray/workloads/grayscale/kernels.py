"""Kernels of this project. PyTorch's extension loader builds them at their first use on a machine, into the cache."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import torch

from dmls_ray.util.errors import UnavailableError
from dmls_ray.util.paths import cache_root
from dmls_ray.util.shared_lock import lock_with_notice

Kernel = Callable[[torch.Tensor, torch.Tensor, bool], None]
"""Function of pixels, memory for their grey levels, and whether the pixels are planar; see `Images`."""

_SOURCES = Path(__file__).parent / "csrc"


@functools.cache
def cpu_kernel() -> Kernel:
    """The kernel for the processor.

    Raises:
        UnavailableError: the machine has no C++ compiler, or no ninja.
        RuntimeError: the kernel cannot be compiled or loaded.
    """
    return _build("dmls_ray_grey_cpu", "cpu.cpp", with_cuda=False)


@functools.cache
def cuda_kernel() -> Kernel:
    """The kernel for a GPU, with a thread per pixel.

    Raises:
        UnavailableError: the machine has no nvcc, no C++ compiler, or no ninja.
        RuntimeError: the kernel cannot be compiled or loaded.
    """
    return _build("dmls_ray_grey_cuda", "cuda.cpp", "kernel.cu", with_cuda=True)


def cuda_home() -> Path | None:
    """The folder of a CUDA toolkit that has nvcc; None if there is none."""
    on_path = shutil.which("nvcc")
    # nvcc may be a link, or a script, in a folder that has no toolkit around it.
    places = [os.environ.get("CUDA_HOME"), on_path and Path(on_path).resolve().parents[1], "/usr/local/cuda"]
    needed = ("bin/nvcc", "include/cuda_runtime.h")
    return next(
        (Path(place) for place in places if place and all((Path(place) / name).exists() for name in needed)), None
    )


def _build(name: str, *sources: str, with_cuda: bool) -> Kernel:
    """Build a library of operators where it has not been built yet, load it, and return its operator `grey`."""
    wanted = f"our {'CUDA' if with_cuda else 'C++'} kernel"
    compiler = _compiler()
    if not shutil.which(compiler[0]):
        raise UnavailableError(
            f"{wanted} needs a C++ compiler, and there is no {shlex.join(compiler)}; install one, g++ say."
        )
    if with_cuda and cuda_home() is None:
        raise UnavailableError(f"{wanted} needs nvcc; install the CUDA toolkit of this PyTorch ({torch.version.cuda}).")
    # Looks for a toolkit when it is imported, in fewer places.
    from torch.utils import cpp_extension

    # In an environment that was not activated, ninja lies next to Python, outside of PATH.
    with _environment(PATH=os.pathsep.join([os.environ.get("PATH", ""), sysconfig.get_path("scripts")])):
        if not cpp_extension.is_ninja_available():
            raise UnavailableError(f"{wanted} needs ninja; pip install ninja.")
        if with_cuda:
            cpp_extension.CUDA_HOME = str(cuda_home())
        with _folder_of(name, with_cuda) as folder, _as_one_program(compiler, folder):
            try:
                cpp_extension.load(
                    name, [str(_SOURCES / source) for source in sources], is_python_module=False, with_cuda=with_cuda,
                    build_directory=str(folder), extra_cflags=["-O3", "-fopenmp"], extra_cuda_cflags=["-O3"],
                )  # fmt: skip
            except OSError as error:
                if error.errno is not None:  # no room, say: not what the loader of libraries complains of
                    raise
                # Built, and of no use: clang, say, wants a runtime for threads that is not PyTorch's.
                why = error.__cause__ or error
                raise RuntimeError(f"{wanted} cannot be loaded ({why}); build it with g++ (CXX=g++).") from error
            except RuntimeError as error:
                raise RuntimeError(f"{wanted} cannot be built: {_complaint(str(error))}") from error
    kernel: Kernel = getattr(torch.ops, name).grey
    return kernel


def _compiler() -> list[str]:
    """The command of the C++ compiler: $CXX, which may have options or another program first, as in `ccache g++`."""
    named = os.environ.get("CXX", "").strip() or "c++"
    try:
        # A path may have a space in it.
        return [named] if shutil.which(named) else shlex.split(named)
    except ValueError:  # an open quote
        return [named]


def _as_one_program(command: list[str], folder: Path) -> AbstractContextManager[None]:
    """Make $CXX one program without a space in its path, within the context.

    Newer extension loaders take all of $CXX for the name of a program; older ones have a shell divide it.
    """
    if len(command) == 1 and " " not in command[0]:
        return _environment(CXX=command[0])
    script = folder / "c++"
    script.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    # Newer loaders put ccache before a compiler by themselves.
    return _environment(CXX=str(script), TORCH_NO_COMPILER_WRAPPER="1")


def _complaint(log: str) -> str:
    """The line of a failed build that gives the reason; the first lines are the commands."""
    lines = log.splitlines() or [""]
    return next((line for line in lines if re.search(r"(error|fatal)\s*:|not found", line)), lines[0]).strip()


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@contextmanager
def _folder_of(name: str, with_cuda: bool) -> Iterator[Path]:
    """The cache folder of a library built from these sources with this PyTorch and these compilers.

    One process at a time has the folder.
    """
    text = b"".join(path.read_bytes() for path in sorted(_SOURCES.iterdir()))
    compiler = _compiler()
    text += shlex.join(compiler).encode() + _version_of(compiler)
    if with_cuda:
        text += subprocess.run([f"{cuda_home()}/bin/nvcc", "--version"], capture_output=True, check=False).stdout
    device = str(torch.cuda.get_device_capability()) if with_cuda and torch.cuda.is_available() else ""
    key = hashlib.sha256(text + f"{torch.__version__} {device}".encode()).hexdigest()[:16]
    folder = cache_root() / "kernels" / f"{name}-{key}"
    folder.mkdir(parents=True, exist_ok=True)
    with lock_with_notice(f"{folder}.lock", "compiles a kernel"):
        # Older loaders lock by a file that stays if a builder is killed: the next builder would wait for ever.
        (folder / "lock").unlink(missing_ok=True)
        yield folder


def _version_of(compiler: list[str]) -> bytes:
    """The output of a C++ compiler for `--version`.

    Raises:
        UnavailableError: the command fails, so it is no compiler.
    """
    try:
        return subprocess.run([*compiler, "--version"], capture_output=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError) as error:
        raise UnavailableError(
            f"our kernels need a C++ compiler, and {shlex.join(compiler)} is none ({error}); install one, g++ say, and "
            "name it (CXX=g++)."
        ) from error
