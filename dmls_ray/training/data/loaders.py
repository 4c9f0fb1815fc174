"""How samples reach the model: `resident`, all on the device from the start, or `dataloader`, torchvision's
ordinary path.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, Protocol

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from dmls_ray.training.data.augmentation import Augmentation
from dmls_ray.training.data.cache import as_chw, decoded, source_of
from dmls_ray.training.data.seeding import mixed_seed, seed_worker
from dmls_ray.training.data.sharding import Pass, epoch_order, hold_out, passes_of, test_shards
from dmls_ray.training.data.sources import Samples
from dmls_ray.training.rank import RankInfo
from dmls_ray.workloads.classification.config import TrialConfig

Batch = tuple[Tensor, Tensor]
"""Images (batch x channels x height x width, float32, from -1 to 1) and labels (batch, int64), on the rank's device."""


class Loader(Protocol):
    """What the loop needs of the data."""

    shape: tuple[int, int, int]
    classes: int
    train_samples: int
    validation_samples: int
    test_samples: int

    def train(self, epoch: int) -> Iterator[tuple[Pass, Batch]]:
        """This rank's passes of an epoch (from 0), each with its samples."""

    def test(self, split: Held = "test") -> Iterator[Batch]:
        """This rank's share of the test samples, or of those held out for validation."""

    def close(self) -> None:
        """End worker processes, if there are any."""


Held = Literal["test", "validation"]
"""What is tested and never trained on."""


def make_loader(config: TrialConfig, rank: RankInfo, device: torch.device) -> Loader:
    """The loader of the configuration.

    Raises:
        DataError: the data are missing or unreadable.
    """
    if config.loader == "resident":
        return ResidentLoader(config, rank, device)
    return WorkerLoader(config, rank, device)


def normalized(images: Tensor) -> Tensor:
    """uint8 from 0 to 255 as float32 from -1 to 1: scaled to [0, 1], then mean 0.5 and standard deviation 0.5, as
    report A.
    """
    return images if images.dtype.is_floating_point else images.to(torch.float32).div_(127.5).sub_(1)


def laid_out(images: Tensor, config: TrialConfig) -> Tensor:
    """The images in the configured memory format."""
    return images.contiguous(memory_format=MEMORY_FORMATS[config.memory_format])


def augmentation(
    loader: Loader, config: TrialConfig, epoch: int, device: torch.device
) -> Callable[[Tensor, Pass], Tensor]:
    """What happens to the images of an epoch's passes."""
    if config.augmentation == "none":
        return lambda images, item: images
    return Augmentation(config, loader.train_samples, min(loader.shape[1:]), epoch, device)


MEMORY_FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}


_GROUP_BYTES = 2**20
"""Normalised images that are made at once."""


class ResidentLoader:
    """All samples as uint8 on the device; a batch is picked by index and normalised there.

    On a CPU the tensors are the mapped cache files themselves, which the ranks of a machine share.
    """

    def __init__(self, config: TrialConfig, rank: RankInfo, device: torch.device) -> None:
        data = decoded(config.dataset, config.data_dir, config.image_size)
        self._config, self._rank, self._device = config, rank.rank, device
        self.shape, self.classes = data.shape, data.classes
        self._train = [torch.from_numpy(item).to(device) for item in (data.train_images, data.train_labels)]
        self._test = [torch.from_numpy(item).to(device) for item in (data.test_images, data.test_labels)]
        self._held_out = hold_out(len(data.train_labels), config)
        self.validation_samples = len(self._held_out[1]) if self._held_out else 0
        self.train_samples = len(data.train_labels) - self.validation_samples
        self.test_samples = len(data.test_labels)
        self._passes = passes_of(self.train_samples, config, rank.rank)

    def train(self, epoch: int) -> Iterator[tuple[Pass, Batch]]:
        images, labels = self._train
        order = epoch_order(self.train_samples, self._config, epoch)
        if self._held_out:
            order = self._held_out[0][order]
        order = order.to(self._device)
        changed = augmentation(self, self._config, epoch, self._device)
        for group in self._groups():
            # Picked and normalised for several passes at once: for small images the calls cost more than their work.
            places = torch.cat([order[item.start : item.stop] for item in group])
            picked, their = normalized(images[places]), labels[places]
            at = 0
            for item in group:
                size = item.stop - item.start
                batch = picked[at : at + size]
                yield item, (laid_out(changed(batch, item), self._config), their[at : at + size])
                at += size

    def _groups(self) -> Iterator[list[Pass]]:
        """The passes, as many together as fit the processor's cache (or one)."""
        channels, height, width = self.shape
        assert self._config.batch_per_rank is not None
        together = max(_GROUP_BYTES // (4 * channels * height * width * self._config.batch_per_rank), 1)
        for start in range(0, len(self._passes), together):
            yield self._passes[start : start + together]

    def test(self, split: Held = "test") -> Iterator[Batch]:
        if split == "validation":
            images, labels = self._train
            assert self._held_out is not None
            places = self._held_out[1].to(self._device)
        else:
            images, labels = self._test
            places = None
        for part in test_shards(getattr(self, f"{split}_samples"), self._config, self._rank):
            index = part if places is None else places[part]
            batch = normalized(images[index])
            if images.dtype.is_floating_point and places is None:
                # A part of the data themselves, which a model may change in place.
                batch = batch.clone()
            yield laid_out(batch, self._config), labels[index]

    def close(self) -> None:
        """Nothing to end."""


class WorkerLoader:
    """Samples decoded one by one in worker processes that live as long as the run, through pinned memory where
    there is a GPU.
    """

    def __init__(self, config: TrialConfig, rank: RankInfo, device: torch.device) -> None:
        source = source_of(config.dataset, config.data_dir)
        # All images are brought to the colours of the first, as the cache does.
        channels = len(as_chw(source.halves[0][0][0], None))
        train, test = (_Tensors(half, config, channels) for half in source.halves)
        self._config, self._device = config, device
        self.shape, self.classes = _shape(train[0, 0][0]), source.classes
        self._held_out = hold_out(len(train), config)
        self.validation_samples = len(self._held_out[1]) if self._held_out else 0
        self.train_samples, self.test_samples = len(train) - self.validation_samples, len(test)
        self._passes = passes_of(self.train_samples, config, rank.rank)
        self._order = _Order()
        self._train = self._make(train, self._order)
        self._held = {
            "test": self._shards(test, torch.arange(len(test)), rank.rank),
            "validation": self._shards(train, self._held_out[1], rank.rank) if self._held_out else None,
        }

    def _shards(self, samples: Dataset[Any], places: Tensor, rank: int) -> DataLoader[Any] | None:
        parts = test_shards(len(places), self._config, rank)
        shards = [[(0, place) for place in places[part].tolist()] for part in parts]
        return self._make(samples, shards) if shards else None

    def _make(self, samples: Dataset[Any], batches: Iterable[list[tuple[int, int]]]) -> DataLoader[Any]:
        workers = self._config.loader_workers
        return DataLoader(
            samples,
            batch_sampler=batches,
            num_workers=workers,
            pin_memory=self._device.type == "cuda",
            persistent_workers=workers > 0,
            multiprocessing_context=_worker_context() if workers else None,
            generator=torch.Generator().manual_seed(self._config.seed),
        )

    def train(self, epoch: int) -> Iterator[tuple[Pass, Batch]]:
        order = epoch_order(self.train_samples, self._config, epoch)
        if self._held_out:
            order = self._held_out[0][order]
        self._order.batches = [
            [(epoch, place) for place in order[item.start : item.stop].tolist()] for item in self._passes
        ]
        changed = augmentation(self, self._config, epoch, self._device)
        for item, batch in zip(self._passes, self._train, strict=True):
            images, labels = self._on_device(batch)
            yield item, (laid_out(changed(images, item), self._config), labels)

    def test(self, split: Held = "test") -> Iterator[Batch]:
        for batch in self._held[split] or ():
            images, labels = self._on_device(batch)
            yield laid_out(images, self._config), labels

    def close(self) -> None:
        # The worker processes end with the loaders that own them.
        del self._train, self._held

    def _on_device(self, batch: Batch) -> Batch:
        images, labels = batch
        return images.to(self._device, non_blocking=True), labels.to(self._device, non_blocking=True)


def _worker_context() -> Any:
    """How loader workers are started: forked off a process that has loaded PyTorch and does nothing else.

    Forked off the rank itself, as DataLoader would by default, they may inherit a lock that one of its threads (gloo's,
    the autograd engine's) held at that moment, and hang for ever: seen at world size 2.
    """
    context = multiprocessing.get_context("forkserver")
    # What the rank's main module loads, the workers load as well; ready-made it costs them nothing.
    context.set_forkserver_preload([name for name in ("torch", "ray", __name__) if name in sys.modules])
    return context


class _Order:
    """A batch sampler whose batches are set anew every epoch."""

    batches: list[list[tuple[int, int]]]
    """Epoch and place of each sample: what is random in a sample depends on both."""

    def __init__(self) -> None:
        self.batches = []

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


class _Tensors(Dataset[tuple[Tensor, int]]):
    """Decodes, resizes and normalises a sample when it is asked for."""

    def __init__(self, samples: Samples, config: TrialConfig, channels: int) -> None:
        self._samples, self._image_size, self._channels = samples, config.image_size, channels
        self._seed = config.seed

    def __len__(self) -> int:
        return len(self._samples)

    def __getitems__(self, wheres: list[tuple[int, int]]) -> list[tuple[Tensor, int]]:
        """A whole batch; DataLoader asks for it so where a data set can."""
        if torch.utils.data.get_worker_info() is not None:
            # The process is the loader's own: what it draws would depend on what it served before, and on which.
            seed_worker(mixed_seed(self._seed, *wheres[0]))
        return [self[where] for where in wheres]

    def __getitem__(self, where: tuple[int, int]) -> tuple[Tensor, int]:
        image, label = self._samples[where[1]]
        array = as_chw(image, self._image_size, self._channels)
        # A copy, since PIL's own buffer is read-only.
        return normalized(torch.from_numpy(array.copy())), int(label)


def _shape(image: Tensor) -> tuple[int, int, int]:
    channels, height, width = image.shape
    return channels, height, width
