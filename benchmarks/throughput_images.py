"""The images of `throughput.py` as a data set, and the configuration that all its ways train."""

from __future__ import annotations

import argparse
import functools
import io
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from PIL import Image
from torch.utils.data import Dataset

from dmls_ray.workloads.classification.config import TrialConfig

SHAPES = {"mnist_convnet": (1, 28, 28), "convnet": (3, 32, 32)}
IMAGES = {"mnist_convnet": 4096, "convnet": 512}
"""Images that one way trains on in one round, on a CPU, all ranks together."""


class Pictures(Dataset[tuple[Image.Image, int]]):
    """JPEGs in memory, decoded when they are asked for."""

    classes = 10

    def __init__(self, files: list[bytes], labels: list[int]) -> None:
        self._files, self._labels = files, labels

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> tuple[Image.Image, int]:
        return Image.open(io.BytesIO(self._files[index])), self._labels[index]


@functools.cache
def pictures(split: str, data_dir: str) -> Pictures:
    """The benchmark's data set; `data_dir` is JSON: model, count, images."""
    wanted = json.loads(data_dir)
    channels, height, width = SHAPES[wanted["model"]]
    files, labels = [], []
    for image, label in itertools.islice(_raw(wanted["images"]), wanted["count"] if split == "train" else 32):
        buffer = io.BytesIO()
        image.convert("L" if channels == 1 else "RGB").resize((width, height)).save(buffer, "JPEG", quality=90)
        files.append(buffer.getvalue())
        labels.append(label)
    return Pictures(files, labels)


def _raw(folder: str | None) -> Iterator[tuple[Image.Image, int]]:
    if folder:
        from torchvision.datasets import ImageFolder

        yield from ImageFolder(str(Path(folder) / "train"))
    from sklearn.datasets import load_digits

    bunch = load_digits()
    for image, label in itertools.cycle(zip(bunch.images, bunch.target, strict=True)):
        yield Image.fromarray((image * 15.9).astype("uint8")), int(label)


def settings(model: str, batch: int, world_size: int, given: argparse.Namespace, **changes: Any) -> TrialConfig:
    """The configuration that all ways train."""
    spec = {"model": model, "count": IMAGES[model] * given.scale, "images": given.images}
    return TrialConfig(
        **{
            "model": model,
            "dataset": "benchmarks.throughput_images:pictures",
            "data_dir": json.dumps(spec),
            "batch_per_rank": batch,
            "world_size": world_size,
            "epochs": 1,
            "device": given.device,
            "precision": given.precision,
            "memory_format": given.memory_format,
            **changes,
        }
    )
