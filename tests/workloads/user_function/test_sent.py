"""The digest of a function of a notebook: what changes it, and what does not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dmls_ray.workloads.user_function.sent import function_digest
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
from dmls_ray.workloads.user_function.sent import function_digest
names = sys.modules["__main__"].__dict__
for line in sys.stdin:
    # As IPython compiles a cell: its file name has the kernel's pid; a cell that is run again makes new objects.
    for _ in range(2):
        exec(compile(eval(line), f"/tmp/ipykernel_{os.getpid()}/1.py", "exec"), names)
        print(*function_digest(names["train"], config_class_of(names["train"], "train")), sep="; ", flush=True)
"""

Digests = Callable[..., list[str]]
"""Returns the digest of each cell's function."""


@contextmanager
def new_kernel(folder: Path = PROJECT) -> Iterator[Digests]:
    """A kernel in a new interpreter, in which each cell runs twice."""
    process = subprocess.Popen(
        [sys.executable, "-c", KERNEL], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        cwd=folder, env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )  # fmt: skip
    with process:
        stdin, stdout = process.stdin, process.stdout

        def digests(*cells: str) -> list[str]:
            found = []
            for cell in cells:
                print(repr(cell), file=stdin, flush=True)
                first, again = stdout.readline(), stdout.readline()
                assert first == again != "", "a cell that runs again makes the same function"
                found.append(first.rstrip("\n"))
            return found

        yield digests


@pytest.fixture(scope="module")
def digests() -> Iterator[Digests]:
    """A kernel of all tests, which loads PyTorch once."""
    with new_kernel() as of_cells:
        yield of_cells


def test_a_restarted_kernel_has_the_same_functions(digests: Digests) -> None:
    cells = [DICT, DATACLASS, CLOSURE, NETWORK, METHODS]
    both = digests(*cells, *(f"# A comment.\n\n{cell}" for cell in cells))
    first, moved = both[: len(cells)], both[len(cells) :]
    assert len(set(first)) == len(cells)
    with new_kernel() as after_restart:
        assert first == after_restart(*cells) == moved


def test_what_a_function_does_uses_and_is_configured_by_changes_its_digest(digests: Digests) -> None:
    changes = [
        (DICT, [('config["lr"]', 'config["rate"]'), ("SCALE, TABLE, NAMES = 2", "SCALE, TABLE, NAMES = 3"),
                ("x * SCALE", "x + SCALE"), ("arange(5.0)", "arange(6.0)"), ('{"a", "b"}', '{"a", "c"}')]),
        (DATACLASS, [("lr: float = 0.1", "lr: float = 0.2"), ("lr: float", "lr: int"), ("2 * self", "3 * self"),
                     ("default_factory=list", "default_factory=dict")]),
        (CLOSURE, [("make(0.5)", "make(0.25)")]),
        (NETWORK, [("manual_seed(0)", "manual_seed(1)"), ("self.layer(x)", "self.layer(-x)")]),
    ]  # fmt: skip
    cells = [changed for cell, edits in changes for changed in (cell, *(cell.replace(*edit) for edit in edits))]
    assert len({*digests(*cells)}) == len({*cells}) == len(cells)


def test_the_users_modules_that_a_function_uses_are_named_since_their_files_have_digests(tmp_path: Path) -> None:
    (tmp_path / "here_settings.py").write_text("def rate(): return 1\n")
    (tmp_path / "here_lazy.py").write_text("def f(x): return x()\n")
    with new_kernel(tmp_path) as digests:
        here, library = digests(HERE, DICT)
    assert here.endswith("; ('here_lazy', 'here_settings')")
    assert library.endswith("; ()"), "numpy is no code of the user"


METHODS = """
import functools, torch
class Steps:
    @staticmethod
    def first(x): return x + 1
    @classmethod
    def second(cls, x): return x + 2
    @property
    def third(self): return 3
class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x): return x * 4
    @staticmethod
    def backward(ctx, gradient): return gradient
@functools.cache
def cached(x): return x - 5
CHOICES = [lambda x: x + 6, lambda x: x - 7]
W = torch.zeros(8)
def train(config, rank, emit):
    return {"x": cached(Steps.first(1) + Scaled.apply(W).sum()), "choices": CHOICES}
"""


def test_code_in_static_methods_properties_caches_autograd_functions_and_sets_counts(digests: Digests) -> None:
    edits = [("x + 1", "x + 9"), ("x + 2", "x + 9"), ("return 3", "return 9"), ("x * 4", "x * 9"), ("x - 5", "x - 9"),
             ("x + 6", "x + 9"), ("x - 7", "x - 9"), ("zeros(8)", "ones(8)")]  # fmt: skip
    assert len({*digests(METHODS, *(METHODS.replace(*edit) for edit in edits))}) == 1 + len(edits)


def test_a_global_that_has_the_name_of_an_attribute_does_not_count(digests: Digests) -> None:
    cell = "data = {}\ndef train(config, rank, emit):\n    return {{'x': config.data}}\n"
    assert len(set(digests(cell.format(1), cell.format(2)))) == 1


def test_docstrings_and_comments_do_not_count(digests: Digests) -> None:
    cell = "def train(config, rank, emit):\n    return {'x': 1}\n"
    documented = cell.replace("\n    return", '\n    """It trains."""\n    # A comment.\n    return')
    assert len(set(digests(cell, documented))) == 1


def test_values_that_cannot_be_read_count_by_their_type_with_a_warning(digests: Digests) -> None:
    cell = """
import ctypes, threading, torch
class Raises:
    def __getattr__(self, name): raise RuntimeError(name)
class Answers:
    def __getattr__(self, name): return self
    def __call__(self, *given, **options): return self
VALUES = [Raises(), Answers(), torch.eye(2).to_sparse(), threading.Lock(), ctypes.pointer(ctypes.c_int(3))]
def train(config, rank, emit):
    return {"x": len(VALUES)}
"""
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(cell, names)
    with pytest.warns(UserWarning, match=r"train uses values of which a change is not noticed \(LP_c_int, Tensor, "):
        function_digest(names["train"])
    first, edited = digests(cell, cell.replace("len(VALUES)", "1 + len(VALUES)"))
    assert first != edited
