"""Every implementation makes the same grey levels, but for rounding."""

from __future__ import annotations

import itertools
import os
import sys
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from dmls_ray.util.errors import UnavailableError
from dmls_ray.workloads.grayscale import kernels
from dmls_ray.workloads.grayscale.images import Images
from dmls_ray.workloads.grayscale.implementations import IMPLEMENTATIONS, INTERLEAVED_ONLY, ON_A_GPU
from dmls_ray.workloads.grayscale.train import levels_apart, reference
from tests.conftest import PROJECT, call

_random = np.random.default_rng(7)


def _random_pictures(*shape: int) -> NDArray[np.uint8]:
    return _random.integers(0, 256, (*shape, 3), dtype=np.uint8)


EXTREME = np.array(list(itertools.product((0, 1, 127, 128, 254, 255), repeat=3)), dtype=np.uint8).reshape(1, 12, 18, 3)

PICTURES: dict[str, NDArray[np.uint8]] = {
    "random": _random_pictures(3, 32, 32),
    "extreme levels": EXTREME,
    "of one pixel": _random_pictures(1, 1, 1),
    "of odd sides": _random_pictures(2, 33, 129),
    "of one row": _random_pictures(1, 1, 1000),
    "of one column": _random_pictures(5, 517, 1),
    # Threads share them in the middle of one, however few they are.
    "many": _random_pictures(41, 30, 31),
}
"""Pictures on which an implementation may go wrong."""

KERNEL = "cpp"
SLOW = ("torch_compile", KERNEL)
"""Take 20 seconds of processor time to compile."""


def parameters() -> list[Any]:
    """The implementations with each layout that they take."""
    pairs = []
    for name, planar in itertools.product(IMPLEMENTATIONS, (False, True)):
        marks = [pytest.mark.slow] if name in SLOW else []
        if name in ON_A_GPU:
            marks = [pytest.mark.gpu]
        if not (planar and name in INTERLEAVED_ONLY):
            pairs.append(pytest.param(name, planar, marks=marks))
    return pairs


def grey_by(name: str, pictures: NDArray[np.uint8], *, planar: bool, device: str = "cpu") -> NDArray[np.uint8]:
    images = Images(pictures, planar=planar, device=torch.device(device))
    returned = IMPLEMENTATIONS[name](images)()
    grey: NDArray[np.uint8] = (images.grey if returned is None else returned).cpu().numpy()
    return grey


@pytest.mark.parametrize("sample", PICTURES)
@pytest.mark.parametrize(("name", "planar"), parameters())
def test_grey_levels_are_those_of_the_reference_but_for_rounding(name: str, planar: bool, sample: str) -> None:
    if name == "opencv":
        pytest.importorskip("cv2", reason="OpenCV is not installed (pip install -e '.[kernels]')")
    torch._dynamo.reset()
    pictures = PICTURES[sample]
    grey = grey_by(name, pictures, planar=planar, device="cuda" if name in ON_A_GPU else "cpu")
    assert grey.shape == pictures.shape[:3]
    assert grey.dtype == np.uint8
    assert levels_apart(grey, reference(pictures)) <= 1


@pytest.mark.slow
def test_every_colour_there_is_becomes_the_right_grey_in_our_kernel() -> None:
    levels = np.arange(256, dtype=np.uint8)
    for red in range(0, 256, 5):
        green, blue = np.meshgrid(levels, levels, indexing="ij")
        colours = np.stack([np.full_like(green, red), green, blue], axis=-1)[None]
        grey = grey_by(KERNEL, colours, planar=False)
        assert levels_apart(grey, reference(colours)) <= 1
        assert np.mean(grey != reference(colours)) < 0.02, "only next to a half may it round otherwise"


def test_opencv_has_as_many_threads_as_the_others() -> None:
    cv2 = pytest.importorskip("cv2", reason="OpenCV is not installed (pip install -e '.[kernels]')")
    cv2.setNumThreads(3)
    IMPLEMENTATIONS["opencv"](Images(PICTURES["random"], planar=False, device=torch.device("cpu")))
    assert cv2.getNumThreads() == torch.get_num_threads()


@pytest.mark.parametrize(
    ("name", "missing", "message"),
    [
        ("opencv", "cv2", r"needs cv2, which is not installed: pip install 'dmls_ray\[kernels\]'"),
        ("triton", "triton", r"needs Triton \(.*\); pip install triton"),
    ],
)
def test_without_its_library_an_implementation_says_what_to_install(
    name: str, missing: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "dmls_ray.workloads.grayscale.triton_kernel", raising=False)
    images = Images(PICTURES["random"], planar=False, device=torch.device("cpu"))
    with pytest.raises(UnavailableError, match=message):
        IMPLEMENTATIONS[name](images)


@pytest.mark.parametrize("name", ["cpp", "torch_compile"])
def test_without_a_compiler_an_implementation_says_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: None)
    kernels.cpu_kernel.cache_clear()
    images = Images(PICTURES["random"], planar=False, device=torch.device("cpu"))
    with pytest.raises(UnavailableError, match=r"needs a C\+\+ compiler"):
        IMPLEMENTATIONS[name](images)


INTERPRETED = """
import torch
from dmls_ray.workloads.grayscale.images import Images
from dmls_ray.workloads.grayscale.implementations import BLUE, GREEN, RED
from dmls_ray.workloads.grayscale.train import levels_apart, reference
from dmls_ray.workloads.grayscale.triton_kernel import turn_grey_by_triton
from tests.workloads.grayscale.test_implementations import PICTURES
for name, pictures in PICTURES.items():
    for planar in (False, True):
        images = Images(pictures, planar=planar, device=torch.device("cpu"))
        turn_grey_by_triton(images, (RED, GREEN, BLUE))
        print(name, planar, levels_apart(images.grey.numpy(), reference(pictures)) <= 1, int(images.grey.max()) > 0)
"""


def test_the_triton_kernel_makes_the_same_grey_under_the_interpreter() -> None:
    """Without a GPU, and without the compiler's part of Triton."""
    pytest.importorskip("triton", reason="Triton is not installed")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}  # read when triton is imported
    done = call([sys.executable, "-c", INTERPRETED], PROJECT, env=environment)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 14
    assert all(line.endswith("True True") for line in lines), done.stdout
