"""`ProductRate`: how fast this device computes a matrix product, which utilization is a share of."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

import msgspec
import torch
from filelock import FileLock

from dmls_ray.records.provenance import machine_facts
from dmls_ray.training.marks import device_name, synchronize
from dmls_ray.training.precision import has_tf32
from dmls_ray.util.digests import text_digest
from dmls_ray.util.files import atomic_write_text, cache_root

_SIDES = (512, 1024, 2048, 4096, 8192)
"""Rows and columns of the products. Small ones fit into caches, large ones keep a large device busy."""
_ENOUGH_S = 0.03
"""Seconds of a product after which larger ones are not tried."""
_LEAST, _MOST = 5, 50
"""Products of a side."""
_SIDE_S = 0.15
"""Seconds of a side after which it has no further product, once it had the least number."""


class ProductRate(msgspec.Struct, frozen=True, kw_only=True):
    """Floating-point operations per second of square matrix products."""

    flop_per_s: float
    """Of the fastest product: other work on the machine only slows a product down."""
    spread: float
    """Share by which the median of its side is slower."""


def product_rate(device: torch.device, dtype: torch.dtype, *, again: bool = False) -> ProductRate:
    """The rate on a device in a number format with the present number of threads, measured once on each machine.

    It is kept in the folder of caches. Of several ranks of a machine, one measures and the others wait.

    Args:
        device: the device.
        dtype: the number format.
        again: measure once more, and keep the faster one.

    Raises:
        RuntimeError, NotImplementedError: the device has no product in this format, or no memory for it.
    """
    kept = rate_path(device, dtype)
    kept.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(kept.parent / "lock"):
        rate = _kept_rate(kept)
        if rate is None or again:
            measured = _measured(device, dtype)
            if rate is None or measured.flop_per_s > rate.flop_per_s:
                rate = measured
            atomic_write_text(kept, msgspec.json.encode(rate).decode())
    return rate


def _kept_rate(path: Path) -> ProductRate | None:
    """What an earlier process has measured; None without it."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=ProductRate)
    except (OSError, msgspec.MsgspecError):
        return None


def rate_path(device: torch.device, dtype: torch.dtype) -> Path:
    """The file of a rate, named by all that may change it: machine, device, format, threads and versions."""
    facts = machine_facts()
    threads = torch.get_num_threads() if device.type == "cpu" else 0
    rounded = has_tf32() if device.type == "cuda" else _precision_on_cpu()
    conditions = (facts["host"], facts["cpu"], device_name(device), dtype, threads, rounded, torch.__version__)
    return cache_root() / "products" / f"{text_digest(*map(str, conditions))}.json"


def _precision_on_cpu() -> str:
    """To what matrix products of fp32 may be rounded on a CPU; empty where PyTorch has no such switch."""
    products = getattr(torch.backends.mkldnn, "matmul", None)
    return str(getattr(products, "fp32_precision", ""))


def _measured(device: torch.device, dtype: torch.dtype) -> ProductRate:
    best = ProductRate(flop_per_s=0.0, spread=0.0)
    for side in _SIDES:
        seconds = _seconds_of(side, device, dtype)
        rate = 2 * side**3 / min(seconds)
        if rate > best.flop_per_s:
            best = ProductRate(flop_per_s=rate, spread=1 - min(seconds) / median(seconds))
        if min(seconds) > _ENOUGH_S:
            break
    return best


@torch.no_grad()
def _seconds_of(side: int, device: torch.device, dtype: torch.dtype) -> list[float]:
    """The seconds of several products of one side."""
    # Not the generator of the program, whose numbers must not depend on this.
    generator = torch.Generator(device).manual_seed(0)
    shape = side, side
    left, right = (torch.randn(shape, generator=generator, device=device, dtype=torch.float32) for _ in range(2))
    left, right = left.to(dtype), right.to(dtype)
    product = torch.mm(left, right)  # the first one chooses its kernel
    seconds: list[float] = []
    while len(seconds) < _LEAST or (sum(seconds) < _SIDE_S and len(seconds) < _MOST):
        synchronize(device)
        began = time.perf_counter()
        torch.mm(left, right, out=product)
        synchronize(device)
        seconds.append(time.perf_counter() - began)
    return seconds
