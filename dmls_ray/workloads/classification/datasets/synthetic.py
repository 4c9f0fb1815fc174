"""Synthetic images: `synthetic:shape=3x32x32,classes=10,train=2048,test=512,seed=0`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.classification.datasets import DatasetSpec, Source, Split

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class SyntheticSpec:
    """`synthetic:shape=3x32x32,classes=10,train=2048,test=512,seed=0`; every option may be left out."""

    shape: tuple[int, int, int] = (3, 32, 32)
    classes: int = 10
    train: int = 2048
    test: int = 512
    seed: int = 0

    def __post_init__(self) -> None:
        if len(self.shape) != 3 or min(*self.shape, self.classes, self.train, self.test) < 1 or self.seed < 0:
            raise ValueError("an option is out of range")

    @classmethod
    def parse(cls, name: str) -> SyntheticSpec:
        """The options behind the colon.

        Raises:
            ConfigError: an option is unknown or no whole number of at least 1 (seed: 0).
        """
        options: dict[str, Any] = {}
        try:
            for part in filter(None, name.partition(":")[2].split(",")):
                key, _, text = part.partition("=")
                options[key] = tuple(map(int, text.split("x"))) if key == "shape" else int(text)
            return cls(**options)
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"dataset={name}: {error}; write synthetic:shape=3x32x32,classes=10,train=2048,test=512,seed=0, or "
                "some of these options."
            ) from error


class _Synthetic:
    """One pattern per class plus noise. Each sample is generated on access from a seed of its index."""

    def __init__(self, spec: SyntheticSpec, split: Split) -> None:
        self._spec = spec
        self._length = spec.train if split == "train" else spec.test
        self._half = ("train", "test").index(split)
        channels, height, width = spec.shape
        patterns = np.random.default_rng([spec.seed, 2])
        self._patterns = patterns.integers(64, 192, (spec.classes, height, width, channels))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        import torch

        if not 0 <= index < self._length:
            raise IndexError(index)
        random = np.random.default_rng([self._spec.seed, self._half, index])
        label = int(random.integers(self._spec.classes))
        noise = random.integers(-64, 64, self._patterns.shape[1:])
        image = (self._patterns[label] + noise).astype(np.uint8)
        return torch.from_numpy(image).permute(2, 0, 1), label


def _open(name: str, data_dir: str | None) -> Source:
    spec = SyntheticSpec.parse(name)
    return Source(spec.classes, repr(spec), lambda: (_Synthetic(spec, "train"), _Synthetic(spec, "test")))


DATASET = DatasetSpec(
    open=_open,
    train_samples=lambda name: SyntheticSpec.parse(name).train,
    check=lambda name, data_dir: SyntheticSpec.parse(name),
    has_options=True,
)
