"""Colour images to grey in Triton: a program a block of pixels."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

from dmls_ray.workloads.grayscale.images import Images

_BLOCK = 1024
"""Pixels of a program: 4 a thread of 8 warps."""


@triton.jit
def _grey_block(  # type: ignore[no-untyped-def]
    pixels, grey, count, area,
    red_weight: tl.constexpr, green_weight: tl.constexpr, blue_weight: tl.constexpr,
    planar: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    inside = place < count
    if planar:
        first = place // area * 3 * area + place % area
        step = area
    else:
        first = place * 3
        step = 1
    red = tl.load(pixels + first, mask=inside, other=0).to(tl.float32)
    green = tl.load(pixels + first + step, mask=inside, other=0).to(tl.float32)
    blue = tl.load(pixels + first + 2 * step, mask=inside, other=0).to(tl.float32)
    # A conversion cuts off what is behind the point.
    level = red_weight * red + green_weight * green + blue_weight * blue + 0.5
    tl.store(grey + place, level.to(tl.uint8), mask=inside)


def turn_grey_by_triton(images: Images, weights: tuple[float, float, float]) -> None:
    """Turn all images grey, in one launch; `weights` are those of red, green and blue."""
    count = images.grey.numel()
    kernel: Any = _grey_block[(triton.cdiv(count, _BLOCK),)]
    kernel(images.pixels, images.grey, count, images.grey[0].numel(), *weights, images.planar, _BLOCK, num_warps=8)
