"""Prices by type of machine, as of `--price h100=2.99`: what a run costs, and a million of its samples or tokens."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dmls_ray.analysis.results import Results
from dmls_ray.records.model import RunRecord
from dmls_ray.util.errors import ConfigError

_UNITS = {"samples_per_s": "samples", "images_per_s": "samples", "tokens_per_s": "tokens"}
"""Rate -> what is paid for; of two rates of one unit the last counts."""


def machine_type(record: RunRecord) -> str:
    """`NVIDIA H200`: the name of the GPU that a run was on; of another run, that of its processor."""
    _, _, gpu = record.device.partition("(")
    return gpu.removesuffix(")") or str(record.machine.get("cpu", "an unknown CPU"))


def with_prices(results: Results, prices: Sequence[str]) -> Results:
    """The results, with what each run, its samples and its tokens cost, in the currency of the prices.

    A name stands for each type of machine that has it as a whole word, in any case: `a10` is no A100. A price is of an
    hour of one GPU where a run was on GPUs, each rank on its own, and else of an hour of one machine. A run without a
    price has no cost, and neither has one whose machines are of several types.

    Args:
        results: the runs.
        prices: `h100=2.99`: names of types of machines with their prices.

    Raises:
        ConfigError: one is no name with a price above 0, or stands for a machine that has a price; or none stands for a
            machine of the results.
    """
    types = sorted({machine_type(record) for record in results.records})
    price_of: dict[str, float] = {}
    for word in prices:
        found = re.fullmatch(r"(.+)=(\d*\.?\d+)", word)
        if found is None or not float(found[2]):
            raise ConfigError(f"--price {word} is no NAME=PRICE with a price above 0; give h100=2.99, for example.")
        whole_word = re.compile(rf"(?<!\w){re.escape(found[1])}(?!\w)", re.IGNORECASE)
        named = [item for item in types if whole_word.search(item)]
        if price_of.keys() & named:
            raise ConfigError(f"--price {word} is a second price of {', '.join(named)}; leave one out.")
        price_of |= dict.fromkeys(named, float(found[2]))
    if prices and not price_of:
        raise ConfigError(f"--price {' '.join(prices)} names no machine of these runs; they ran on {', '.join(types)}.")
    return results.of([_with_cost(record, price_of.get(machine_type(record))) for record in results.records])


def _with_cost(record: RunRecord, price: float | None) -> RunRecord:
    """A run with what follows from the price of an hour of one of its GPUs or machines."""
    others = record.machine.get("beside", [])
    if price is None or not all(machine_type(record) in line for line in others):
        return record
    units = record.config.get("world_size", 1) if record.device.startswith("cuda") else 1 + len(others)
    per_s = units * price / 3600
    metrics = dict(record.metrics)
    if "total_s" in metrics:
        metrics["run_cost"] = per_s * metrics["total_s"]
    for rate, unit in _UNITS.items():
        if metrics.get(rate):
            metrics[f"cost_per_million_{unit}"] = per_s / metrics[rate] * 1e6
    return record.replace(metrics=metrics)
