"""Marks in time on a device: the host's clock on a CPU, and events on its stream on a GPU, which the host need not wait
for."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch


def synchronize(device: torch.device) -> None:
    """Wait until the device has finished all work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def device_name(device: torch.device) -> str:
    """`cpu`, or `cuda` with the GPU's name."""
    return f"cuda ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else device.type


def marker(device: torch.device) -> Callable[[], Any]:
    """What gives the moment at which the device gets here: seconds of the host's clock, or an event."""
    return _event if device.type == "cuda" else time.perf_counter


def _event() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def elapsed_ms(began: Any, ended: Any) -> float:
    """Milliseconds between two marks, both of which the device has reached."""
    if isinstance(began, float):
        return float(ended - began) * 1e3
    return float(began.elapsed_time(ended))
