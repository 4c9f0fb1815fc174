"""A TorchTrainer whose workers make a process group for each run rather than one for all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ray.train.backend import Backend, BackendConfig
from ray.train.torch import TorchTrainer


class _NothingToSetUp(Backend):
    """The ranks of a run make their process group themselves, with the run's own backend and world size."""


@dataclass
class NoProcessGroup(BackendConfig):
    """Stands where TorchConfig would; so Train's controller need not import PyTorch: seconds off the start."""

    backend: str = "gloo"
    """TorchTrainer fills this in where it is empty; it is not used."""

    @property
    def backend_cls(self) -> type[Backend]:
        return _NothingToSetUp


class GroupTrainer(TorchTrainer):
    """A TorchTrainer without the helpers that cost a process each and do nothing here.

    That is the one for Ray Data, and, on a cluster that ends with the sweep, the one that frees placement groups.
    """

    def __init__(self, *args: Any, own_cluster: bool, **options: Any) -> None:
        self._unneeded = {"DatasetsCallback"} | ({"PlacementGroupCleanerCallback"} if own_cluster else set())
        super().__init__(*args, **options)

    def _create_default_callbacks(self) -> list[Any]:
        callbacks: list[Any] = super()._create_default_callbacks()
        return [callback for callback in callbacks if type(callback).__name__ not in self._unneeded]
