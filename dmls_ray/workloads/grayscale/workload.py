"""The workload that compares implementations of turning images grey: configuration, metrics and hooks."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from dmls_ray.config.fields import Count, NonNegativeNumber, field_specs
from dmls_ray.config.runtime import DeviceName, Schema
from dmls_ray.records.codec import check_field_values
from dmls_ray.records.metrics import TRAINING_METRICS, Metric
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.importing import missing_extra
from dmls_ray.workloads.base import Workload, files_named
from dmls_ray.workloads.grayscale import implementations
from dmls_ray.workloads.grayscale.implementations import INTERLEAVED_ONLY, ON_A_GPU
from dmls_ray.workloads.image_files import SUFFIXES, is_image_name
from dmls_ray.workloads.user_function.schema import UserFunctionConfig, function_schema

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
    """What converts the images to grayscale"""
    images: Count = 200
    """Images in the set; passes over 4 times the last-level cache or more are compared with a copy"""
    image_size: Count = 128
    """Pixels a side"""
    layout: Literal["interleaved", "planar"] = "interleaved"
    """interleaved: height x width x 3, as files hold images; planar: 3 x height x width, as models take them"""
    full: bool = False
    """Whether the Python loops convert all images, instead of four with the time scaled to all"""
    timed_s: NonNegativeNumber = 0.5
    """Seconds of timed passes over the set, five passes at least"""
    pictures: str | None = None
    """Folder with your images; without it, cuts of the two photographs that scikit-learn brings along"""
    world_size: int = 1
    device: DeviceName = "auto"

    def __post_init__(self) -> None:
        if self.world_size != 1:
            raise ValueError(f"world_size={self.world_size}: one rank converts all images; leave it at 1.")
        name = self.implementation
        needed = "cuda" if name in ON_A_GPU else "cpu"
        if self.device not in ("auto", needed):
            raise ValueError(f"implementation={name} runs on {needed}, but device={self.device}; leave --device out.")
        object.__setattr__(self, "device", needed)
        if self.layout == "planar" and name in INTERLEAVED_ONLY:
            raise ValueError(f"implementation={name} takes interleaved images only; leave it out with layout=planar.")
        if self.pictures is not None and not files_in(Path(self.pictures)):
            raise ValueError(
                f"pictures={self.pictures} is not a folder with images ({', '.join(SUFFIXES)}); name one that has some."
            )


def files_in(folder: Path) -> list[Path]:
    """The image files of a folder in the order of their names; empty if the folder does not exist."""
    if not folder.is_dir():
        return []
    return sorted(path for path in folder.iterdir() if is_image_name(path) and not path.is_dir())


IMPLEMENTATION_FIELDS = frozenset(("implementation", "device"))
"""Fields that differ between two trials that differ in their implementation only."""

RECORDED_NAME = "dmls_ray.grayscale.trial:turn_grey"
"""Entry `train` of recorded configurations, from the time when this workload was called as a training function. Hashes
include it, so it never changes."""


_timed = functools.partial(Metric, scope="run", is_time=True, is_compared=True)

GRAYSCALE_METRICS: tuple[Metric, ...] = (
    _timed(name="pass_ms", label="ms", kind="amount", direction="min",
           doc="Median of the timed passes over all images."),
    _timed(name="gb_per_s", label="GB/s", kind="rate", direction="max",
           doc="Bytes that a pass must at least read and write, divided by pass_ms, in 10^9 bytes per second."),
    _timed(name="copy_gb_per_s", label="copy GB/s", kind="rate", direction="max",
           doc="Bandwidth of a copy of the same number of bytes, if the images are at least 4 times as large as the "
           "last-level cache."),
    _timed(name="of_copy", label="of a copy", kind="ratio", direction="max", format="ratio",
           doc="gb_per_s relative to copy_gb_per_s."),
    _timed(name="to_device_ms", label="to device ms", kind="amount", direction="min", format="seconds",
           doc="Copy of the images to the GPU."),
    _timed(name="from_device_ms", label="from device ms", kind="amount", direction="min", format="seconds",
           doc="Copy of the grey levels from the GPU."),
    _timed(name="levels_apart", label="levels apart", kind="value", direction="min", format="whole", is_time=False,
           doc="Largest difference from the float64 reference, in grey levels."),
)  # fmt: skip
"""In the order of the table's columns."""


class GrayscaleWorkload(Workload):
    """Implementations that turn images grey, timed and compared with a reference."""

    name = "grayscale"
    config = UserFunctionConfig
    fixed: ClassVar[Mapping[str, Any]] = {"train": RECORDED_NAME}
    entrypoint = "dmls_ray.workloads.grayscale.train:convert_images"
    metrics = (*TRAINING_METRICS, *GRAYSCALE_METRICS)
    presentation = "dmls_ray.analysis.workloads.grayscale:GrayscalePresentation"
    questions = "dmls_ray.analysis.workloads.grayscale:GrayscaleQuestions"

    def schema(self) -> Schema:
        return function_schema(RECORDED_NAME, GrayscaleConfig)

    def check_recorded(self, config: Mapping[str, Any]) -> None:
        check_field_values({**self.specs(), **field_specs(GrayscaleConfig)}, config)

    def check(self, configs: Sequence[UserFunctionConfig]) -> None:
        for config in configs:
            asked = "the workload grayscale"
            reason = missing_extra("PIL", "kernels", asked)
            if config.values.get("pictures") is None:
                reason = reason or missing_extra("sklearn", "kernels", f"{asked} without --pictures")
            if reason:
                raise ConfigError(reason)

    def data_sets(self, config: UserFunctionConfig) -> Mapping[str, tuple[str]]:
        return files_named({"pictures": config.values.get("pictures")})


WORKLOAD = GrayscaleWorkload
