"""The ways to turn images grey, each a small function registered by name.

Each takes the images and whatever it must make ready once, and gives back a pass: what is timed. A pass writes grey
levels into `Images.grey`, which was allocated once, or returns new ones where a library knows no other way.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from dmls_ray.records.provenance import has_cpp_compiler
from dmls_ray.util.errors import UnavailableError
from dmls_ray.workloads.grayscale.images import BLUE, GREEN, RED, Images

Pass = Callable[[], torch.Tensor | None]
"""Turns all images grey once; returns grey levels, images x height x width, where it has allocated them itself."""

IMPLEMENTATIONS: dict[str, Callable[[Images], Pass]] = {}


def _named(name: str) -> Callable[[Callable[[Images], Pass]], Callable[[Images], Pass]]:
    def register(function: Callable[[Images], Pass]) -> Callable[[Images], Pass]:
        IMPLEMENTATIONS[name] = function
        return function

    return register


def make_pass(name: str, images: Images) -> Pass:
    """An implementation, ready to turn these images grey.

    Raises:
        UnavailableError: what it needs is not on this machine.
    """
    return IMPLEMENTATIONS[name](images)


# --- on the processor -----------------------------------------------------------------------------------------------


@_named("python_loops")
def _python_loops(images: Images) -> Pass:
    """As one would write it first: two loops over the pixels of an image."""
    # height x width x 3 in either layout.
    pictures = torch.stack(images.channels(), 3).numpy() if images.planar else images.pixels.numpy()
    grey = images.grey.numpy()

    def run() -> None:
        for picture, levels in zip(pictures, grey, strict=True):
            for y in range(picture.shape[0]):
                for x in range(picture.shape[1]):
                    red, green, blue = picture[y, x]
                    levels[y, x] = round(RED * red + GREEN * green + BLUE * blue)

    return run


@_named("numpy")
def _numpy(images: Images) -> Pass:
    """A weighted sum of three arrays, in float32."""
    channels = [channel.numpy() for channel in images.channels()]
    grey = images.grey.numpy()

    def run() -> None:
        # Told each time: what a scalar of float32 makes of an array of uint8 differs from NumPy 1 to NumPy 2.
        red, green, blue = (
            np.multiply(channel, weight, dtype=np.float32)
            for channel, weight in zip(channels, (RED, GREEN, BLUE), strict=True)
        )
        np.rint(red + green + blue, out=grey, casting="unsafe")

    return run


@_named("pillow")
def _pillow(images: Images) -> Pass:
    """Image.convert("L"), picture by picture, from an array and back to one."""
    from PIL import Image

    pictures, grey = images.pixels.numpy(), images.grey.numpy()

    def run() -> None:
        for picture, levels in zip(pictures, grey, strict=True):
            levels[:] = np.asarray(Image.fromarray(picture).convert("L"))

    return run


@_named("torch")
def _torch(images: Images) -> Pass:
    """A weighted sum of three tensors, in float32."""
    return lambda: _weighted_sum(images.pixels, images.grey, images.planar)


@_named("torchvision")
def _torchvision(images: Images) -> Pass:
    """Its transform, which takes planes, or a view that looks like them, and allocates its result."""
    from torchvision.transforms.v2.functional import rgb_to_grayscale

    planes = images.pixels if images.planar else images.pixels.permute(0, 3, 1, 2)

    def run() -> torch.Tensor:
        grey: torch.Tensor = rgb_to_grayscale(planes)
        return grey[:, 0]

    return run


@_named("torch_compile")
def _torch_compile(images: Images) -> Pass:
    """The same sum as torch's, made into one loop of C++ by Inductor."""
    if not has_cpp_compiler():
        raise UnavailableError("implementation=torch_compile needs a C++ compiler; install one, g++ say.")
    return _compiled(images)


@_named("opencv")
def _opencv(images: Images) -> Pass:
    """cvtColor, on all images at once, one below the other."""
    try:
        import cv2
    except ImportError as error:
        raise UnavailableError(
            "implementation=opencv needs OpenCV; pip install opencv-python-headless (or pip install -e '.[images]')."
        ) from error
    cv2.setNumThreads(torch.get_num_threads())
    width = images.pixels.shape[2]
    pictures, grey = images.pixels.numpy().reshape(-1, width, 3), images.grey.numpy().reshape(-1, width)

    def run() -> None:
        cv2.cvtColor(pictures, cv2.COLOR_RGB2GRAY, dst=grey)

    return run


@_named("cpp")
def _cpp(images: Images) -> Pass:
    """A loop of our own in C++, told what to do with AVX2 where the processor has it."""
    from dmls_ray.workloads.grayscale.kernels import cpu_kernel

    grey = cpu_kernel()
    return lambda: grey(images.pixels, images.grey, images.planar)


# --- on a GPU -------------------------------------------------------------------------------------------------------


@_named("torch_cuda")
def _torch_cuda(images: Images) -> Pass:
    """As torch on the processor: a kernel for each step of the sum."""
    return lambda: _weighted_sum(images.pixels, images.grey, images.planar)


@_named("torch_compile_cuda")
def _torch_compile_cuda(images: Images) -> Pass:
    """The same sum in one kernel, which Inductor writes in Triton."""
    return _compiled(images)


@_named("triton")
def _triton(images: Images) -> Pass:
    """A Triton kernel of our own: a program a block of pixels."""
    try:
        from dmls_ray.workloads.grayscale.triton_kernel import turn_grey
    except ImportError as error:
        raise UnavailableError(f"implementation=triton needs Triton ({error}); pip install triton.") from error
    return lambda: turn_grey(images)


@_named("cuda_per_image")
def _cuda_per_image(images: Images) -> Pass:
    """A CUDA kernel of our own, a thread a pixel: launched for one image after the other."""
    from dmls_ray.workloads.grayscale.kernels import cuda_kernel

    grey = cuda_kernel()
    each = list(zip(images.pixels.split(1), images.grey.split(1), strict=True))

    def run() -> None:
        for pixels, levels in each:
            grey(pixels, levels, images.planar)

    return run


@_named("cuda")
def _cuda(images: Images) -> Pass:
    """The same kernel, launched once for all images."""
    from dmls_ray.workloads.grayscale.kernels import cuda_kernel

    grey = cuda_kernel()
    return lambda: grey(images.pixels, images.grey, images.planar)


def _weighted_sum(pixels: torch.Tensor, grey: torch.Tensor, planar: bool) -> None:
    red, green, blue = pixels.unbind(1 if planar else 3)
    grey.copy_((RED * red + GREEN * green + BLUE * blue).round())


def _compiled(images: Images) -> Pass:
    compiled: Any = torch.compile(_weighted_sum, dynamic=False)
    return lambda: compiled(images.pixels, images.grey, images.planar)
