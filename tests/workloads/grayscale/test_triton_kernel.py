"""The Triton kernel, by Triton's interpreter: without a GPU, and without the compiler's part of it."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.conftest import PROJECT

INTERPRETED = """
import torch
from dmls_ray.workloads.grayscale.images import Images, levels_apart, reference
from dmls_ray.workloads.grayscale.triton_kernel import turn_grey
from tests.workloads.grayscale.samples import PICTURES
for name, pictures in PICTURES.items():
    for planar in (False, True):
        images = Images(pictures, planar=planar, device=torch.device("cpu"))
        turn_grey(images)
        print(name, planar, levels_apart(images.grey.numpy(), reference(pictures)) <= 1, int(images.grey.max()) > 0)
"""


def test_the_triton_kernel_makes_the_same_grey_under_the_interpreter() -> None:
    pytest.importorskip("triton", reason="Triton is not installed")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}  # read when triton is imported
    done = subprocess.run(
        [sys.executable, "-c", INTERPRETED], cwd=PROJECT, env=environment, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 14
    assert all(line.endswith("True True") for line in lines), done.stdout
