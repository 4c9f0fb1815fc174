"""Each layer imports only from the layers below it, and the public names are those that were promised."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import dmls_ray
from tests.conftest import PROJECT

ROOT = PROJECT / "dmls_ray"
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

ANALYSIS = (
    "results", "prices", "stats", "metrics", "trials", "findings", "words_on_pairs", "json_objects", "words",
    "words_on_training", "words_on_replacement", "words_on_machines", "table", "advise", "compare", "summary",
    "figures", "workloads", "report", "export", "tensorboard", "sweep_results",
)  # fmt: skip
"""The parts of analysis from bottom to top. A part imports only from those below its own."""

MODULES = {".".join(path.relative_to(PROJECT).with_suffix("").parts): path for path in ROOT.rglob("*.py")}
"""Path of each module by its name, which ends in `__init__` for a package."""


def imports(path: Path, *, at_top: bool) -> Iterator[str]:
    """The modules of dmls_ray that a file imports: at its top, when it is loaded, or anywhere in it."""
    tree = ast.parse(path.read_text())
    for node in tree.body if at_top else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("dmls_ray."))
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dmls_ray."):
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                is_module = name in MODULES or f"{name}.__init__" in MODULES
                yield name if is_module else str(node.module)


NEVER_LOADED = {
    ("torch", "torchvision", "ray", "pandas", "numpy", "scipy", "vl_convert", "PIL", "pyarrow"): (
        "", "workloads.grayscale.workload", "workloads.classification.config", "config.fields", "config.grid",
        "workloads.classification.models", "records.model", "util.errors", "util.importing", "training.rank",
        "storage.store", "storage.remote_store", "cli.commands.skill",
    ),
    ("torch", "ray", "pandas", "scipy"): (
        "cluster.connect", "cli.sweep_script", "execution.run_plan", "cli.sweep_command", "cli.tune", "cli.ab",
        "cluster.templates", "workloads.classification.data.sources", "cli.kubernetes", "cluster.rayjob",
    ),
    ("torch", "torchvision", "ray", "vl_convert", "PIL"): (
        "analysis.results", "analysis.stats.intervals", "analysis.table.build", "analysis.findings.question",
        "analysis.summary", "analysis.tensorboard.writer", "analysis.compare.sweeps", "analysis.advise.rank",
        "analysis.table.named_layouts", "analysis.figures", "analysis.figures.vega",
        "analysis.report.render",
    ),
    ("ray",): (
        "training.engine", "workloads.user_function.rank_run", "workloads.grayscale.train", "launchers.spawn",
        "workloads.grayscale.implementations", "launchers.inline", "launchers.__main__",
    ),
}  # fmt: skip
"""Libraries -> modules that load none of them."""

IMPORT = """
import importlib, sys
never, modules = (text.split() for text in sys.argv[1:])
for name in modules:
    importlib.import_module(name)
    assert not set(never) & set(sys.modules), (name, set(never) & set(sys.modules))
"""


@pytest.mark.parametrize("never", NEVER_LOADED)
def test_modules_load_no_library_that_they_must_not(never: tuple[str, ...]) -> None:
    names = [f"dmls_ray.{module}".rstrip(".") for module in NEVER_LOADED[never]]
    subprocess.run([sys.executable, "-c", IMPORT, " ".join(never), " ".join(names)], check=True)


def test_every_package_has_a_layer() -> None:
    entries = {path.name for path in ROOT.iterdir() if path.name != "__pycache__"}
    assert entries == set.union(*LAYERS) | {"__init__.py", "__main__.py", "py.typed"}


def test_no_package_imports_from_a_layer_above_its_own() -> None:
    level = {name: number for number, layer in enumerate(LAYERS) for name in layer}
    for module, path in MODULES.items():
        package = module.split(".")[1]
        if package not in level:
            continue
        for name in imports(path, at_top=False):
            other = name.split(".")[1]
            if other != package:
                assert {package, other} not in APART, f"{path} imports {name}"
                assert level[other] < level[package], f"{path} imports {name}"


def test_no_part_of_analysis_imports_from_one_above_its_own() -> None:
    level = {name: number for number, name in enumerate(ANALYSIS)}
    for module, path in MODULES.items():
        _, package, part, *_ = [*module.split("."), ""]
        if package != "analysis" or part == "__init__":
            continue
        for name in imports(path, at_top=True):
            if name.startswith("dmls_ray.analysis."):
                assert level[name.split(".")[2]] <= level[part], f"{path} imports {name}"


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {}
    for module, path in MODULES.items():
        name = module.removesuffix(".__init__")
        # In cli, no import inside a function or for a type checker closes a circle, either.
        graph[name] = set(imports(path, at_top=".cli." not in module)) - {name}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the circle


def test_no_code_outside_workloads_names_a_workload() -> None:
    others = {
        name: path for name, path in MODULES.items() if ".workloads." not in name and name != "dmls_ray.cli.presets"
    }
    found = [path for path in others.values() if re.search("grayscale|ScriptWorkload", path.read_text())]
    assert not found


def test_ratios_are_written_by_ratio_text_alone() -> None:
    allowed = {"dmls_ray.analysis.stats.formatting", "dmls_ray.analysis.metrics"}
    naming = {name for name, path in MODULES.items() if re.search(r"\bRATIO\b", path.read_text())}
    assert naming == allowed


def test_a_module_above_350_lines_says_why_in_its_first_lines() -> None:
    for path in MODULES.values():
        text = path.read_text()
        if text.count("\n") > 350:
            assert re.search("above 350 lines|one module because", text.split('"""')[1], re.IGNORECASE), path


PUBLIC = (
    "ClusterLostError DmlsRayError InputError Options Outcome Range RankInfo RunRecord SweepResults TrialConfig close "
    "load make_plan sweep"
)


def test_the_public_names_are_pinned() -> None:
    assert sorted(dmls_ray.__all__) == PUBLIC.split()
    assert all(getattr(dmls_ray, name) is not None for name in dmls_ray.__all__)
    with pytest.raises(AttributeError, match="no attribute 'sweeps'"):
        _ = dmls_ray.sweeps


TWICE = {"main": 4, "advise": 2, "compare": 2, "load": 2, "sweep": 2, "Table": 2}
"""Name -> how often it is defined: programs; commands and what they call; public functions; the JSON of a table."""


def test_no_class_and_no_public_function_has_the_name_of_another() -> None:
    counts: Counter[str] = Counter()
    for path in MODULES.values():
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and not node.name.startswith("_"):
                counts[node.name] += 1
    assert {name: count for name, count in counts.items() if count > 1} == TWICE
