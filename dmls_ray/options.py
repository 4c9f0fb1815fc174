"""How a sweep is run, apart from what it varies."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dmls_ray.errors import ConfigError
from dmls_ray.store import fresh_folder

Isolation = Literal["group", "per_run"]


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a sweep is run, apart from what it varies."""

    name: str = "sweep"
    """Names the results folder: results/<name>."""
    axis: str | None = None
    """Field that the sweep asks about; without it, the first that varies."""
    repeats: int = 3
    order_seed: int = 0
    out: str | None = None
    """Results folder; without it, results/<name>."""
    fresh: bool = False
    """Start over in a new folder; nothing is deleted."""
    isolation: Isolation = "group"
    """group: one worker group serves all runs; per_run: a TorchTrainer a run, in fresh processes."""
    address: str | None = None
    """Ray cluster to join; without it RAY_ADDRESS, else a running local one, else one of our own."""
    oversubscribe: bool = False
    """Allow more ranks than CPU cores."""
    checkpoints: bool = False
    """Save each run after each epoch, and take it up there if it is cut short."""
    save_weights: bool = False
    """Keep the final weights of each run: runs/<run_id>/weights.pt in the results folder."""
    dashboard: bool = False
    """Show Ray's dashboard, on the loopback interface."""
    verbose: bool = False
    """Show what Ray and the ranks print."""

    def __post_init__(self) -> None:
        if self.isolation not in ("group", "per_run"):
            raise ConfigError(f"isolation={self.isolation} is unknown; choose from group, per_run.")
        if not isinstance(self.repeats, int) or self.repeats < 1:
            raise ConfigError(f"repeats={self.repeats} is out of range; give a whole number of 1 or more.")

    @property
    def folder(self) -> Path:
        """Where the results go."""
        folder = Path(self.out) if self.out else Path("results") / self.name
        return fresh_folder(folder) if self.fresh else folder
