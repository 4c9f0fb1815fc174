"""The two loaders: `resident` keeps all samples on the device, `dataloader` decodes them in worker processes.

Both change training images at random, a whole batch at once on the device it is on.
"""

from __future__ import annotations

import multiprocessing
import pickle
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, Subset

from dmls_ray.training.ddp import warmup_steps
from dmls_ray.training.process import AUGMENTATION, end_with_parent, mixed_seed, seed_worker
from dmls_ray.training.rank import RankInfo
from dmls_ray.training.sharding import (
    MicroBatch,
    epoch_order,
    evaluation_shards,
    hold_out,
    micro_batches,
    train_evaluation_samples,
)
from dmls_ray.training.task import EvalSplit
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.data.decoded_images import DecodedSplit, decoded_splits, load_decoded
from dmls_ray.workloads.classification.data.sources import (
    cached_source,
    chosen_by_class,
    labels_of,
)

_PADDED_SHARE = 8
"""Crops are of the image padded by an eighth of its side: 4 pixels for 32, as He et al., arXiv 1512.03385."""


class Augmentation:
    """Flips and padded crops, as configured.

    The change of a sample depends on seed, epoch and its position in the epoch's order only: it is the same at any
    world size.
    """

    def __init__(self, config: TrialConfig, samples: int, side: int, epoch: int, device: torch.device) -> None:
        generator = torch.Generator().manual_seed(mixed_seed(config.seed, AUGMENTATION, epoch))
        self._flip = self._offsets = None
        self._pad = max(side // _PADDED_SHARE, 1)
        if "flip" in config.augmentation:
            self._flip = (torch.rand(samples, generator=generator) < 0.5).to(device)
        if "crop" in config.augmentation:
            self._offsets = torch.randint(2 * self._pad + 1, (samples, 2), generator=generator).to(device)

    def __call__(self, images: Tensor, micro_batch: MicroBatch) -> Tensor:
        """Augmented images of a micro-batch (batch x channels x height x width, normalised)."""
        samples = slice(micro_batch.start, micro_batch.stop)
        if self._flip is not None:
            images = torch.where(self._flip[samples, None, None, None], images.flip(3), images)
        if self._offsets is not None:
            images = _crop(images, self._offsets[samples], self._pad)
        return images


def _crop(images: Tensor, offsets: Tensor, pad: int) -> Tensor:
    """A crop of the image's size from the image padded by a black border of `pad` pixels."""
    count, _, height, width = images.shape
    padded = torch.nn.functional.pad(images, (pad, pad, pad, pad), value=-1.0)
    rows = offsets[:, 0, None] + torch.arange(height, device=images.device)
    columns = offsets[:, 1, None] + torch.arange(width, device=images.device)
    index = torch.arange(count, device=images.device)[:, None, None]
    # Indexing the last two dimensions together puts channels last; the second permute restores the order.
    return padded.permute(0, 2, 3, 1)[index, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


Batch = tuple[Tensor, Tensor]
"""Images (batch x channels x height x width, float32, from -1 to 1) and labels (batch, int64), on the rank's device."""

MEMORY_FORMATS = {"contiguous": torch.contiguous_format, "channels_last": torch.channels_last}

_GROUP_BYTES = 2**20
"""Normalised images that are made at once: few calls, and still within the caches of a processor."""


def make_loader(config: TrialConfig, rank: RankInfo, device: torch.device) -> Loader:
    """The configured loader.

    Raises:
        DataError: the data are missing or unreadable.
    """
    return (ResidentLoader if config.loader == "resident" else WorkerLoader)(config, rank, device)


def normalize(images: Tensor) -> Tensor:
    """uint8 from 0 to 255 as float32 from -1 to 1: scaled to [0, 1], then mean 0.5 and standard deviation 0.5, as in
    report A. Floats stay as they are.
    """
    return images if images.dtype.is_floating_point else images.to(torch.float32).div_(127.5).sub_(1)


def to_memory_format(images: Tensor, config: TrialConfig) -> Tensor:
    """The images in the configured memory format."""
    return images.contiguous(memory_format=MEMORY_FORMATS[config.memory_format])


class Loader(ABC):
    """The data of one rank.

    Args:
        config: data set, batches and seed.
        rank: this rank.
        device: where batches are to be.
        samples: training samples, with those that are held out for validation.
    """

    shape: tuple[int, int, int]
    """Channels, height, width."""
    class_names: list[str]
    """In the order of the labels."""
    test_samples: int
    data_bytes: int = 0
    """Size of the samples that lie on the device for the whole run."""

    def __init__(self, config: TrialConfig, rank: RankInfo, device: torch.device, samples: int) -> None:
        self._config, self._rank, self._device = config, rank.rank, device
        self._trained_on, self._held_out = hold_out(samples, config)
        self.train_samples, self.validation_samples = len(self._trained_on), len(self._held_out)
        self._micro_batches = micro_batches(self.train_samples, config, rank.rank)

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    @abstractmethod
    def train(self, epoch: int) -> Iterator[tuple[MicroBatch, Batch]]:
        """This rank's micro-batches of an epoch (from 0), each with its samples."""

    @abstractmethod
    def evaluation(self, split: EvalSplit = "test") -> Iterator[Batch]:
        """This rank's share of a split."""

    @property
    def train_eval_samples(self) -> int:
        """Training samples that the trained model is evaluated on."""
        return min(self.train_samples, self.test_samples)

    def close(self) -> None:
        """End worker processes, if there are any."""
        return

    def _order(self, epoch: int) -> Tensor:
        """Indices of the training samples in the order of an epoch."""
        return self._trained_on[epoch_order(self.train_samples, self._config, epoch)]

    def _indices(self, split: EvalSplit) -> Tensor:
        """Indices of the samples of a split, in the half of the data that they are from."""
        if split == "test":
            return torch.arange(self.test_samples)
        if split == "validation":
            return self._held_out
        return self._trained_on[train_evaluation_samples(self.train_samples, self.train_eval_samples, self._config)]

    def _augmentation(self, epoch: int) -> Augmentation:
        return Augmentation(self._config, self.train_samples, min(self.shape[1:]), epoch, self._device)


class ResidentLoader(Loader):
    """All samples as uint8 on the device; batches are indexed and normalised there.

    On a CPU the tensors are the memory-mapped cache files, which the ranks of a machine share.
    """

    def __init__(self, config: TrialConfig, rank: RankInfo, device: torch.device) -> None:
        data = load_decoded(config.dataset, config.data_dir, config.image_size)
        train = data.train_images, data.train_labels
        if config.train_samples is not None:
            chosen = chosen_by_class(data.train_labels, config.train_samples)
            train = data.train_images[chosen], data.train_labels[chosen]
        super().__init__(config, rank, device, samples=len(train[1]))
        self.shape, self.class_names, self.test_samples = data.shape, data.class_names, len(data.test_labels)
        self._train = [torch.from_numpy(array).to(device) for array in train]
        self._test = [torch.from_numpy(array).to(device) for array in (data.test_images, data.test_labels)]
        self.data_bytes = sum(tensor.nbytes for tensor in (*self._train, *self._test))
        self._places = torch.cat([torch.arange(item.start, item.stop) for item in self._micro_batches])
        """Places of this rank's samples in the order of an epoch."""

    def train(self, epoch: int) -> Iterator[tuple[MicroBatch, Batch]]:
        images, labels = self._train
        samples = self._order(epoch)[self._places].to(self._device)
        labels, augment = labels[samples], self._augmentation(epoch)
        stop = 0
        for group in self._groups(epoch):
            # Few calls for several micro-batches: for small images the calls cost more than their work.
            sizes = [item.stop - item.start for item in group]
            start, stop = stop, stop + sum(sizes)
            # On a CPU, indexing copies single bytes and takes 20 times as long as index_select, which copies images.
            chosen = normalize(images.index_select(0, samples[start:stop])).split(sizes)
            for micro_batch, batch, batch_labels in zip(group, chosen, labels[start:stop].split(sizes), strict=True):
                yield micro_batch, (to_memory_format(augment(batch, micro_batch), self._config), batch_labels)

    def _groups(self, epoch: int) -> Iterator[list[MicroBatch]]:
        """Consecutive micro-batches, as many as fit into the processor's cache (at least one).

        A group begins where the warm-up ends, so that no counted step has its images made in the warm-up.
        """
        channels, height, width = self.shape
        assert self._config.batch_per_rank is not None
        size = max(_GROUP_BYTES // (4 * channels * height * width * self._config.batch_per_rank), 1)
        batches = self._micro_batches
        ends = [number for number, item in enumerate(batches, start=1) if item.ends_step]
        left = warmup_steps(self.train_samples, self._config) - epoch * len(ends)
        warm = ends[left - 1] if 0 < left <= len(ends) else 0
        for start, stop in ((0, warm), (warm, len(batches))):
            for first in range(start, stop, size):
                yield batches[first : min(first + size, stop)]

    def evaluation(self, split: EvalSplit = "test") -> Iterator[Batch]:
        images, labels = self._test if split == "test" else self._train
        indices = self._indices(split).to(self._device)
        for shard in evaluation_shards(len(indices), self._config, self._rank):
            # The test samples in a row need no copy.
            index = shard if split == "test" else indices[shard]
            batch = normalize(images[index])
            if images.dtype.is_floating_point and split == "test":
                # A view of the data, which a model could change in place.
                batch = batch.clone()
            yield to_memory_format(batch, self._config), labels[index]


class WorkerLoader(Loader):
    """Samples decoded one by one in worker processes that live as long as the run.

    On a GPU, batches go through pinned memory.
    """

    def __init__(self, config: TrialConfig, rank: RankInfo, device: torch.device) -> None:
        source = cached_source(config.dataset, config.data_dir)
        name = str(config.dataset)
        train_split, test_split = decoded_splits(name, source, config.image_size)
        if config.train_samples is not None:
            half = train_split.samples
            chosen = chosen_by_class(labels_of(name, "train", half), config.train_samples)
            train_split = replace(train_split, samples=Subset(half, chosen.tolist()))  # type: ignore[arg-type]
        train, test = _Tensors(train_split, config.seed), _Tensors(test_split, config.seed)
        super().__init__(config, rank, device, samples=len(train))
        self.shape, self.class_names, self.test_samples = train_split.shape, source.class_names, len(test)
        self._batches: list[list[tuple[int, int]]] = []
        """The batches of the current epoch. A sample is its epoch and its index: its random numbers depend on both."""
        self._train = self._make(train, self._batches)
        self._evaluation = {
            "test": self._shards(test, self._indices("test")),
            "validation": self._shards(train, self._indices("validation")),
            "train": self._shards(train, self._indices("train")),
        }

    def _shards(self, data: Dataset[Any], samples: Tensor) -> DataLoader[Any] | None:
        shards = evaluation_shards(len(samples), self._config, self._rank)
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
            # DataLoader's own watch looks at the process that a worker was forked off, which waits for its children.
            worker_init_fn=end_with_parent if workers else None,
            generator=torch.Generator().manual_seed(self._config.seed),
        )

    def train(self, epoch: int) -> Iterator[tuple[MicroBatch, Batch]]:
        order = self._order(epoch)
        # In place, since the DataLoader iterates over this list in every epoch.
        self._batches[:] = [
            [(epoch, sample) for sample in order[item.start : item.stop].tolist()] for item in self._micro_batches
        ]
        augment = self._augmentation(epoch)
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


class _Tensors(Dataset[tuple[Tensor, int]]):
    """Normalises a sample on access.

    Args:
        samples: the samples, decoded as they are read.
        seed: the seed of the run.
    """

    def __init__(self, samples: DecodedSplit, seed: int) -> None:
        self._samples, self._seed = samples, seed

    def __getstate__(self) -> bytes:
        # A worker process cannot import the classes of a notebook.
        pickled: bytes = cloudpickle.dumps(vars(self))
        return pickled

    def __setstate__(self, state: bytes) -> None:
        vars(self).update(pickle.loads(state))

    def __len__(self) -> int:
        return len(self._samples)

    def __getitems__(self, indices: list[tuple[int, int]]) -> list[tuple[Tensor, int]]:
        """A whole batch; DataLoader prefers this method."""
        if torch.utils.data.get_worker_info() is not None:
            # Otherwise random numbers would depend on which worker process makes the batch, and on its earlier ones.
            seed_worker(mixed_seed(self._seed, *indices[0]))
        samples = [self._samples[index] for _, index in indices]
        # Copies, since PIL's buffer is read-only.
        return [(normalize(torch.from_numpy(image.copy())), label) for image, label in samples]
