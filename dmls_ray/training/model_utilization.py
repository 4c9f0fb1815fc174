"""TFLOP/s and utilization (MFU, HFU) of a rank: the operations of a step, its time, and the measured product."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from dmls_ray.records.run_events import RankResult
from dmls_ray.training.flop_counter import FlopCounter
from dmls_ray.training.measured_product import ProductRate, product_rate

TERA = 1e12


def add_utilization(result: RankResult, counted: FlopCounter, step_ms: float, device: torch.device) -> None:
    """Add TFLOP/s and utilization of a rank to its result, or why they are not known. It never fails.

    A step that computes in several number formats is compared with products in the same formats.

    Args:
        result: of the rank.
        counted: the operations of one step.
        step_ms: mean milliseconds of a step.
        device: of the rank.
    """
    try:
        unknown = counted.unseen or _add(result, counted, step_ms, device)
    except Exception as error:  # noqa: BLE001 - the run is over, and must not end by what it is compared with
        unknown = f"the product to compare with could not be measured ({type(error).__name__}: {error})".splitlines()[0]
    result.run.add({"no_mfu": unknown or None})


def _add(result: RankResult, counted: FlopCounter, step_ms: float, device: torch.device) -> str:
    """Returns why the utilization is not known; empty if it is."""
    model = sum(counted.model.values()) / TERA
    if not model:
        return "no matrix product, convolution or attention was seen in a step"
    result.metrics |= {"tflop_per_step": model, "tflop_per_s": model / (step_ms / 1e3)}
    rates = {dtype: product_rate(device, dtype) for dtype in counted.hardware}
    if _ideal_ms(counted.hardware, rates) > step_ms:
        # Other work may have slowed the products that were kept.
        rates = {dtype: product_rate(device, dtype, again=True) for dtype in rates}
    model_ms, hardware_ms = _ideal_ms(counted.model, rates), _ideal_ms(counted.hardware, rates)
    result.metrics["product_tflop_per_s"] = model / (model_ms / 1e3)
    result.metrics["product_spread"] = max(rate.spread for rate in rates.values())
    if hardware_ms > step_ms:
        return _ABOVE_ALL.format(hardware_ms / step_ms)
    result.metrics |= {"mfu": model_ms / step_ms, "hfu": hardware_ms / step_ms}
    return ""


_ABOVE_ALL = (
    "the account is wrong, since a step would reach {:.0%} of the measured product. Either other work slowed the "
    "product, or kernels need fewer operations than are counted, as convolutions by Winograd's algorithm"
)


def _ideal_ms(operations: Mapping[torch.dtype, int], rates: Mapping[torch.dtype, ProductRate]) -> float:
    """Milliseconds of so many operations at the rates of products."""
    return sum(count / rates[dtype].flop_per_s for dtype, count in operations.items()) * 1e3
