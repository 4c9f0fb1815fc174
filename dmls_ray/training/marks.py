"""Marks in time: on a CPU the host's clock, on a GPU events on its stream, which the host need not wait for."""

from __future__ import annotations

import time
from typing import Any

import torch


def mark(device: torch.device) -> Any:
    """The moment at which the device gets here: seconds of the host's clock, or an event."""
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def elapsed_ms(began: Any, ended: Any) -> float:
    """Milliseconds between two marks, both of which the device has reached."""
    if isinstance(began, float):
        return float(ended - began) * 1e3
    return float(began.elapsed_time(ended))
