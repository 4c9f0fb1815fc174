"""A TorchTrainer that brings along only the helpers that a group of ranks needs."""

from __future__ import annotations

from typing import Any

from ray.train.torch import TorchTrainer

from dmls_ray.cluster.train_callbacks import TellController


class GroupTrainer(TorchTrainer):
    """A TorchTrainer without the helpers that cost a process each and do nothing here.

    That is the one for Ray Data, and, on a cluster that ends with the sweep, the one that frees placement groups.
    """

    def __init__(self, *args: Any, broker: str, name: str, private_cluster: bool, **options: Any) -> None:
        self._broker, self._name = broker, name
        self._unneeded = {"DatasetsCallback"} | ({"PlacementGroupCleanerCallback"} if private_cluster else set())
        super().__init__(*args, **options)

    def _create_default_callbacks(self) -> list[Any]:
        callbacks: list[Any] = super()._create_default_callbacks()
        needed = [callback for callback in callbacks if type(callback).__name__ not in self._unneeded]
        return [*needed, TellController(self._broker, self._name)]
