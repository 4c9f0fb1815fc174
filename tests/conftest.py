"""What tests share: a cache of their own, and sweeps run as a user runs them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

# A loaded machine with two cores is slow, and speed is not what these tests are about.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

PROJECT = Path(__file__).parents[1]
SMALL = "synthetic:shape=1x8x8,classes=4,train=96,test=40"
"""A data set on which an epoch takes milliseconds."""


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Decoded images and downloads of the tests, apart from the user's."""
    folder = tmp_path_factory.mktemp("cache")
    os.environ["DMLS_RAY_CACHE"] = str(folder)
    # A cluster that happens to run here is not ours to test on.
    os.environ.pop("RAY_ADDRESS", None)
    return folder


Command = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def sweep_command(tmp_path: Path) -> Command:
    """Runs a sweep script in an empty folder, as from a shell, and returns when it has ended."""

    def run(script: str, *flags: str, timeout: float = 150) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command_line(script, *flags), cwd=tmp_path, capture_output=True, text=True, timeout=timeout, check=False
        )

    return run


def command_line(script: str, *flags: str) -> list[str]:
    """The words of a sweep's command."""
    return [sys.executable, str(PROJECT / "sweeps" / f"{script}.py"), *flags]


def readme_example() -> str:
    """The language model of the README, as its reader would save it."""
    blocks = (PROJECT / "README.md").read_text().split("```python\n")
    (example,) = (block.partition("```")[0] for block in blocks if "class CharLM" in block)
    return example
