"""Models and training functions that tests hand to ranks in other processes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from dmls_ray.records.run_events import RankResult
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.train import train_rank
from tests.run_results import returning

_built: list[nn.Module] = []


def watched(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """A small net without dropout or batch norm, remembered so that its weights can be read after training."""
    channels, height, width = shape
    model = nn.Sequential(
        nn.Conv2d(channels, 4, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(4 * height * width, classes)
    )
    _built.append(model)
    return model


def normed(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """A net with batch norm, remembered too."""
    channels, height, width = shape
    model = nn.Sequential(nn.BatchNorm2d(channels), nn.Flatten(), nn.Linear(channels * height * width, classes))
    _built.append(model)
    return model


class Calling(nn.Module):
    """A layer whose passes begin with a call, with the images and whether the model trains."""

    def __init__(self, call: Callable[[Tensor, bool], object]) -> None:
        super().__init__()
        self.call, self.linear = call, nn.Linear(64, 4)

    def forward(self, images: Tensor) -> Tensor:
        self.call(images, self.training)
        out: Tensor = self.linear(images.flatten(1))
        return out


def doubling() -> nn.Module:
    """Changes its input in place, as a first layer nn.ReLU(inplace=True) would."""
    return Calling(lambda images, trains: images.mul_(2))


class Floats(Dataset[tuple[Tensor, int]]):
    """Samples of float32; with `turned`, half of them are turned around by chance when they are asked for."""

    classes = 4

    def __init__(self, count: int, *, turned: bool = False) -> None:
        generator = torch.Generator().manual_seed(count)
        self.images, self.turned = torch.rand(count, 1, 8, 8, generator=generator), turned

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        image = self.images[index]
        return (image.flip(2) if self.turned and torch.rand(()) < 0.5 else image), index % 4


def floats(split: str) -> Floats:
    return Floats(48 if split == "train" else 16)


def turned_floats(split: str) -> Floats:
    return Floats(101 if split == "train" else 16, turned=split == "train")


def train_and_return_int8(config: TrialConfig, rank: RankInfo, emit: Emit) -> RankResult:
    """`train_rank`, with what the int8 model holds in the result."""
    from dmls_ray.workloads.classification.quantization import weights_of
    from dmls_ray.workloads.classification.train import rank_trainer

    trial = rank_trainer(config, rank)
    result = trial.run(emit)
    held = {name: value.tolist() for name, value in weights_of(trial.task.quantized.converted).items()}
    result.run.reported["returned"] = {"weights": held}
    return result


def train_and_return_weights(config: TrialConfig, rank: RankInfo, emit: Emit) -> RankResult:
    """`train_rank` on a model of this module, with its trained parameters and buffers in the result."""
    result = train_rank(config, rank, emit)
    result.run.reported["weights"] = [parameter.detach().flatten().tolist() for parameter in _built[-1].parameters()]
    result.run.reported["buffers"] = [value for buffer in _built[-1].buffers() for value in buffer.flatten().tolist()]
    return result


def train_and_return_environment(config: TrialConfig, rank: RankInfo, emit: Emit) -> RankResult:
    """The variables of torchrun's environment, in the result of each rank; nothing is trained."""
    names = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS")
    return returning({name: os.environ.get(name) for name in names})


class Exploding(nn.Module):
    """Its logits are not finite from the first pass on."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))

    def forward(self, images: Tensor) -> Tensor:
        return self.weight * images.flatten(1)[:, :4] * float("inf")


def exploding() -> nn.Module:
    return Exploding()


def is_last_rank() -> bool:
    return not torch.distributed.is_initialized() or torch.distributed.get_rank() == 1


def kill_this_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def raising() -> nn.Module:
    """Raises in its first pass of training on the last rank."""

    def fail(images: Tensor, trains: bool) -> None:
        if trains and is_last_rank():
            raise RuntimeError("a fault in the user's model")

    return Calling(fail)


def out_of_memory() -> nn.Module:
    def fail(images: Tensor, trains: bool) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 8.00 GiB")

    return Calling(fail)


def dying() -> nn.Module:
    """Kills its process in its first pass of training on the last rank."""
    return Calling(lambda images, trains: kill_this_process() if trains and is_last_rank() else None)


def dying_once() -> nn.Module:
    """Kills its rank the first time it is built in a working folder, and never again."""
    mark = Path("died-once")
    if not mark.exists() and is_last_rank():
        mark.touch()
        kill_this_process()
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 4))


class DyingInMidEpoch(nn.Module):
    """A net with dropout and batch norm whose last rank dies in the training pass that $DIE_IN_PASS names."""

    def __init__(self) -> None:
        super().__init__()
        convolution = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU())
        self.net = nn.Sequential(convolution, nn.Flatten(), nn.Dropout(0.3), nn.Linear(256, 4))
        self.passes = 0

    def forward(self, images: Tensor) -> Tensor:
        self.passes += self.training
        if is_last_rank() and self.passes == int(os.environ.get("DIE_IN_PASS", "0")):
            kill_this_process()
        out: Tensor = self.net(images)
        return out


def dying_in_mid_epoch() -> nn.Module:
    return DyingInMidEpoch()


class Masked(nn.Module):
    """Computes on pixels above 0 only, so its memory depends on what the images show."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.hidden, self.out = nn.Linear(1, 64), nn.Linear(64, classes)

    def forward(self, images: Tensor) -> Tensor:
        pixels = images.flatten(1)
        sample, place = (pixels > 0).nonzero(as_tuple=True)
        hidden = torch.relu(self.hidden(pixels[sample, place][:, None]))
        out: Tensor = self.out(torch.zeros(len(pixels), 64).index_add(0, sample, hidden))
        return out


def masked(shape: tuple[int, int, int], classes: int) -> nn.Module:
    return Masked(classes)


class Payload:
    """As a pickle, it makes a file when it is read: what a hostile one would do."""

    def __init__(self, marker: Path) -> None:
        self._marker = marker

    def __reduce__(self) -> Any:
        return Path.touch, (self._marker,)


def late() -> nn.Module:
    """Computes 100 ms longer on rank 1."""
    _built.append(Calling(lambda images, trains: time.sleep(0.1) if trains and is_last_rank() else None))
    return _built[-1]


def report_start(config: TrialConfig, rank: RankInfo, emit: Emit) -> RankResult:
    """What a run's clock has in it when the training function is called, and what the process did before it began."""
    process_s = time.time() - psutil.Process().create_time()
    called_s = rank.clock.total_s
    return returning({"called_s": called_s, "loading_s": process_s - called_s})


def leave_mark_and_wait(config: TrialConfig, rank: RankInfo, emit: Emit) -> RankResult:
    """Leave a file with the pid as its name, and wait to be killed."""
    Path(os.environ["MARKS"], str(os.getpid())).touch()
    time.sleep(600)
    return {}
