"""What stands where Train sets up one process group for all ranks; Train's controller loads it, so without PyTorch."""

from __future__ import annotations

from dataclasses import dataclass

from ray.train.backend import Backend, BackendConfig


class _NothingToSetUp(Backend):
    """The ranks of a run make their process group themselves, with the run's own backend and world size."""


@dataclass
class NoProcessGroup(BackendConfig):
    """Stands where TorchConfig would, whose module imports PyTorch in the controller: seconds off the start."""

    backend: str = "gloo"
    """TorchTrainer fills this in where it is empty; it is not used."""

    @property
    def backend_cls(self) -> type[Backend]:
        return _NothingToSetUp
