"""Runs of scripts, each in a fork of a server as a rank runs it."""

from __future__ import annotations

import os
import subprocess
import textwrap
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from dmls_ray.config.identity import Identity
from dmls_ray.records.run_events import RankResult
from dmls_ray.training.child_run import run_in_child
from dmls_ray.training.process import store_at
from dmls_ray.training.rank import ArtifactOptions, RankInfo
from dmls_ray.util.fork_server import ForkServer
from dmls_ray.workloads.script.config import ScriptConfig
from dmls_ray.workloads.script.workload import ScriptWorkload

ENTRY = ScriptWorkload.entrypoint
NO_IDENTITY = Identity()

BEGIN = """
import os, sys, time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = nn.Linear(8, 4)
data = TensorDataset(torch.randn(256, 8), torch.randint(0, 4, (256,)))
loader = DataLoader(data, 16)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

def step(x, y):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()
    optimizer.step()
    return loss
"""

LOOP = """
for epoch in range(100):
    for x, y in loader:
        step(x, y)
"""


@pytest.fixture(scope="session")
def servers() -> Iterator[list[ForkServer]]:
    """Of all modules of a process, since each loads PyTorch when it starts."""
    servers = [ForkServer("dmls_ray.training.rank:preload", ENTRY) for _ in range(2)]
    yield servers
    for server in servers:
        server.close()


class Runner:
    """Runs scripts on one or two ranks."""

    def __init__(self, servers: Sequence[ForkServer], folder: Path) -> None:
        self.servers, self.folder = servers, folder
        self.number = 0
        self.late_s = 0.0
        """How much later each rank starts than the one before."""

    def ranks(self, source: str, *, world_size: int = 1, **changes: Any) -> list[RankResult]:
        """The results of the ranks."""
        script = self.folder / "train.py"
        script.write_text(textwrap.dedent(source))
        return self.run(
            ScriptConfig(
                script=os.path.relpath(script), world_size=world_size, **{"steps": 20, "seed_flag": "none", **changes}
            )
        )

    def run(self, config: ScriptConfig, identity: Identity = NO_IDENTITY) -> list[RankResult]:
        """The results of the ranks of a configuration."""
        self.number += 1
        world_size = config.world_size
        meeting = store_at("127.0.0.1")
        results: list[RankResult | None] = [None] * world_size

        def run(rank: int) -> None:
            time.sleep(rank * self.late_s)
            info = RankInfo(
                rank=rank, world_size=world_size, name=f"{self.folder}-{self.number}",
                device="cpu" if config.device == "auto" else config.device,
                store_address=("127.0.0.1", meeting.port) if world_size > 1 else None,
                artifacts=ArtifactOptions(folder=str(self.folder)), identity=identity,
            )  # fmt: skip

            def finish(result: RankResult) -> None:
                results[rank] = result

            own = run_in_child(self.servers[rank], ENTRY, config, info, info.name, lambda event: None, finish)
            if own is not None:
                results[rank] = own

        with ThreadPoolExecutor() as pool:
            list(pool.map(run, range(world_size)))
        return results  # type: ignore[return-value]

    def one(self, source: str, **changes: Any) -> RankResult:
        (result,) = self.ranks(source, **changes)
        return result

    @property
    def log(self) -> str:
        return (self.folder / "rank0.log").read_text(encoding="utf-8", errors="replace")


@pytest.fixture
def run(servers: list[ForkServer], tmp_path: Path) -> Runner:
    return Runner(servers, tmp_path)


def git(*words: str, folder: Path) -> str:
    named = ["-c", "user.name=A", "-c", "user.email=a@b.c"]
    done = subprocess.run(["git", *named, *words], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a script, a module and a file that the script reads: `old` in tag `before`, `new` in HEAD."""
    monkeypatch.setenv("DMLS_RAY_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "repository"
    folder.mkdir()
    monkeypatch.chdir(folder)
    git("init", "--quiet", folder=folder)
    script = """
    import argparse, part
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=8)
    print("READ", part.NAME, open("settings.txt").read(), open("data/numbers.txt").read(), parser.parse_args())
    """
    (folder / "train.py").write_text(textwrap.dedent(script) + BEGIN + LOOP)
    (folder / ".gitignore").write_text("data/\n")
    for name in ("old", "new"):
        (folder / "part.py").write_text(f"NAME = '{name}'\n")
        (folder / "settings.txt").write_text(name)
        git("add", ".", folder=folder)
        git("commit", "--quiet", "-m", name, folder=folder)
        if name == "old":
            git("tag", "before", folder=folder)
    (folder / "data").mkdir()
    (folder / "data" / "numbers.txt").write_text("untracked")
    return folder
