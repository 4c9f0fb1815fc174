"""Each layer imports only from the layers below it, and the public names are those that were promised."""

from __future__ import annotations

import ast
import json
import pickle
import re
import subprocess
import sys
from collections.abc import Collection, Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import dmls_ray
from dmls_ray.util import errors
from tests.conftest import PROJECT

HEAVY = ("torch", "torchvision", "ray", "pandas", "numpy", "scipy", "vl_convert", "PIL", "pyarrow")


def loaded_after(*modules: str) -> dict[str, set[str]]:
    """Import modules of dmls_ray, one after the other in one new process; return what is loaded after each of them."""
    code = (
        "import importlib, json, sys\n"
        "for name in sys.argv[2:]:\n"
        "    importlib.import_module(name)\n"
        "    print(json.dumps([name, [heavy for heavy in json.loads(sys.argv[1]) if heavy in sys.modules]]))"
    )
    names = [f"dmls_ray.{module}".removesuffix(".") for module in modules]
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(HEAVY), *names], capture_output=True, text=True, check=True
    )
    return {name: set(heavy) for name, heavy in map(json.loads, done.stdout.splitlines())}


def test_the_lowest_layers_load_no_heavy_library() -> None:
    loaded = loaded_after(
        "",
        "workloads.grayscale.config",
        "workloads.classification.config",
        "workloads.classification.models.convnet",
        "config.fields",
        "config.grid",
        "records.model",
        "util.errors",
        "util.importing",
        "training.rank",
        "storage.folder",
        "storage.remote_store",
    )
    assert len(loaded) == 12
    assert {name: heavy for name, heavy in loaded.items() if heavy} == {}


def test_analysis_loads_neither_torch_nor_ray_and_vl_convert_only_to_draw() -> None:
    never = {"torch", "torchvision", "ray", "vl_convert", "PIL"}
    modules = (
        "results", "stats.intervals", "table.build", "summary.axis_answer", "summary.sweep_summary",
        "tensorboard.writer", "compare.sweeps", "advise.rank", "published.matching",
        "table.layouts", "figures", "figures.vega", "report.render",
    )  # fmt: skip
    loaded = loaded_after(*(f"analysis.{module}" for module in modules))
    assert len(loaded) == len(modules)
    assert {name: heavy & never for name, heavy in loaded.items() if heavy & never} == {}


def test_training_and_launchers_never_load_ray() -> None:
    loaded = loaded_after(
        "training.engine",
        "workloads.user_function.rank_run",
        "workloads.grayscale.train",
        "workloads.grayscale.implementations",
        "launchers.spawn",
        "launchers.inline",
        "launchers.__main__",
    )
    assert [name for name, heavy in loaded.items() if "ray" in heavy] == []


def test_what_starts_a_sweep_loads_neither_torch_nor_ray_before_it_must() -> None:
    loaded = loaded_after(
        "cluster.scheduler.broker",
        "cluster.connect",
        "cli.sweep_script",
        "execution.run_plan",
        "workloads.classification.data.sources",
    )
    assert len(loaded) == 5
    assert {name: heavy for name, heavy in loaded.items() if heavy & {"torch", "ray"}} == {}


LAYERS = (
    {"util"},
    {"config"},
    {"records"},
    {"storage"},
    {"training"},
    {"workloads"},
    {"analysis", "launchers"},
    {"cluster"},
    {"execution"},
    {"cli"},
)
"""The packages of dmls_ray from bottom to top. A package imports only from layers below its own."""

APART = ({"training", "analysis"}, {"launchers", "cluster"})
"""Packages of different layers that do not import each other."""


def imported_by(path: Path) -> set[str]:
    """The packages of dmls_ray that a file imports, anywhere in it."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name.split(".")[1] for name in names if name.startswith("dmls_ray.")}


def imported_modules(path: Path, modules: Collection[str]) -> Iterator[str]:
    """The modules of dmls_ray that a file imports when it is loaded."""
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("dmls_ray"):
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                yield name if name in modules else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)


def test_every_package_has_a_layer_and_the_top_level_stays_small() -> None:
    entries = {path.name for path in (PROJECT / "dmls_ray").iterdir() if not path.name.startswith("__pycache__")}
    packages = {name for layer in LAYERS for name in layer}
    assert entries == packages | {"__init__.py", "__main__.py", "py.typed"}
    assert len(entries) <= 14


def test_no_package_imports_from_a_layer_above_its_own() -> None:
    level = {name: number for number, layer in enumerate(LAYERS) for name in layer}
    for name in level:
        for path in (PROJECT / "dmls_ray" / name).rglob("*.py"):
            if name == "workloads" and path.name.startswith("presentation"):
                continue  # the part of a workload above analysis, which loads it by name
            for other in imported_by(path) - {name}:
                assert not any({name, other} <= pair for pair in APART), f"{path} imports {other}"
                assert level[other] < level[name], f"{path} imports {other}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    root = PROJECT / "dmls_ray"
    modules = {}
    for path in root.rglob("*.py"):
        name = ".".join(("dmls_ray", *path.relative_to(root).with_suffix("").parts))
        modules[name.removesuffix(".__init__")] = path
    graph = {name: set(imported_modules(path, modules)) - {name} for name, path in modules.items()}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_no_code_outside_workloads_names_a_workload() -> None:
    named = [
        f"{path}:{number}"
        for path in (PROJECT / "dmls_ray").rglob("*.py")
        if "workloads" not in path.parts
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search("grayscale|is_own|turns_grey|is_of_images", line)
    ]
    assert not named


def test_the_public_names_are_pinned() -> None:
    assert sorted(dmls_ray.__all__) == [
        "DmlsRayError",
        "InputError",
        "Options",
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


@pytest.mark.parametrize("package", sorted(name for layer in LAYERS for name in layer))
def test_every_package_says_what_of_it_is_public(package: str) -> None:
    module = ast.parse((PROJECT / "dmls_ray" / package / "__init__.py").read_text())
    assert re.search(r"\b[Pp]ublic\b", ast.get_docstring(module) or "")


def test_every_error_survives_pickling_on_its_way_from_a_rank() -> None:
    kinds = [item for item in vars(errors).values() if isinstance(item, type) and issubclass(item, Exception)]
    assert len(kinds) == 18
    for kind in kinds:
        again = pickle.loads(pickle.dumps(kind("what is wrong; the way out.")))
        assert (type(again), str(again)) == (kind, "what is wrong; the way out.")
