"""`around_optimizer_steps`: calls before and after each step of any optimizer of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook


@contextmanager
def around_optimizer_steps(before: Callable[[], object], after: Callable[[Optimizer], object]) -> Iterator[None]:
    """Call two functions before and after each step of an optimizer, while the context lasts.

    An optimizer may step another one, as ZeRO does: that is one step. Of several optimizers each step counts.
    """
    outermost: Optimizer | None = None

    def begin(optimizer: Optimizer, *_: Any) -> None:
        nonlocal outermost
        if outermost is None:
            before()
            outermost = optimizer

    def end(optimizer: Optimizer, *_: Any) -> None:
        nonlocal outermost
        if optimizer is outermost:
            outermost = None
            after(optimizer)

    handles = register_optimizer_step_pre_hook(begin), register_optimizer_step_post_hook(end)
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
