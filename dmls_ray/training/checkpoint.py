"""Checkpoints of a run: saved atomically after each epoch, and loaded when an interrupted run is retried.

    <folder>/checkpoints/<epoch>.rank-<rank>.pt    state of the rank; rank 0's also the shared state
    <folder>/weights.pt                            the final weights, as torch.load(weights_only=True) reads them
    <folder>/weights.json                          what opens them in plain PyTorch, and what they reach

Files are written under a temporary name and renamed. A file that the disk damaged fails its checksums, and the
checkpoint before it is used. Runs on several machines need the folder on a shared disk. The driver deletes the
checkpoints of a run when the record of the run is kept (`execution/jobs.py`).
"""

from __future__ import annotations

import json
import os
import pickle
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any

import torch

from dmls_ray.training.process import Collective, random_state, set_random_state
from dmls_ray.training.rank import RankInfo
from dmls_ray.training.task import TrainingTask
from dmls_ray.util.files import atomic_replace, atomic_write_text, open_regular

_KEPT = 2
"""Epochs whose checkpoints are kept, and tried, newest first: one may be broken."""

_UNREADABLE = (OSError, RuntimeError, ValueError, EOFError, zlib.error, pickle.UnpicklingError, zipfile.BadZipFile)
"""Exceptions for a file that is not a complete checkpoint, or contains more than tensors and plain values."""


class Checkpoints:
    """The checkpoints of a run; disabled without a folder.

    The folder is that of one run, whose id follows from its configuration, code and data.
    """

    def __init__(self, rank: RankInfo, collective: Collective) -> None:
        self.wanted = rank.artifacts is not None and rank.artifacts.checkpoints
        """Whether the run is to be saved after each epoch."""
        self._folder = Path(rank.artifacts.folder) / "checkpoints" if rank.artifacts else Path()
        self._rank, self._collective = rank.rank, collective

    def save(self, epoch: int, shared: dict[str, Any], local: dict[str, Any]) -> None:
        """Save the state after an epoch.

        Args:
            epoch: from 1.
            shared: state that is equal on all ranks; rank 0 saves it.
            local: state of this rank; the state of its random number generators is added.
        """
        state = {"local": local, "random": random_state()}
        if self._rank == 0:
            state["shared"] = shared
        self._folder.mkdir(parents=True, exist_ok=True)
        save_atomically(self._file(epoch, self._rank), state)
        for number in self._epochs(self._rank):
            if not epoch - _KEPT < number <= epoch:
                self._file(number, self._rank).unlink(missing_ok=True)

    def load(self, device: torch.device) -> tuple[int, dict[str, Any], dict[str, Any]] | None:
        """The newest epoch that every rank can read, with its `shared` and `local` state; None without any.

        Restores the random number generators of this rank.
        """
        if not self.wanted:
            return None
        saved = sorted(self._epochs(0), reverse=True)
        for epoch in self._collective.from_first([*saved, *[0] * _KEPT][:_KEPT]):
            loaded = self._read(int(epoch), device) if epoch else None
            if self._collective.sum([float(loaded is None)]) == [0.0]:
                assert loaded is not None
                shared, own = loaded
                set_random_state(own["random"])
                return int(epoch), shared["shared"], own["local"]
        return None

    def _read(self, epoch: int, device: torch.device) -> tuple[dict[str, Any], dict[str, Any]] | None:
        try:
            shared = _read_complete(self._file(epoch, 0), device)
            own = _read_complete(self._file(epoch, self._rank), device) if self._rank else shared
        except _UNREADABLE as error:
            warnings.warn(f"The checkpoint of epoch {epoch} cannot be read ({error}); the one before it is used.",
                          stacklevel=2)  # fmt: skip
            return None
        return shared, own

    def _epochs(self, rank: int) -> list[int]:
        """The epochs of a rank's files."""
        names = [path.name.partition(".")[0] for path in self._folder.glob(f"*.rank-{rank}.pt")]
        return [int(name) for name in names if name.isascii() and name.isdecimal()]

    def _file(self, epoch: int, rank: int) -> Path:
        return self._folder / f"{epoch}.rank-{rank}.pt"


def _read_complete(path: Path, device: torch.device) -> dict[str, Any]:
    """Load a checkpoint after verifying its checksums, which PyTorch does not check."""
    with open_regular(path) as file:
        if (broken := zipfile.ZipFile(file).testzip()) is not None:
            raise zipfile.BadZipFile(f"the checksum of {broken} is wrong")
        file.seek(0)
        # weights_only: a pickle could call any function.
        state: dict[str, Any] = torch.load(file, map_location=device, weights_only=True)
    if not isinstance(state, dict) or not {"local", "random"} <= state.keys():
        raise pickle.UnpicklingError("it is no checkpoint")
    return state


def save_weights(task: TrainingTask, rank: RankInfo, metrics: dict[str, float]) -> None:
    """Save the final weights and their description if requested; they are equal on all ranks.

    Args:
        task: the trained model.
        rank: this rank.
        metrics: losses and accuracies of the epoch that the weights are of.
    """
    if rank.artifacts is None or not rank.artifacts.weights or rank.rank != 0:
        return
    folder = Path(rank.artifacts.folder)
    folder.mkdir(parents=True, exist_ok=True)
    description = json.dumps(task.describe_weights(metrics), indent=1, allow_nan=False)
    atomic_write_text(folder / "weights.json", description + "\n")
    save_atomically(folder / "weights.pt", task.plain_model().state_dict())


def save_atomically(path: Path, state: Any) -> None:
    """Save atomically, even if an orphan of a killed sweep still writes the same file."""
    with atomic_replace(path) as aside, open(aside, "xb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
