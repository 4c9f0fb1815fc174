"""The digest of a function of a notebook: what changes it, and what does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import PROJECT

DICT = """
import numpy as np
SCALE, TABLE, NAMES = 2, np.arange(5.0), {"a", "b"}
def helper(x):
    return x * SCALE
def train(config, rank, emit):
    return {"x": helper(config["lr"]) + TABLE.sum() + len(NAMES)}
"""

DATACLASS = """
from dataclasses import dataclass, field
@dataclass
class Config:
    lr: float = 0.1
    sizes: list = field(default_factory=list)
    def __post_init__(self):
        self.doubled = 2 * self.lr
def train(config: Config, rank, emit):
    return {"x": config.doubled}
"""

CLOSURE = """
def make(rate):
    return lambda config, rank, emit: {"x": rate}
train = make(0.5)
"""

NETWORK = """
import torch
torch.manual_seed(0)
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 2)
    def forward(self, x):
        return self.layer(x)
net = Net()
def train(config, rank, emit):
    import functools
    return {"x": float(net(torch.ones(2)).sum())}
"""

HERE = """
import here_settings
from here_settings import rate
def train(config, rank, emit):
    import here_lazy
    return {"x": here_lazy.f(rate)}
"""

KERNEL = """
import os, sys
from dmls_ray.workloads.user_function.schema import config_class_of
from dmls_ray.workloads.user_function.function_digest import function_digest
names = sys.modules["__main__"].__dict__
for line in sys.stdin:
    # As IPython compiles a cell: its file name has the kernel's pid; a cell that is run again makes new objects.
    for _ in range(2):
        exec(compile(eval(line), f"/tmp/ipykernel_{os.getpid()}/1.py", "exec"), names)
        print(*function_digest(names["train"], config_class_of(names["train"], "train")), sep="; ")
"""


def digests(*cells: str, folder: Path = PROJECT) -> list[str]:
    """The digest of each cell's function in a new kernel, in which each cell runs twice."""
    done = subprocess.run(
        [sys.executable, "-c", KERNEL], input="\n".join(map(repr, cells)), capture_output=True, text=True, check=True,
        cwd=folder, env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert lines[::2] == lines[1::2], "a cell that runs again makes the same function"
    return lines[::2]


@pytest.mark.parametrize("cell", [DICT, DATACLASS, CLOSURE, NETWORK], ids=["dict", "dataclass", "closure", "network"])
def test_a_restarted_kernel_has_the_same_function(cell: str) -> None:
    first, moved = digests(cell, f"# A comment.\n\n{cell}")
    (again,) = digests(cell)
    assert first == again == moved


def test_what_a_function_does_uses_and_is_configured_by_changes_its_digest() -> None:
    changes = [
        (DICT, [('config["lr"]', 'config["rate"]'), ("SCALE, TABLE, NAMES = 2", "SCALE, TABLE, NAMES = 3"),
                ("x * SCALE", "x + SCALE"), ("arange(5.0)", "arange(6.0)"), ('{"a", "b"}', '{"a", "c"}')]),
        (DATACLASS, [("lr: float = 0.1", "lr: float = 0.2"), ("lr: float", "lr: int"), ("2 * self", "3 * self"),
                     ("default_factory=list", "default_factory=dict")]),
        (CLOSURE, [("make(0.5)", "make(0.25)")]),
        (NETWORK, [("manual_seed(0)", "manual_seed(1)"), ("self.layer(x)", "self.layer(-x)")]),
    ]  # fmt: skip
    for cell, edits in changes:
        first, *edited = digests(cell, *(cell.replace(*edit) for edit in edits))
        assert len({first, *edited}) == 1 + len(edits), cell


def test_the_users_modules_that_a_function_uses_are_named_since_their_files_have_digests(tmp_path: Path) -> None:
    (tmp_path / "here_settings.py").write_text("def rate(): return 1\n")
    (tmp_path / "here_lazy.py").write_text("def f(x): return x()\n")
    (line,) = digests(HERE, folder=tmp_path)
    assert line.endswith("; ('here_lazy', 'here_settings')")
    assert digests(DICT, folder=tmp_path)[0].endswith("; ()"), "numpy is nobody's own"
