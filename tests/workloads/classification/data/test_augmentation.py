from __future__ import annotations

from typing import Any

import pytest
import torch

from dmls_ray.training.rank import RankInfo
from dmls_ray.training.sharding import MicroBatch
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.data.augmentation import Augmentation
from dmls_ray.workloads.classification.data.loaders import make_loader

CPU = torch.device("cpu")
DATA = "synthetic:shape=3x16x16,classes=4,train=24,test=8"


def config(augmentation: str, **changes: Any) -> TrialConfig:
    return TrialConfig(**{"batch_per_rank": 24, "dataset": DATA, "augmentation": augmentation, **changes})


def whole(count: int) -> MicroBatch:
    return MicroBatch(start=0, stop=count, count=count, scale=1.0, ends_step=True)


def test_a_flip_mirrors_about_half_of_the_images_and_leaves_the_others() -> None:
    images = torch.rand(200, 1, 4, 4)
    changed = Augmentation(config("flip"), 200, 4, 0, CPU)(images, whole(200))
    mirrored = [torch.equal(one, other.flip(2)) for one, other in zip(changed, images, strict=True)]
    same = [torch.equal(one, other) for one, other in zip(changed, images, strict=True)]
    assert all(one != other for one, other in zip(mirrored, same, strict=True))
    assert 60 < sum(mirrored) < 140


def test_a_crop_is_a_window_of_the_padded_image_and_moves_by_an_eighth_at_most() -> None:
    images = torch.rand(100, 2, 16, 16)
    changed = Augmentation(config("crop"), 100, 16, 0, CPU)(images, whole(100))
    assert changed.shape == images.shape
    padded = torch.nn.functional.pad(images, (2, 2, 2, 2), value=-1.0)
    seen = set()
    for number in range(100):
        places = [
            (row, column)
            for row in range(5)
            for column in range(5)
            if torch.equal(changed[number], padded[number, :, row : row + 16, column : column + 16])
        ]
        assert len(places) == 1
        seen.add(places[0])
    assert len(seen) > 15


def test_every_epoch_and_seed_changes_images_differently() -> None:
    images = torch.rand(24, 3, 16, 16)

    def changed(epoch: int, **changes: Any) -> torch.Tensor:
        return Augmentation(config("flip-crop", **changes), 24, 16, epoch, CPU)(images, whole(24))

    assert torch.equal(changed(0), changed(0))
    assert not torch.equal(changed(0), changed(1))
    assert not torch.equal(changed(0), changed(0, seed=1))


@pytest.mark.parametrize("loader", ["resident", "dataloader"])
def test_the_same_samples_are_changed_in_the_same_way_at_any_world_size(loader: str) -> None:
    one = config("flip-crop", loader=loader, loader_workers=0)
    two = one.replace(world_size=2, batch_per_rank=12)
    ((_, (alone, _)),) = make_loader(one, RankInfo(), CPU).train(1)
    shares = [next(iter(make_loader(two, RankInfo(rank=rank, world_size=2), CPU).train(1)))[1][0] for rank in (0, 1)]
    assert torch.equal(torch.cat(shares), alone)
    plain = config("none")
    ((_, (unchanged, _)),) = make_loader(plain, RankInfo(), CPU).train(1)
    assert not torch.equal(alone, unchanged)
