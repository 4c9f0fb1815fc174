"""`dmls-ray same`: planted errors of a script on two ranks, and a script without."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.cli.test_sweep_command import dmls_ray

SCRIPT = """
import argparse, os
import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--accum-steps", type=int, default=1)
parser.add_argument("--error", default="none")
args = parser.parse_args()
world_size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
if world_size > 1:
    dist.init_process_group("gloo")
if args.error != "no seed":
    torch.manual_seed(0)
else:
    torch.seed()
data = torch.randn(96, 8)
labels = (data.sum(1) + torch.randn(96) > 0).long()
shards, shard = (1, 0) if args.error == "same samples" else (world_size, rank)
sampler = DistributedSampler(data, num_replicas=shards, rank=shard)
loader = DataLoader(TensorDataset(data, labels), args.batch_size, sampler=sampler)
norm = torch.nn.BatchNorm1d(32) if args.error == "norm" else torch.nn.Identity()
model = torch.nn.Sequential(torch.nn.Linear(8, 32), norm, torch.nn.ReLU(), torch.nn.Linear(32, 2))
if world_size > 1:
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(100):
    if args.error != "never" and (args.error != "epoch" or world_size == 1):
        sampler.set_epoch(epoch)
    for inputs, targets in loader:
        optimizer.zero_grad()
        size = -(-len(inputs) // args.accum_steps)
        for part, wanted in zip(inputs.split(size), targets.split(size)):
            loss = cross_entropy(model(part), wanted)
            share = 1 / args.accum_steps if args.error == "mean" else len(part) / len(inputs)
            (loss * share).backward()
        optimizer.step()
"""

RANKS = ("--world-size", "1", "2", "--batch-size", "32", "16")
PASSES = ("--accum-steps", "1", "3")
"""Three micro-batches of 6, 6 and 4 samples."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "settings", "code", "verdict", "step"),
    [
        ("none", RANKS, 0, "within rounding", None),
        ("none", PASSES, 0, "within rounding", None),
        ("mean", PASSES, 3, "different", 1),
        ("epoch", RANKS, 3, "different", 4),  # the first step of the second pass over 96 samples
        ("norm", RANKS, 3, "different", 1),
        ("same samples", RANKS, 3, "different", 1),
        ("no seed", RANKS, 4, "cannot say", 1),
        ("none", RANKS[:3], 4, "cannot say", None),  # other samples a step
        ("none", (*RANKS, "--steps", "1"), 4, "cannot say", None),
    ],
)
def test_planted_errors_are_different_from_their_first_step_on(
    tmp_path: Path, error: str, settings: Sequence[str], code: int, verdict: str, step: int | None
) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    how = ["--format", "json", "--oversubscribe", "--device", "cpu", "--steps", "20"]
    done = dmls_ray("same", "train.py", *how, *settings, "--", "--error", error, folder=tmp_path)
    assert done.returncode == code, done.stderr
    found = json.loads(done.stdout)
    assert (found["kind"], found["exit_code"]) == ("same", code)
    (compared,) = found["compared"].values()
    assert (compared["verdict"], compared["step"]) == (verdict, step)


@pytest.mark.slow
def test_a_shuffle_that_no_setting_makes_is_named_where_all_train_the_same(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    words = [*RANKS, "--oversubscribe", "--device", "cpu", "--steps", "20", "--format", "json"]
    done = dmls_ray("same", "train.py", *words, "--", "--error", "never", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    ((text, settings),) = json.loads(done.stdout)["without_effect"].items()
    assert "set_epoch" in text
    assert ("world_size=1" in settings, "world_size=2" in settings) == (True, True)


def test_a_value_of_a_flag_may_stand_in_several_settings(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    words = (
        "--world-size",
        "1",
        "2",
        "1",
        "--batch-size",
        "32",
        "16",
        "16",
        "--accum-steps",
        "1",
        "1",
        "2",
        "--dry-run",
    )
    done = dmls_ray("same", "train.py", *words, folder=tmp_path)
    planned = re.findall(r"(world_size=\d.*) repeat=0", done.stdout)
    assert sorted(planned) == [
        "world_size=1 batch_size=16 accum_steps=2",
        "world_size=1 batch_size=32 accum_steps=1",
        "world_size=2 batch_size=16 accum_steps=1",
    ]


@pytest.mark.slow
def test_a_script_that_fails_is_not_compared(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.replace("cross_entropy(model(part), wanted)", "1 / 0"))
    done = dmls_ray("same", "train.py", "--accum-steps", "1", "2", "--format", "json", folder=tmp_path)
    assert done.returncode == 1, done.stderr


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("train.py", "no flag has several values"),
        ("train.py --world-size 1 2 --batch-size 8 4 2", "--world-size has 2, --batch-size has 3 values"),
        ("train.py --world-size 1 2 1 --batch-size 8 4 8", "--world-size 1 --batch-size 8 is given twice"),
        ("train.py --batch-size max", "--batch-size max may differ"),
        ("batch_size --world-size 1 2", "batch_size is no training script"),
    ],
)
def test_wrong_words_are_refused_in_one_line(tmp_path: Path, words: str, line: str) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    done = dmls_ray("same", *words.split(), folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1
