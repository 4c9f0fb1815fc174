"""`ProcessState`: the state of a process before a run, and the way back to it.

A worker process serves many runs, and a run in a used process is to equal the same run in a new one, bit for bit.
"""

from __future__ import annotations

from dmls_ray.training.process_state.python_settings import python_settings
from dmls_ray.training.process_state.remains import Remains
from dmls_ray.training.process_state.torch_settings import torch_settings
from dmls_ray.util.text import first_line

# Those of PyTorch first, and of them the process group: threads that wait in it end with it.
SETTINGS = (*torch_settings(), *python_settings())


class ProcessState:
    """The state of this process and this thread at this moment."""

    def __init__(self) -> None:
        self._before = [setting.read() for setting in SETTINGS]
        self._remains = Remains()

    def restore(self) -> tuple[str, ...]:
        """Set back what the run has changed. Returns the names of what cannot be set back."""
        left = self._set_back()
        if self._remains.are_living():
            left += self._remains.end_living()
            left += self._set_back()  # a thread may have changed something until it ended
        left += self._remains.changes()
        return tuple(dict.fromkeys(left))

    def _set_back(self) -> list[str]:
        left = []
        for setting, before in zip(SETTINGS, self._before, strict=True):
            try:
                if not setting.comparable or setting.read() != before:
                    setting.write(before)
            except Exception as error:  # noqa: BLE001 - whatever prevents it, the next run needs another process
                left.append(f"{setting.name} ({type(error).__name__}: {first_line(error)})")
        return left
