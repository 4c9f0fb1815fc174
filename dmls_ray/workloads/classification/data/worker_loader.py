"""The loader that decodes samples in worker processes, as torch.utils.data.DataLoader does."""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from dmls_ray.training.rank import RankInfo
from dmls_ray.training.seeding import mixed_seed, seed_worker
from dmls_ray.training.sharding import MicroBatch, epoch_order, evaluation_shards, hold_out, micro_batches
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.data.batches import (
    Batch,
    EvalSplit,
    augmentation_of_epoch,
    normalize,
    to_memory_format,
)
from dmls_ray.workloads.classification.data.find import cached_source
from dmls_ray.workloads.classification.data.image_arrays import to_chw
from dmls_ray.workloads.classification.data.source import Samples


class WorkerLoader:
    """Samples decoded one by one in worker processes that live as long as the run.

    On a GPU, batches go through pinned memory.
    """

    def __init__(self, config: TrialConfig, rank: RankInfo, device: torch.device) -> None:
        source = cached_source(config.dataset, config.data_dir)
        # All images get the colours of the first image, as in the cache of decoded images.
        channels = len(to_chw(source.halves[0][0][0], None))
        train, test = (_Tensors(half, config, channels) for half in source.halves)
        self._config, self._device = config, device
        channels, height, width = train[0, 0][0].shape
        self.shape, self.classes = (channels, height, width), source.classes
        self._held_out = hold_out(len(train), config)
        self.validation_samples = len(self._held_out[1]) if self._held_out else 0
        self.train_samples, self.test_samples = len(train) - self.validation_samples, len(test)
        self._micro_batches = micro_batches(self.train_samples, config, rank.rank)
        self._order = _Order()
        self._train = self._make(train, self._order)
        self._evaluation = {
            "test": self._shards(test, torch.arange(len(test)), rank.rank),
            "validation": self._shards(train, self._held_out[1], rank.rank) if self._held_out else None,
        }

    def _shards(self, data: Dataset[Any], samples: Tensor, rank: int) -> DataLoader[Any] | None:
        shards = evaluation_shards(len(samples), self._config, rank)
        batches = [[(0, sample) for sample in samples[shard].tolist()] for shard in shards]
        return self._make(data, batches) if batches else None

    def _make(self, data: Dataset[Any], batches: Iterable[list[tuple[int, int]]]) -> DataLoader[Any]:
        workers = self._config.loader_workers
        return DataLoader(
            data,
            batch_sampler=batches,
            num_workers=workers,
            pin_memory=self._device.type == "cuda",
            persistent_workers=workers > 0,
            multiprocessing_context=_worker_context() if workers else None,
            generator=torch.Generator().manual_seed(self._config.seed),
        )

    def train(self, epoch: int) -> Iterator[tuple[MicroBatch, Batch]]:
        order = epoch_order(self.train_samples, self._config, epoch)
        if self._held_out:
            order = self._held_out[0][order]
        self._order.batches = [
            [(epoch, sample) for sample in order[item.start : item.stop].tolist()] for item in self._micro_batches
        ]
        augment = augmentation_of_epoch(self, self._config, epoch, self._device)
        for micro_batch, batch in zip(self._micro_batches, self._train, strict=True):
            images, labels = self._to_device(batch)
            yield micro_batch, (to_memory_format(augment(images, micro_batch), self._config), labels)

    def evaluation(self, split: EvalSplit = "test") -> Iterator[Batch]:
        for batch in self._evaluation[split] or ():
            images, labels = self._to_device(batch)
            yield to_memory_format(images, self._config), labels

    def close(self) -> None:
        # The worker processes end when their loaders are deleted.
        del self._train, self._evaluation

    def _to_device(self, batch: Batch) -> Batch:
        images, labels = batch
        return images.to(self._device, non_blocking=True), labels.to(self._device, non_blocking=True)


def _worker_context() -> Any:
    """Start method of loader workers: forked off a process that has loaded PyTorch and is otherwise idle.

    DataLoader's default forks the rank itself. A worker may then inherit a lock that one of the rank's threads (gloo's,
    the autograd engine's) has at that moment, and hang: seen at world size 2.
    """
    context = multiprocessing.get_context("forkserver")
    # The workers load what the rank's main module loads; modules that are preloaded cost them nothing.
    context.set_forkserver_preload([name for name in ("torch", "ray", __name__) if name in sys.modules])
    return context


class _Order:
    """A batch sampler whose batches are replaced every epoch."""

    batches: list[list[tuple[int, int]]]
    """Epoch and index of each sample: the random numbers of a sample depend on both."""

    def __init__(self) -> None:
        self.batches = []

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


class _Tensors(Dataset[tuple[Tensor, int]]):
    """Decodes, resizes and normalises a sample on access."""

    def __init__(self, samples: Samples, config: TrialConfig, channels: int) -> None:
        self._samples, self._image_size, self._channels = samples, config.image_size, channels
        self._seed = config.seed

    def __len__(self) -> int:
        return len(self._samples)

    def __getitems__(self, indices: list[tuple[int, int]]) -> list[tuple[Tensor, int]]:
        """A whole batch; DataLoader prefers this method."""
        if torch.utils.data.get_worker_info() is not None:
            # Otherwise random numbers would depend on which worker process makes the batch, and on its earlier ones.
            seed_worker(mixed_seed(self._seed, *indices[0]))
        return [self[index] for index in indices]

    def __getitem__(self, index: tuple[int, int]) -> tuple[Tensor, int]:
        image, label = self._samples[index[1]]
        array = to_chw(image, self._image_size, self._channels)
        # A copy, since PIL's buffer is read-only.
        return normalize(torch.from_numpy(array.copy())), int(label)
