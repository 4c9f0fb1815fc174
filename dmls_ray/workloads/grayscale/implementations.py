"""Implementations of turning images grey. A new function with the decorator `implementation` is a new one.

Each function takes the images, prepares what it needs once, and returns a pass, which is timed. A pass writes grey
levels into `Images.grey`, which was allocated once, or returns new ones where a library cannot write into an array. The
configuration reads the names from here, so this module loads neither PyTorch nor NumPy; the functions do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dmls_ray.util.errors import UnavailableError
from dmls_ray.util.importing import missing_extra

if TYPE_CHECKING:
    import torch

    from dmls_ray.workloads.grayscale.images import Images

Pass = Callable[[], "torch.Tensor | None"]
"""Turns all images grey once; returns grey levels, images x height x width, where it has allocated them itself."""

RED, GREEN, BLUE = 0.2989, 0.5870, 0.1140
"""Weights of the channels: luma of ITU-R BT.601, rounded to four digits as in MATLAB's rgb2gray."""

IMPLEMENTATIONS: dict[str, Callable[[Images], Pass]] = {}
"""Functions by name, the plainest first, as tables order them; `UnavailableError`: the machine lacks what one needs."""
ON_A_GPU: list[str] = []
"""Implementations that need a GPU; the others run on the processor."""
INTERLEAVED_ONLY: list[str] = []
"""Implementations that do not accept planar images."""


def implementation(
    name: str, *, gpu: bool = False, interleaved_only: bool = False
) -> Callable[[Callable[[Images], Pass]], Callable[[Images], Pass]]:
    """Register the decorated function under a name.

    Args:
        gpu: whether it needs a GPU.
        interleaved_only: whether it does not accept planar images.
    """

    def register(function: Callable[[Images], Pass]) -> Callable[[Images], Pass]:
        IMPLEMENTATIONS[name] = function
        if gpu:
            ON_A_GPU.append(name)
        if interleaved_only:
            INTERLEAVED_ONLY.append(name)
        return function

    return register


# --- on the processor -----------------------------------------------------------------------------------------------


@implementation("python_loops")
def _python_loops(images: Images) -> Pass:
    """Two loops over the pixels of an image, without a library."""
    import torch

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


@implementation("numpy")
def _numpy(images: Images) -> Pass:
    """A weighted sum of three arrays, in float32."""
    import numpy as np

    channels = [channel.numpy() for channel in images.channels()]
    grey = images.grey.numpy()

    def run() -> None:
        # The type is explicit: what a scalar of float32 makes of an array of uint8 differs from NumPy 1 to NumPy 2.
        red, green, blue = (
            np.multiply(channel, weight, dtype=np.float32)
            for channel, weight in zip(channels, (RED, GREEN, BLUE), strict=True)
        )
        np.rint(red + green + blue, out=grey, casting="unsafe")

    return run


@implementation("pillow", interleaved_only=True)
def _pillow(images: Images) -> Pass:
    """Image.convert("L"), picture by picture, from an array and back to one."""
    import numpy as np
    from PIL import Image

    pictures, grey = images.pixels.numpy(), images.grey.numpy()

    def run() -> None:
        for picture, levels in zip(pictures, grey, strict=True):
            levels[:] = np.asarray(Image.fromarray(picture).convert("L"))

    return run


@implementation("torch")
def _torch(images: Images) -> Pass:
    """A weighted sum of three tensors, in float32."""
    return lambda: _weighted_sum(images.pixels, images.grey, images.planar)


@implementation("torchvision")
def _torchvision(images: Images) -> Pass:
    """torchvision's transform, which takes planes, or a view that looks like them, and allocates its result."""
    if reason := missing_extra("torchvision", "vision", "implementation=torchvision"):
        raise UnavailableError(reason)
    from torchvision.transforms.v2.functional import rgb_to_grayscale

    planes = images.pixels if images.planar else images.pixels.permute(0, 3, 1, 2)

    def run() -> torch.Tensor:
        grey: torch.Tensor = rgb_to_grayscale(planes)
        return grey[:, 0]

    return run


@implementation("torch_compile")
def _torch_compile(images: Images) -> Pass:
    """The same sum as torch's, made into one loop of C++ by Inductor."""
    from dmls_ray.records.provenance import has_cpp_compiler

    if not has_cpp_compiler():
        raise UnavailableError("implementation=torch_compile needs a C++ compiler; install one, g++ say.")
    return _compiled(images)


@implementation("opencv", interleaved_only=True)
def _opencv(images: Images) -> Pass:
    """cvtColor, on all images at once, one below the other."""
    if reason := missing_extra("cv2", "kernels", "implementation=opencv"):
        raise UnavailableError(reason)
    import cv2
    import torch

    cv2.setNumThreads(torch.get_num_threads())
    width = images.pixels.shape[2]
    pictures, grey = images.pixels.numpy().reshape(-1, width, 3), images.grey.numpy().reshape(-1, width)

    def run() -> None:
        cv2.cvtColor(pictures, cv2.COLOR_RGB2GRAY, dst=grey)

    return run


@implementation("cpp")
def _cpp(images: Images) -> Pass:
    """A C++ loop of this project, with AVX2 where the processor has it."""
    from dmls_ray.workloads.grayscale.kernels import cpu_kernel

    grey = cpu_kernel()
    return lambda: grey(images.pixels, images.grey, images.planar)


def _compiled(images: Images) -> Pass:
    import torch

    compiled: Any = torch.compile(_weighted_sum, dynamic=False)
    return lambda: compiled(images.pixels, images.grey, images.planar)


# --- on a GPU -------------------------------------------------------------------------------------------------------


# A kernel for each step of the sum.
implementation("torch_cuda", gpu=True)(_torch)


# The same sum in one kernel, which Inductor writes in Triton.
implementation("torch_compile_cuda", gpu=True)(_compiled)


@implementation("triton", gpu=True)
def _triton(images: Images) -> Pass:
    """A Triton kernel of this project: a program per block of pixels."""
    try:
        from dmls_ray.workloads.grayscale.triton_kernel import turn_grey_by_triton
    except ImportError as error:
        raise UnavailableError(f"implementation=triton needs Triton ({error}); pip install triton.") from error
    return lambda: turn_grey_by_triton(images, (RED, GREEN, BLUE))


@implementation("cuda_per_image", gpu=True)
def _cuda_per_image(images: Images) -> Pass:
    """A CUDA kernel of this project, a thread per pixel, launched once per image."""
    from dmls_ray.workloads.grayscale.kernels import cuda_kernel

    grey = cuda_kernel()
    pairs = list(zip(images.pixels.split(1), images.grey.split(1), strict=True))

    def run() -> None:
        for pixels, levels in pairs:
            grey(pixels, levels, images.planar)

    return run


@implementation("cuda", gpu=True)
def _cuda(images: Images) -> Pass:
    """The same kernel, launched once for all images."""
    from dmls_ray.workloads.grayscale.kernels import cuda_kernel

    grey = cuda_kernel()
    return lambda: grey(images.pixels, images.grey, images.planar)


def _weighted_sum(pixels: torch.Tensor, grey: torch.Tensor, planar: bool) -> None:
    red, green, blue = pixels.unbind(1 if planar else 3)
    grey.copy_((RED * red + GREEN * green + BLUE * blue).round())
