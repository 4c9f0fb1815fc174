"""The ways to train that `throughput.py` compares: each returns the seconds of its training steps."""

from __future__ import annotations

import functools
import io
import itertools
import logging
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from PIL import Image
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler, TensorDataset
from torchvision import transforms

from dmls_ray.training.marks import elapsed_ms, marker, synchronize
from dmls_ray.training.precision import autocast, make_scaler, set_tf32
from dmls_ray.training.rank import RankInfo
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.data.loaders import make_loader
from dmls_ray.workloads.classification.model_builder import find_model
from dmls_ray.workloads.classification.train import rank_trainer

SHAPES = {"mnist_convnet": (1, 28, 28), "convnet": (3, 32, 32)}
IMAGES = {"mnist_convnet": 4096, "convnet": 512}
"""Images that one way trains on in one round, all ranks together."""


class Pictures(Dataset[tuple[Any, int]]):
    """JPEGs in memory, decoded when they are asked for."""

    classes = 10

    def __init__(self, files: list[bytes], labels: list[int], transform: Callable[[Image.Image], Any]) -> None:
        self._files, self._labels, self._transform = files, labels, transform

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return self._transform(Image.open(io.BytesIO(self._files[index]))), self._labels[index]


@functools.cache
def pictures(split: str, data_dir: str, transform: Callable[[Image.Image], Any] = lambda image: image) -> Pictures:
    """scikit-learn's digits as JPEGs of the size of a model, whose name is `data_dir`."""
    channels, height, width = SHAPES[data_dir]
    digits = load_digits()
    count = IMAGES[data_dir] if split == "train" else 32
    files, labels = [], []
    for pixels, label in itertools.islice(itertools.cycle(zip(digits.images, digits.target, strict=True)), count):
        image = Image.fromarray((pixels * 15.9).astype("uint8"))
        buffer = io.BytesIO()
        image.convert("L" if channels == 1 else "RGB").resize((width, height)).save(buffer, "JPEG", quality=90)
        files.append(buffer.getvalue())
        labels.append(int(label))
    return Pictures(files, labels, transform)


def _model(config: TrialConfig, rank: RankInfo) -> nn.Module:
    torch.manual_seed(0)
    model = find_model(config.model)(SHAPES[config.model], 10).to(rank.device)
    return DistributedDataParallel(model) if rank.world_size > 1 else model


def plain(config: TrialConfig, rank: RankInfo) -> float:
    """Seconds of the reports' loop over this rank's share."""
    assert config.data_dir is not None
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize([0.5], [0.5])])
    data = pictures("train", config.data_dir, transform)
    sampler: Any = DistributedSampler(data, rank.world_size, rank.rank, shuffle=False)
    loader = DataLoader(data, config.batch_per_rank, sampler=sampler, num_workers=2, persistent_workers=True)
    model = _model(config, rank)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    next(iter(loader))  # the workers are there before the clock runs
    _barrier(rank)
    began = time.perf_counter()
    total_loss, correct = 0.0, 0
    for images, labels in loader:
        images, labels = images.to(rank.device), labels.to(rank.device)
        optimizer.zero_grad()
        outputs = model(images)
        loss = criterion(outputs, labels)
        loss.backward()
        optimizer.step()
        total_loss += loss.item()
        correct += (outputs.argmax(1) == labels).sum().item()
    return time.perf_counter() - began


def ours(config: TrialConfig, rank: RankInfo, loader: str) -> float:
    """Seconds of the training steps of our loop; the clock is the one of the records."""
    trial = rank_trainer(config.replace(loader=loader, warmup_steps=0), rank)
    try:
        if loader == "dataloader":
            next(iter(trial.task.loader.train(0)))  # its workers are there before the clock runs
        trial.run(lambda event: None)
    finally:
        trial.task.loader.close()
    return trial.epochs[0].metrics["train_s"] or 0.0


def bare(config: TrialConfig, rank: RankInfo) -> float:
    """Seconds of nothing but the arithmetic, under DDP where there are several ranks; on a GPU by its events."""
    device = torch.device(rank.device)
    set_tf32(config.precision == "tf32")
    loader = make_loader(config.replace(shuffle=False), rank, device)
    batches = [(images.clone(), labels.clone()) for _, (images, labels) in loader.train(0)]
    model = _model(config, rank)
    if config.compile != "off":
        model.compile(mode=config.compile, dynamic=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    scaler = make_scaler(config, device)

    def step(images: torch.Tensor, labels: torch.Tensor) -> None:
        with autocast(config, device):
            loss = F.cross_entropy(model(images), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)

    if config.compile != "off":
        step(*batches[0])
    _barrier(rank)
    mark = marker(device)
    began = mark()
    for batch in batches:
        step(*batch)
    ended = mark()
    synchronize(device)
    return elapsed_ms(began, ended) / 1e3


def _tensors(config: TrialConfig, rank: RankInfo) -> DataLoader[Any]:
    loader = make_loader(config.replace(shuffle=False, world_size=1), RankInfo(device="cpu"), torch.device("cpu"))
    batches = [batch for _, batch in loader.train(0)]
    data = TensorDataset(*(torch.cat(part) for part in zip(*batches, strict=True)))
    return DataLoader(data, batch_size=config.batch_per_rank)


def accelerate(config: TrialConfig, rank: RankInfo) -> float:
    """Seconds of the loop of accelerate's documentation, on tensors in memory."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=rank.device == "cpu")
    model = find_model(config.model)(SHAPES[config.model], 10)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, _tensors(config, rank))
    began = time.perf_counter()
    for images, labels in loader:
        optimizer.zero_grad()
        accelerator.backward(F.cross_entropy(model(images), labels))
        optimizer.step()
    if rank.device != "cpu":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def lightning(config: TrialConfig, rank: RankInfo) -> float:
    """Seconds of Lightning's training loop, without its logger, bar and checkpoints, on tensors in memory."""
    import lightning as L

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)

    class Module(L.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = find_model(config.model)(SHAPES[config.model], 10)

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            images, labels = batch
            return F.cross_entropy(self.net(images), labels)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=1e-3, fused=True)

        def on_train_epoch_start(self) -> None:
            self.began = time.perf_counter()

        def on_train_epoch_end(self) -> None:
            self.seconds = time.perf_counter() - self.began

    module = Module()
    L.Trainer(
        max_epochs=1,
        accelerator="cpu" if rank.device == "cpu" else "gpu",
        devices=1,
        logger=False,
        enable_progress_bar=False,
        enable_checkpointing=False,
        enable_model_summary=False,
    ).fit(module, _tensors(config, rank))
    return module.seconds


WAYS: dict[str, Callable[[TrialConfig, RankInfo], float]] = {
    "plain": plain,
    "dataloader": functools.partial(ours, loader="dataloader"),
    "resident": functools.partial(ours, loader="resident"),
    "bare": bare,
}
PEERS: dict[str, Callable[[TrialConfig, RankInfo], float]] = {"accelerate": accelerate, "lightning": lightning}


def _barrier(rank: RankInfo) -> None:
    if rank.world_size > 1:
        dist.barrier()
