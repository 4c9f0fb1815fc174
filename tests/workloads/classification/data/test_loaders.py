from __future__ import annotations

import subprocess
import sys
from typing import Any

import psutil
import pytest
import torch
from torch import Tensor

from dmls_ray.training.rank import RankInfo
from dmls_ray.training.sharding import MicroBatch
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.data.loaders import Augmentation, make_loader, normalize
from tests.conftest import PROJECT

CPU = torch.device("cpu")
DATA = "synthetic:shape=3x6x5,classes=3,train=23,test=11"


def config(**changes: Any) -> TrialConfig:
    return TrialConfig(**{"batch_per_rank": 4, "dataset": DATA, **changes})


def test_uint8_is_scaled_to_one_then_normalised_with_mean_and_deviation_one_half() -> None:
    assert normalize(torch.tensor([0, 51, 255], dtype=torch.uint8)).tolist() == pytest.approx([-1.0, -0.6, 1.0])
    already = torch.tensor([0.3])
    assert normalize(already) is already


@pytest.mark.parametrize("world_size", [1, 3])
@pytest.mark.parametrize("workers", [0, 1])
def test_both_loaders_give_the_same_batches(world_size: int, workers: int) -> None:
    for number in range(world_size):
        rank = RankInfo(rank=number, world_size=world_size)
        resident = make_loader(config(world_size=world_size), rank, CPU)
        ordinary = make_loader(config(world_size=world_size, loader="dataloader", loader_workers=workers), rank, CPU)
        assert (resident.shape, resident.classes) == (ordinary.shape, ordinary.classes) == ((3, 6, 5), 3)
        for epoch in range(2):
            pairs = list(zip(resident.train(epoch), ordinary.train(epoch), strict=True))
            assert len(pairs) == -(-23 // (4 * world_size))
            for (one, (images, labels)), (other, (same_images, same_labels)) in pairs:
                assert one == other
                assert torch.equal(images, same_images)
                assert torch.equal(labels, same_labels)
        for (images, labels), (same_images, same_labels) in zip(
            resident.evaluation(), ordinary.evaluation(), strict=True
        ):
            assert torch.equal(images, same_images)
            assert torch.equal(labels, same_labels)
        resident.close()
        ordinary.close()


@pytest.mark.parametrize("loader", ["resident", "dataloader"])
def test_a_subset_has_the_same_samples_of_each_class_for_every_seed(loader: str) -> None:
    def samples(seed: int, count: int | None) -> tuple[Tensor, Tensor]:
        given = config(train_samples=count, seed=seed, shuffle=False, loader=loader, loader_workers=0)
        made = make_loader(given, RankInfo(), CPU)
        batches = [batch for _, batch in made.train(0)]
        assert made.train_samples == (count or 23)
        made.close()
        return torch.cat([images for images, _ in batches]), torch.cat([labels for _, labels in batches])

    images, labels = samples(0, 12)
    again, _ = samples(1, 12)
    assert torch.equal(images, again)
    assert labels.bincount().tolist() == [4, 4, 4]
    every, _ = samples(0, None)
    assert all(any(torch.equal(image, known) for known in every) for image in images)


RANK = """
import time
import torch
from dmls_ray.training.rank import RankInfo
from tests.workloads.classification.data.test_loaders import config, make_loader
if __name__ == "__main__":
    loader = make_loader(config(loader="dataloader", loader_workers=2), RankInfo(), torch.device("cpu"))
    next(loader.train(0))
    print("ready", flush=True)
    time.sleep(600)
"""


def test_loader_workers_end_when_their_rank_is_killed() -> None:
    rank = subprocess.Popen([sys.executable, "-c", RANK], cwd=PROJECT, stdout=subprocess.PIPE, text=True)
    with rank.stdout:
        assert rank.stdout.readline() == "ready\n"
        started = psutil.Process(rank.pid).children(recursive=True)
        rank.kill()
        rank.wait()
    # Two loaders of two workers, the process that they are forked off, and Python's resource tracker.
    assert len(started) >= 4
    _, left = psutil.wait_procs(started, timeout=60)
    for process in left:
        process.kill()
    assert not left


def test_a_rank_without_test_samples_has_no_test_batches() -> None:
    few = config(world_size=3, dataset="synthetic:shape=1x8x8,train=8,test=2", loader="dataloader", loader_workers=0)
    loader = make_loader(few, RankInfo(rank=2, world_size=3), CPU)
    assert list(loader.evaluation()) == []


def test_images_are_resized_on_request_in_both_loaders() -> None:
    for kind in ("resident", "dataloader"):
        loader = make_loader(config(image_size=12, loader=kind, loader_workers=0), RankInfo(), CPU)
        assert loader.shape == (3, 12, 12)
        assert next(iter(loader.evaluation()))[0].shape == (4, 3, 12, 12)


@pytest.mark.parametrize(("accum_steps", "counted_from"), [(1, 2), (2, 2)])
def test_the_images_of_counted_steps_are_made_in_counted_steps(
    accum_steps: int, counted_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All images of an epoch would fit into one group, which the first step of the warm-up would make."""
    made: list[int] = []
    monkeypatch.setattr(
        "dmls_ray.workloads.classification.data.loaders.normalize",
        lambda images: made.append(len(images)) or normalize(images),
    )
    trial = config(warmup_steps=counted_from // accum_steps, accum_steps=accum_steps, epochs=2)
    loader = make_loader(trial, RankInfo(), CPU)
    for epoch, before in enumerate((counted_from, 0)):
        made.clear()
        for number, (_, (images, _)) in enumerate(loader.train(epoch)):
            assert sum(made) == (4 * before if number < before else 23)
            assert len(images) in (4, 3)


SQUARE = "synthetic:shape=3x16x16,classes=4,train=24,test=8"


def augmented(augmentation: str, **changes: Any) -> TrialConfig:
    return config(**{"batch_per_rank": 24, "dataset": SQUARE, "augmentation": augmentation, **changes})


def whole(count: int) -> MicroBatch:
    return MicroBatch(start=0, stop=count, count=count, scale=1.0, ends_step=True)


def test_a_flip_mirrors_about_half_of_the_images_and_leaves_the_others() -> None:
    images = torch.rand(200, 1, 4, 4)
    changed = Augmentation(augmented("flip"), 200, 4, 0, CPU)(images, whole(200))
    mirrored = [torch.equal(one, other.flip(2)) for one, other in zip(changed, images, strict=True)]
    same = [torch.equal(one, other) for one, other in zip(changed, images, strict=True)]
    assert all(one != other for one, other in zip(mirrored, same, strict=True))
    assert 60 < sum(mirrored) < 140


def test_a_crop_is_a_window_of_the_padded_image_and_moves_by_an_eighth_at_most() -> None:
    images = torch.rand(100, 2, 16, 16)
    changed = Augmentation(augmented("crop"), 100, 16, 0, CPU)(images, whole(100))
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
        return Augmentation(augmented("flip-crop", **changes), 24, 16, epoch, CPU)(images, whole(24))

    assert torch.equal(changed(0), changed(0))
    assert not torch.equal(changed(0), changed(1))
    assert not torch.equal(changed(0), changed(0, seed=1))


@pytest.mark.parametrize("loader", ["resident", "dataloader"])
def test_the_same_samples_are_changed_in_the_same_way_at_any_world_size(loader: str) -> None:
    one = augmented("flip-crop", loader=loader, loader_workers=0)
    two = one.replace(world_size=2, batch_per_rank=12)
    ((_, (alone, _)),) = make_loader(one, RankInfo(), CPU).train(1)
    shares = [next(iter(make_loader(two, RankInfo(rank=rank, world_size=2), CPU).train(1)))[1][0] for rank in (0, 1)]
    assert torch.equal(torch.cat(shares), alone)
    plain = augmented("none")
    ((_, (unchanged, _)),) = make_loader(plain, RankInfo(), CPU).train(1)
    assert not torch.equal(alone, unchanged)
