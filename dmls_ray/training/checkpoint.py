"""Checkpoints of a run: saved after each epoch, whole or not at all, and taken up where a run was cut short.

    <folder>/checkpoints/<epoch>.rank-<rank>.pt    rank 0's holds what is equal on all ranks, each one what is its own
    <folder>/weights.pt                            the final weights, as torch.load(weights_only=True) reads them

Files are written aside and renamed, so that one that is there is whole unless the disk lost part of it; such a one is
refused by its checksums, and the one before it is used. Runs over several machines need the folder on a disk that they
share.
"""

from __future__ import annotations

import os
import pickle
import random
import shutil
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from dmls_ray.config.training import TrainingConfig
from dmls_ray.training.process import Collective
from dmls_ray.training.rank import RankInfo
from dmls_ray.util.atomic import atomic_replace

_KEPT = 2
_TRIED = 8
"""How many epochs' checkpoints are looked at, the newest first: some may be broken, or another trial's."""

_UNREADABLE = (
    OSError, RuntimeError, ValueError, EOFError, NotImplementedError, zlib.error, pickle.UnpicklingError,
    zipfile.BadZipFile,
)  # fmt: skip
"""What a file raises that is no whole checkpoint, or holds more than tensors and plain values."""


class Checkpoints:
    """A run's checkpoints; without a folder, nothing is saved and nothing is found."""

    def __init__(self, config: TrainingConfig, rank: RankInfo, collective: Collective) -> None:
        self._wanted = rank.artifacts is not None and rank.artifacts.checkpoints
        self._folder = Path(rank.artifacts.folder) / "checkpoints" if rank.artifacts else Path()
        # As the trial's name does, it leaves out what is at its default: a new field makes no other trial.
        self._trial, self._rank, self._collective = config.hash, rank.rank, collective

    def __bool__(self) -> bool:
        return self._wanted

    def save(self, epoch: int, shared: dict[str, Any], own: dict[str, Any]) -> None:
        """Save what the run needs to go on after this epoch.

        Args:
            epoch: from 1.
            shared: what is equal on all ranks; rank 0's is saved.
            own: what is this rank's own; its random number generators are added.
        """
        state = {"trial": self._trial, "epoch": epoch, "own": own, "random": _random_state()}
        if self._rank == 0:
            state["shared"] = shared
        self._folder.mkdir(parents=True, exist_ok=True)
        write_aside(self._file(epoch, self._rank), state)
        for number in self._epochs(self._rank):
            if not epoch - _KEPT < number <= epoch:
                self._file(number, self._rank).unlink(missing_ok=True)

    def load(self, device: torch.device) -> tuple[int, dict[str, Any], dict[str, Any]] | None:
        """The newest epoch that every rank can read, with its `shared` and `own`; None where there is none.

        Sets this rank's random number generators as they were.
        """
        if not self._wanted:
            return None
        mine = sorted(self._epochs(0), reverse=True)
        for epoch in self._collective.from_first([*mine, *[0] * _TRIED][:_TRIED]):
            loaded = self._read(int(epoch), device) if epoch else None
            if self._collective.sum([float(loaded is None)]) == [0.0]:
                assert loaded is not None
                shared, own = loaded
                _set_random_state(own["random"])
                return int(epoch), shared["shared"], own["own"]
        return None

    def remove(self) -> None:
        """Forget the checkpoints of a run that has ended."""
        if self._wanted:
            self._collective.barrier()
            if self._rank == 0:
                shutil.rmtree(self._folder, ignore_errors=True)

    def _read(self, epoch: int, device: torch.device) -> tuple[dict[str, Any], dict[str, Any]] | None:
        try:
            shared = _whole(self._file(epoch, 0), device)
            own = _whole(self._file(epoch, self._rank), device) if self._rank else shared
        except _UNREADABLE as error:
            warnings.warn(f"The checkpoint of epoch {epoch} cannot be read ({error}); the one before it is used.",
                          stacklevel=2)  # fmt: skip
            return None
        return (shared, own) if shared["trial"] == own["trial"] == self._trial else None

    def _epochs(self, rank: int) -> list[int]:
        """The epochs that a rank's files are named after."""
        names = [path.name.partition(".")[0] for path in self._folder.glob(f"*.rank-{rank}.pt")]
        return [int(name) for name in names if name.isascii() and name.isdecimal()]

    def _file(self, epoch: int, rank: int) -> Path:
        return self._folder / f"{epoch}.rank-{rank}.pt"


def _whole(path: Path, device: torch.device) -> dict[str, Any]:
    """What is in a checkpoint whose checksums, which PyTorch itself does not look at, are right."""
    with zipfile.ZipFile(path) as file:
        if (broken := file.testzip()) is not None:
            raise zipfile.BadZipFile(f"the checksum of {broken} is wrong")
    # A pickle could name any function to be called; so only tensors and plain values are taken.
    state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    if not isinstance(state, dict) or not {"trial", "own", "random"} <= state.keys():
        raise pickle.UnpicklingError("it is no checkpoint")
    return state


def save_weights(model: nn.Module, rank: RankInfo) -> None:
    """Save the final weights where they are asked for; all ranks have the same."""
    if rank.artifacts is not None and rank.artifacts.weights and rank.rank == 0:
        Path(rank.artifacts.folder).mkdir(parents=True, exist_ok=True)
        write_aside(Path(rank.artifacts.folder) / "weights.pt", model.state_dict())


def write_aside(path: Path, state: Any) -> None:
    """Save so that the file is whole or not there, even where an orphan of a killed sweep still writes it as well."""
    with atomic_replace(path) as aside, open(aside, "xb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())


def _random_state() -> dict[str, Any]:
    """The state of all generators in types that torch.load(weights_only=True) takes."""
    kind, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    version, numbers, gauss_next = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state() if torch.cuda.is_initialized() else None,
        "numpy": [str(kind), np.asarray(keys).tolist(), int(position), int(has_gauss), float(gauss)],
        "python": [version, list(numbers), gauss_next],
    }


def _set_random_state(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["torch"].cpu())
    if state["cuda"] is not None:
        torch.cuda.set_rng_state(state["cuda"].cpu())
    kind, keys, position, has_gauss, gauss = state["numpy"]
    np.random.set_state((kind, np.asarray(keys, dtype=np.uint32), position, has_gauss, gauss))
    version, numbers, gauss_next = state["python"]
    random.setstate((version, tuple(numbers), gauss_next))
