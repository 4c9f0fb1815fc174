"""Each floor imports only what it may, and the public names are those that were promised."""

from __future__ import annotations

import ast
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

import dmls_ray
from dmls_ray import errors
from tests.conftest import PROJECT

HEAVY = ("torch", "torchvision", "ray", "pandas", "numpy", "scipy", "matplotlib", "plotly", "PIL", "pyarrow")


def loaded_by(module: str) -> set[str]:
    code = f"import sys, {module}; print(*[name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "module",
    [
        "",
        ".grayscale.config",
        ".config",
        ".fields",
        ".record",
        ".errors",
        ".rank",
        ".plan",
        ".store",
        ".remote",
        ".importing",
    ],
)
def test_the_ground_floors_load_no_heavy_library(module: str) -> None:
    assert loaded_by(f"dmls_ray{module}") == set()


@pytest.mark.parametrize(
    "module",
    [
        "frames", "stats", "tables", "answer", "reading", "events", "tensorboard", "compare", "advise", "published",
        "layouts", "figures", "figures.static", "figures.interactive", "report.make",
    ],
)  # fmt: skip
def test_analysis_loads_neither_torch_nor_ray_and_matplotlib_only_to_draw(module: str) -> None:
    never = {"torch", "torchvision", "ray", "matplotlib", "plotly", "PIL"}
    assert not loaded_by(f"dmls_ray.analysis.{module}") & never


def test_training_and_launchers_never_load_ray() -> None:
    # All in one process: loading PyTorch is most of it.
    modules = (
        "training.loop",
        "training.own",
        "grayscale.trial",
        "grayscale.implementations",
        "launch.spawn",
        "launch.inline",
        "launch.__main__",
    )
    assert "ray" not in loaded_by(", ".join(f"dmls_ray.{module}" for module in modules))


@pytest.mark.parametrize("module", ["cluster.broker", "cluster.connect", "cli", "runner", "training.data.sources"])
def test_what_starts_a_sweep_loads_neither_torch_nor_ray_before_it_must(module: str) -> None:
    assert not loaded_by(f"dmls_ray.{module}") & {"torch", "ray"}


LEVELS = {
    **dict.fromkeys(
        (
            "errors",
            "fields",
            "placement",
            "schema",
            "config",
            "own",
            "rank",
            "record",
            "shape",
            "harmless",
            "importing",
            "machine",
        ),
        0,
    ),
    **dict.fromkeys(("objects", "plan", "space", "store", "mirror", "remote"), 1),
    **dict.fromkeys(("training", "grayscale", "analysis"), 2),
    **dict.fromkeys(("launch", "cluster", "estimate"), 3),
    **dict.fromkeys(
        (
            "live",
            "board",
            "options",
            "preparation",
            "jobs",
            "searching",
            "execution",
            "runner",
            "arguments",
            "terminal",
            "cli",
            "commands",
            "__init__",
            "__main__",
        ),
        4,
    ),
}
"""Every module or package of dmls_ray, and the floor it stands on."""

APART = ({"training", "analysis"}, {"grayscale", "analysis"}, {"launch", "cluster"})
"""Neighbours on one floor that do not know each other."""


def imported_by(path: Path) -> set[str]:
    """The modules or packages of dmls_ray that a file imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("dmls_ray.")}


def test_no_module_imports_from_a_floor_above_its_own() -> None:
    root = PROJECT / "dmls_ray"
    for path in root.rglob("*.py"):
        own = path.relative_to(root).parts[0].removesuffix(".py")
        for other in imported_by(path) - {own}:
            assert LEVELS[other] <= LEVELS[own], f"{path.relative_to(root)} imports {other}"
            assert not any({own, other} <= pair for pair in APART), f"{path.relative_to(root)} imports {other}"


def test_the_public_names_are_pinned() -> None:
    assert sorted(dmls_ray.__all__) == [
        "DmlsRayError",
        "InputError",
        "Outcome",
        "Range",
        "RankInfo",
        "Results",
        "RunRecord",
        "TrialConfig",
        "load",
        "make_plan",
        "sweep",
    ]
    assert all(getattr(dmls_ray, name) is not None for name in dmls_ray.__all__)


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'sweeps'"):
        _ = dmls_ray.sweeps


def test_every_error_survives_pickling_on_its_way_from_a_rank() -> None:
    kinds = [item for item in vars(errors).values() if isinstance(item, type) and issubclass(item, Exception)]
    assert len(kinds) == 15
    for kind in kinds:
        again = pickle.loads(pickle.dumps(kind("what is wrong; the way out.")))
        assert (type(again), str(again)) == (kind, "what is wrong; the way out.")
