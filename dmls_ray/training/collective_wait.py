"""`collective_wait`: the collective in which a thread of this process waits, seen from another thread."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path

import torch
import torch.distributed as dist

from dmls_ray.records.run_events import CollectiveWait
from dmls_ray.training import compat

_OBSERVED_S = 1.0
"""How long a rank must stay in one collective without computing."""

_MAX_CPU_S = 0.3
"""CPU time in that while above which a process computes, as in a long backward pass that has no collective."""

_TORCH = Path(torch.__file__).parent

_WAITING_IN = (_TORCH / "distributed", _TORCH / "nn" / "parallel", _TORCH / "autograd")
"""Packages whose functions wait for collectives; DDP waits at the end of a backward pass."""

_POINT_TO_POINT = ("send", "recv")
"""Functions of PyTorch that wait for a message, not in a collective."""

_BETWEEN = (_TORCH, Path(compat.__file__))
"""Files between the line that calls and the collective."""


def collective_wait(thread: int, steps: Counter[str]) -> CollectiveWait | None:
    """The collective of gloo in which a thread waits; None if the thread does anything else.

    NCCL's collectives begin without waiting, so the position of a thread says nothing about them.

    Args:
        thread: identifier of the thread, by `threading.get_ident`.
        steps: its optimizer steps, by the key `steps`.
    """
    before, cpu_before = _position(thread, steps), time.process_time()
    time.sleep(_OBSERVED_S)
    is_computing = time.process_time() - cpu_before > _MAX_CPU_S
    return None if is_computing or _position(thread, steps) != before else before


def _position(thread: int, steps: Counter[str]) -> CollectiveWait | None:
    if not dist.is_initialized() or dist.get_backend() != "gloo":
        return None
    numbers = compat.sequence_numbers()
    frame = sys._current_frames().get(thread)
    if numbers is None or frame is None or not _is_in(frame.f_code.co_filename, *_WAITING_IN):
        return None
    if frame.f_code.co_name in _POINT_TO_POINT:
        return None
    while frame.f_back is not None and _is_in(frame.f_code.co_filename, *_BETWEEN):
        frame = frame.f_back
    line = f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
    return CollectiveWait(steps=steps.total(), collectives=sum(numbers.values()), line=line)


def _is_in(file: str, *folders: Path) -> bool:
    return any(Path(file).is_relative_to(folder) for folder in folders)
