"""Images per second of training: the reports' loop, dmls_ray, the bare limit and other trainers, in one process.

    plain        the reports' loop: PIL, ToTensor and Normalize in a DataLoader with 2 workers, .item() every step
    dataloader   dmls_ray with --loader dataloader
    resident     dmls_ray with --loader resident
    bare         the limit: forward, backward and fused step on tensors in memory, and nothing else
    accelerate, lightning    the same model under Hugging Face accelerate and under Lightning, where they are installed

All train the same model on the same images (scikit-learn's digits as JPEGs of the model's size, or --images FOLDER, an
image folder) with Adam and one thread per rank. Each round runs all ways one after the other, in a rotating order;
ratios are taken within a round. The output has medians over rounds, with the smallest and the largest ratio.
"""

from __future__ import annotations

import argparse
import functools
import gc
import io
import itertools
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import torch.distributed as dist
import torch.nn.functional as F
from PIL import Image
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from dmls_ray.launchers.base import rank_info
from dmls_ray.launchers.spawn import run_spawned
from dmls_ray.records.provenance import describe_machine, describe_versions
from dmls_ray.training.memory import release_free_pages
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.data.loaders import make_loader
from dmls_ray.workloads.classification.model_builder import find_model
from dmls_ray.workloads.classification.train import rank_trainer

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
            "dataset": "throughput:pictures",
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


# --- ways ---------------------------------------------------------------------------------------------------------


def _model(config: TrialConfig, rank: RankInfo) -> nn.Module:
    torch.manual_seed(0)
    model = find_model(config.model)(SHAPES[config.model], 10).to(rank.device)
    return DistributedDataParallel(model) if rank.world_size > 1 else model


def plain(config: TrialConfig, rank: RankInfo) -> float:
    """Seconds of the reports' loop over this rank's share."""
    assert config.data_dir is not None
    transform = transforms.Compose([transforms.ToTensor(), transforms.Normalize([0.5], [0.5])])
    data = _Transformed(pictures("train", config.data_dir), transform)
    sampler: Any = torch.utils.data.DistributedSampler(data, rank.world_size, rank.rank, shuffle=False)
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


class _Transformed(Dataset[Any]):
    def __init__(self, data: Pictures, transform: Callable[[Image.Image], torch.Tensor]) -> None:
        self._data, self._transform = data, transform

    def __len__(self) -> int:
        return len(self._data)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        image, label = self._data[index]
        return self._transform(image), label


def ours(config: TrialConfig, rank: RankInfo, loader: str) -> float:
    """Seconds of the training steps of our loop; the clock is the one of the records."""
    trial = rank_trainer(config.replace(loader=loader, warmup_steps=0), rank)
    try:
        if loader == "dataloader":
            next(iter(trial.task.loader.train(0)))  # its workers are there before the clock runs
        trial.run(lambda event: None)
    finally:
        trial.task.loader.close()
    return trial.epochs[0].train_s or 0.0


def bare(config: TrialConfig, rank: RankInfo) -> float:
    """Seconds of nothing but the arithmetic, under DDP where there are several ranks."""
    device = torch.device(rank.device)
    loader = make_loader(config.replace(shuffle=False), rank, device)
    batches = [(images.clone(), labels.clone()) for _, (images, labels) in loader.train(0)]
    model = _model(config, rank)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, fused=True)
    _barrier(rank)
    began = time.perf_counter()
    for images, labels in batches:
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    if device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def _tensors(config: TrialConfig, rank: RankInfo) -> DataLoader[Any]:
    loader = make_loader(config.replace(shuffle=False, world_size=1), RankInfo(device="cpu"), torch.device("cpu"))
    batches = [batch for _, batch in loader.train(0)]
    data = torch.utils.data.TensorDataset(*(torch.cat(part) for part in zip(*batches, strict=True)))
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
    import logging

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


# --- rounds -------------------------------------------------------------------------------------------------------


def rounds(config: TrialConfig, rank: RankInfo, emit: Emit, *, count: int, ways: list[str]) -> dict[str, Any]:
    """A training function: all ways, round by round; returns the seconds of each."""
    torch.set_num_threads(config.threads_per_rank)
    # A spawned process would spawn its loader workers as well, which takes seconds and measures nothing; forked off a
    # process with threads, they may hang.
    multiprocessing.set_start_method("forkserver", force=True)
    multiprocessing.set_forkserver_preload(["torch", "torchvision"])
    seconds_by_way: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(count + 1):
        turn = number % len(ways)
        for name in ways[turn:] + ways[:turn]:
            # No way pays for what another left, or gets it for nothing: a run begins with its free pages given back.
            gc.collect()
            release_free_pages()
            seconds = (WAYS | PEERS)[name](config, rank)
            if number:  # the first round warms up
                seconds_by_way[name].append(seconds)
    return {"run": {"returned": {"seconds": seconds_by_way}}}


def measure(config: TrialConfig, count: int, ways: list[str]) -> dict[str, list[float]]:
    """Seconds by way and round; of several ranks, the slowest."""
    ranks = run_spawned(config, train=functools.partial(rounds, count=count, ways=ways))
    for result in ranks:
        if result.outcome != "ok":
            raise SystemExit(result.traceback)
    return {
        name: [max(values) for values in zip(*(rank.run["returned"]["seconds"][name] for rank in ranks), strict=True)]
        for name in ways
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7, help="rounds that count (default: 7)")
    parser.add_argument("--models", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--batches", nargs="+", type=int, default=[32, 256])
    parser.add_argument("--world-sizes", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--ways", nargs="+", choices=[*WAYS, *PEERS], help="only these ways (default: all there are)")
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--precision", default="fp32", help="of ours and of the configuration (default: fp32)")
    parser.add_argument("--memory-format", default="contiguous")
    parser.add_argument("--images", help="image folder to take the pictures from (default: scikit-learn's digits)")
    parser.add_argument("--scale", type=int, default=1, help="times as many images a round (default: 1)")
    args = parser.parse_args()
    peers = [name for name in PEERS if _installed(name)]
    rows = []
    with tempfile.TemporaryDirectory() as cache:
        os.environ.setdefault("DMLS_RAY_CACHE", cache)
        for model, batch, world_size in itertools.product(args.models, args.batches, args.world_sizes):
            config = settings(model, batch, world_size, args)
            rank_info(config, 0)  # enough devices, or one clear line
            ways = [name for name in [*WAYS, *(peers if world_size == 1 else [])] if name in (args.ways or [name])]
            seconds = measure(config, args.rounds, ways)
            rows.append(_row(config, seconds, IMAGES[model] * args.scale))
            print(f"{model}, batch {batch}, world size {world_size}: done", flush=True)
    machine, versions = describe_machine(), describe_versions()
    print(pd.DataFrame(rows).fillna("").to_markdown(index=False, disable_numparse=True))
    print(
        f"\n{machine['cpu']}, {machine['cores']} cores, {', '.join(machine['gpus']) or 'no GPU'}; "
        f"torch {versions['torch']}; {args.precision}, {args.memory_format}; n={args.rounds}, 1 thread a rank"
    )


def _row(config: TrialConfig, seconds: dict[str, list[float]], images: int) -> dict[str, str]:
    row = {"model": config.model, "batch_per_rank": str(config.batch_per_rank), "world_size": str(config.world_size)}
    for name, values in seconds.items():
        row[f"{name} images/s"] = f"{images / statistics.median(values):,.0f}"
    for one, other in (("resident", "bare"), ("resident", "plain"), ("dataloader", "plain"), ("resident", "accelerate"),
                       ("resident", "lightning")):  # fmt: skip
        if one in seconds and other in seconds:
            ratios = [b / a for a, b in zip(seconds[one], seconds[other], strict=True)]
            row[f"{one} / {other}"] = f"{statistics.median(ratios):.2f} [{min(ratios):.2f}, {max(ratios):.2f}]"
    return row


def _installed(name: str) -> bool:
    import importlib.util

    return importlib.util.find_spec(name) is not None


if __name__ == "__main__":
    main()
