"""The loader that keeps all samples on the device."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from dmls_ray.training.rank import RankInfo
from dmls_ray.training.sharding import MicroBatch, epoch_order, evaluation_shards, hold_out, micro_batches
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.data.batches import (
    Batch,
    EvalSplit,
    augmentation_of_epoch,
    normalize,
    to_memory_format,
)
from dmls_ray.workloads.classification.data.decoded_images import load_decoded

_GROUP_BYTES = 2**20
"""Normalised images that are made at once."""


class ResidentLoader:
    """All samples as uint8 on the device; batches are indexed and normalised there.

    On a CPU the tensors are the memory-mapped cache files, which the ranks of a machine share.
    """

    def __init__(self, config: TrialConfig, rank: RankInfo, device: torch.device) -> None:
        data = load_decoded(config.dataset, config.data_dir, config.image_size)
        self._config, self._rank, self._device = config, rank.rank, device
        self.shape, self.classes = data.shape, data.classes
        self._train = [torch.from_numpy(array).to(device) for array in (data.train_images, data.train_labels)]
        self._test = [torch.from_numpy(array).to(device) for array in (data.test_images, data.test_labels)]
        self._held_out = hold_out(len(data.train_labels), config)
        self.validation_samples = len(self._held_out[1]) if self._held_out else 0
        self.train_samples = len(data.train_labels) - self.validation_samples
        self.test_samples = len(data.test_labels)
        self._micro_batches = micro_batches(self.train_samples, config, rank.rank)

    def train(self, epoch: int) -> Iterator[tuple[MicroBatch, Batch]]:
        images, labels = self._train
        order = epoch_order(self.train_samples, self._config, epoch)
        if self._held_out:
            order = self._held_out[0][order]
        order = order.to(self._device)
        augment = augmentation_of_epoch(self, self._config, epoch, self._device)
        for group in self._groups():
            # Several micro-batches at once: for small images the calls cost more than their work.
            samples = torch.cat([order[item.start : item.stop] for item in group])
            group_images, group_labels = normalize(images[samples]), labels[samples]
            start = 0
            for micro_batch in group:
                stop = start + micro_batch.stop - micro_batch.start
                batch = augment(group_images[start:stop], micro_batch)
                yield micro_batch, (to_memory_format(batch, self._config), group_labels[start:stop])
                start = stop

    def _groups(self) -> Iterator[list[MicroBatch]]:
        """Consecutive micro-batches, as many as fit into the processor's cache (at least one)."""
        channels, height, width = self.shape
        assert self._config.batch_per_rank is not None
        size = max(_GROUP_BYTES // (4 * channels * height * width * self._config.batch_per_rank), 1)
        for start in range(0, len(self._micro_batches), size):
            yield self._micro_batches[start : start + size]

    def evaluation(self, split: EvalSplit = "test") -> Iterator[Batch]:
        if split == "validation":
            images, labels = self._train
            assert self._held_out is not None
            samples = self._held_out[1].to(self._device)
        else:
            images, labels = self._test
            samples = None
        for shard in evaluation_shards(getattr(self, f"{split}_samples"), self._config, self._rank):
            index = shard if samples is None else samples[shard]
            batch = normalize(images[index])
            if images.dtype.is_floating_point and samples is None:
                # A view of the data, which a model could change in place.
                batch = batch.clone()
            yield to_memory_format(batch, self._config), labels[index]

    def close(self) -> None:
        """Nothing to end."""
