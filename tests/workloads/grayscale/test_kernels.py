"""Our own kernels: what they refuse, and how they are built."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch.utils import cpp_extension

from dmls_ray.util.errors import UnavailableError
from dmls_ray.workloads.grayscale import kernels
from dmls_ray.workloads.grayscale.kernels import cpu_kernel
from tests.conftest import call

PIXELS, GREY = torch.zeros(2, 4, 6, 3, dtype=torch.uint8), torch.zeros(2, 4, 6, dtype=torch.uint8)

REFUSED = [
    (PIXELS.float(), GREY, False, "pixels are Float; give uint8"),
    (PIXELS, GREY.int(), False, "grey is Int; give uint8"),
    (PIXELS[0], GREY, False, "pixels have 3 dimensions; give 4"),
    (PIXELS.transpose(1, 2), GREY, False, "pixels have the strides .*; give a contiguous tensor"),
    (PIXELS, torch.zeros(2, 6, 4, dtype=torch.uint8).transpose(1, 2), False, "grey has the strides"),
    (PIXELS[..., :2].contiguous(), GREY, False, "pixels have 2 channels; give 3"),
    (PIXELS, GREY, True, "pixels have 4 channels; give 3"),
    (PIXELS, GREY[:1].contiguous(), False, r"grey has the shape \[1, 4, 6\], and the images \[2, 4, 6\]"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("pixels", "grey", "planar", "reason"), REFUSED)
def test_the_processors_kernel_refuses_what_it_cannot_take(
    pixels: torch.Tensor, grey: torch.Tensor, planar: bool, reason: str
) -> None:
    with pytest.raises(RuntimeError, match=reason):
        cpu_kernel()(pixels, grey, planar)


@pytest.mark.slow
@pytest.mark.parametrize("planar", [False, True])
def test_pixels_that_are_done_at_once_become_what_each_becomes_alone_and_nothing_else_is_written(planar: bool) -> None:
    pixels = torch.randint(256, (1500, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    alone = torch.empty(len(pixels), dtype=torch.uint8)
    for place, pixel in enumerate(pixels):
        cpu_kernel()(
            pixel.reshape(1, 3, 1, 1) if planar else pixel.reshape(1, 1, 1, 3), alone[place].reshape(1, 1, 1), planar
        )
    # Around 32 at once, and around where it looks ahead.
    for count in (*range(1, 100), 511, 512, 513, 1023, 1025, 1500):
        some = pixels[:count]
        image = some.T.reshape(1, 3, 1, count).contiguous() if planar else some.reshape(1, 1, count, 3)
        room = torch.full((count + 64,), 77, dtype=torch.uint8)
        cpu_kernel()(image, room[:count].reshape(1, 1, count), planar)
        assert torch.equal(room[:count], alone[:count]), count
        assert (room[count:] == 77).all(), count


def test_without_its_tools_a_kernel_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels.cpu_kernel.cache_clear()
    kernels.cuda_kernel.cache_clear()
    monkeypatch.setattr(kernels, "cuda_home", lambda: None)
    with pytest.raises(UnavailableError, match="needs nvcc"):
        kernels.cuda_kernel()
    monkeypatch.setattr(cpp_extension, "is_ninja_available", lambda: False)
    with pytest.raises(UnavailableError, match="needs ninja"):
        kernels.cpu_kernel()
    monkeypatch.setenv("CXX", "c++-of-nobody")
    with pytest.raises(UnavailableError, match=r"needs a C\+\+ compiler, and there is no c\+\+-of-nobody"):
        kernels.cpu_kernel()


BUILD = "from dmls_ray.workloads.grayscale.kernels import cpu_kernel; cpu_kernel(); print('built')"


@pytest.mark.slow
def test_a_builder_that_is_killed_leaves_nothing_that_the_next_one_waits_for(tmp_path: Path) -> None:
    environment = {**os.environ, "DMLS_RAY_CACHE": str(tmp_path)}
    first = subprocess.Popen([sys.executable, "-c", BUILD], env=environment, start_new_session=True)
    # The loader's own lock: its work has begun.
    while not list(tmp_path.glob("kernels/*/lock")):
        assert first.poll() is None, "it was done before it could be killed"
        time.sleep(0.01)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert list(tmp_path.glob("kernels/*/lock"))
    done = call([sys.executable, "-c", BUILD], env=environment)
    assert done.stdout.strip() == "built", done.stderr
