"""How a sweep is run, apart from what it varies."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from dmls_ray.errors import ConfigError
from dmls_ray.fields import checked
from dmls_ray.store import fresh_folder

Isolation = Literal["group", "per_run"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a sweep is run, apart from what it varies; each is a flag, but for the first two.

    Raises:
        ConfigError: a value breaks a rule of its field.
    """

    name: str = "sweep"
    """Names the results folder: results/<name>."""
    axis: str | None = None
    """Field that the sweep asks about; without it, the first that varies."""
    repeats: int = 3
    """Runs of each trial, each with its own seed."""
    order_seed: int = 0
    """Seed of the order of runs within a block."""
    out: str | None = None
    """Results folder; without it, results/<sweep>."""
    fresh: bool = False
    """Start over in a new folder; nothing is deleted."""
    isolation: Isolation = "group"
    """group: one worker group serves all runs; per_run: a TorchTrainer a run, in fresh processes."""
    address: str | None = None
    """Ray cluster to join; without it RAY_ADDRESS, a running one here, or one of our own."""
    oversubscribe: bool = False
    """Allow more ranks than CPU cores."""
    max_retries: int = 1
    """How often a run is run again that was killed or timed out."""
    run_timeout: float | None = None
    """Seconds that an attempt at a run may take; without it, any time."""
    stall_timeout: float | None = 600.0
    """Seconds that a run may go without an optimizer step, a test batch or an event; none: any time."""
    give_up_after: int = 2
    """After so many equal failures of a trial in a row its further repeats are skipped."""
    recycle_above_mib: float | None = None
    """Resident set above which a rank's process is replaced between two runs; without it, never."""
    checkpoints: bool = False
    """Save each run after each epoch, and take it up there if it is cut short."""
    save_weights: bool = False
    """Keep the final weights of each run: runs/<run_id>/weights.pt in the results folder."""
    dashboard: bool = False
    """Show Ray's dashboard, on the loopback interface."""
    verbose: bool = False
    """Show what Ray and the ranks print."""

    def __post_init__(self) -> None:
        if isinstance(self.out, os.PathLike):
            object.__setattr__(self, "out", os.fspath(self.out))
        for spec in fields(self):
            object.__setattr__(self, spec.name, checked(Options, spec.name, getattr(self, spec.name)))
        for name, least in (("repeats", 1), ("give_up_after", 1), ("order_seed", 0), ("max_retries", 0)):
            value = getattr(self, name)
            if value < least:
                raise ConfigError(f"{name}={value} is out of range; give a whole number of {least} or more.")
        for name in ("run_timeout", "stall_timeout", "recycle_above_mib"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                raise ConfigError(f"{name}={value} is out of range; give more than 0, or none.")

    @property
    def folder(self) -> Path:
        """Where the results go."""
        folder = Path(self.out) if self.out else Path("results") / self.name
        return fresh_folder(folder) if self.fresh else folder
