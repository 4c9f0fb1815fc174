"""The configuration of a run: the images that are turned grey, the implementation, and the time that is measured."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dmls_ray.config.fields import Count, NonNegativeNumber
from dmls_ray.config.runtime import DeviceName
from dmls_ray.workloads.grayscale import implementations
from dmls_ray.workloads.grayscale.implementations import INTERLEAVED_ONLY, ON_A_GPU
from dmls_ray.workloads.image_files import SUFFIXES, is_image_name

IMPLEMENTATIONS = tuple(implementations.IMPLEMENTATIONS)
"""Names of all implementations, the plainest first, as tables order them."""

if TYPE_CHECKING:
    Implementation = str
else:
    Implementation = Literal[IMPLEMENTATIONS]


@dataclass(frozen=True, kw_only=True)
class GrayscaleConfig:
    """One way to turn a set of images grey.

    Raises:
        ValueError: the values do not go together.
    """

    implementation: Implementation = "numpy"
    """What turns the images grey"""
    images: Count = 200
    """Images in the set; with image_size the working set"""
    image_size: Count = 128
    """Pixels a side"""
    layout: Literal["interleaved", "planar"] = "interleaved"
    """interleaved: height x width x 3, as files hold images; planar: 3 x height x width, as models take them"""
    full: bool = False
    """Whether the Python loops go over all images, rather than over four of them with their time scaled"""
    timed_s: NonNegativeNumber = 0.5
    """Seconds of timed passes over the set, five passes at least"""
    pictures: str | None = None
    """Folder with your images; without it, cuts of the two photographs that scikit-learn brings along"""
    world_size: int = 1
    device: DeviceName = "auto"

    def __post_init__(self) -> None:
        if self.world_size != 1:
            raise ValueError(f"world_size={self.world_size}: one rank turns all images grey; leave it at 1.")
        needed = device_of(self.implementation)
        if self.device not in ("auto", needed):
            raise ValueError(
                f"implementation={self.implementation} runs on {needed}, and device={self.device}; leave --device out."
            )
        object.__setattr__(self, "device", needed)
        if self.layout == "planar" and self.implementation in INTERLEAVED_ONLY:
            raise ValueError(
                f"implementation={self.implementation} takes interleaved images, and layout=planar; leave it out there."
            )
        if self.pictures is not None and not files_in(Path(self.pictures)):
            raise ValueError(
                f"pictures={self.pictures} is no folder with images ({', '.join(SUFFIXES)}); name one that has some."
            )


def device_of(implementation: str) -> Literal["cpu", "cuda"]:
    """Where an implementation runs."""
    return "cuda" if implementation in ON_A_GPU else "cpu"


def files_in(folder: Path) -> list[Path]:
    """The image files of a folder in the order of their names; empty if the folder does not exist."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if is_image_name(path) and not path.is_dir())


IMPLEMENTATION_FIELDS = frozenset(("implementation", "device"))
"""Fields that differ between two trials that differ in their implementation only."""

TIMES_THE_CACHE = 4
"""A set of images at least this many times as large as the last-level cache is read from memory."""

RECORDED_NAME = "dmls_ray.grayscale.trial:turn_grey"
"""Entry `train` of recorded configurations, from the time when this workload was called as a training function. Hashes
include it, so it never changes."""
