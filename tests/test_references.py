"""Files, folders, modules, tests and names that documents, docstrings and comments name: a renamed one must not leave
them.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import PROJECT

FOLDERS = ("benchmarks", "dmls_ray", "docs", "examples", "results", "sweeps", "tests")
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", ".ci/run", "docs/*.md")
GENERATED = "docs/commands.md"
"""From docstrings."""

FILE = re.compile(r"(?<![\w./~>$*-])((?:[\w.-]+/)*[\w.-]+\.(?:py|md|js|css|j2|cpp|cu|sbatch|yaml|toml))\b(?![\w/(=])")
FOLDER = re.compile(r"`((?:[\w.-]+/)+)`")
TEST = re.compile(r"\b(tests/[\w/]+\.py)::(\w+)")
MODULE = re.compile(r"(?<![\w./])((?:dmls_ray|benchmarks|tests)(?:\.\w+)+)(?!\.?\w)")
NAME = re.compile(r"`([A-Za-z_]\w*)`")

ELSEWHERE = {
    "m.py": "module of a user, in examples",
    "edited_m.py": "the same, in tests",
    "code.py": "module of a user, with the name of one of Python's",
    "ray_bootstrap_config.yaml": "written by Ray's cluster launcher",
    "runs/": "in a results folder",
    "checkpoints/": "in a results folder",
    "tensorboard/": "in a results folder",
    "Run/": "first part of a tag in TensorBoard",
    "_mib": "ending of names",
    "job.yaml": "written by a user, in examples",
    "SidecarMode": "of KubeRay",
    "RAYJOB_STATUS_CHECK_TIMEOUT_SECONDS": "environment variable of KubeRay",
    "WORKDIR": "of an image recipe",
    "smart_open": "package by which Ray reads from S3",
    "RAY_USE_TLS": "environment variable of Ray",
    "all_gather_object": "function of torch.distributed",
    "measured_total_s": "column of a user's metric total_s",
}
"""What is named and is not of this project -> what it is."""


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements below a node; `ast.walk` visits all expressions too and takes several times as long."""
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        for statement in getattr(node, block, ()):
            yield statement
            yield from statements(statement)


@functools.cache
def split(path: Path) -> tuple[dict[str, str], str]:
    """The docstrings and comments of a Python file by their place, and the code without them."""
    source = path.read_text()
    lines = source.splitlines()
    prose = {}
    for node in statements(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            prose[f"{path}:{node.lineno}"] = node.value.value
            lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or 0) - node.lineno + 1)
    for number, line in enumerate(lines):
        lines[number], mark, comment = line.partition("# ")
        if mark:
            prose[f"{path}:{number + 1}"] = comment
    return prose, "\n".join(lines)


@functools.cache
def files() -> frozenset[str]:
    """Paths of the project's files, relative to its root."""
    inside = [path for folder in FOLDERS for path in (PROJECT / folder).rglob("*") if "__pycache__" not in path.parts]
    found = [path for path in (*inside, *PROJECT.iterdir(), PROJECT / ".ci" / "run") if path.is_file()]
    return frozenset(path.relative_to(PROJECT).as_posix() for path in found)


@functools.cache
def endings() -> frozenset[str]:
    """All by which files and their folders may be named: in full, or from any folder on; a folder ends in a slash."""
    found = set()
    for path in files():
        parts = path.split("/")
        for start in range(len(parts)):
            found.add("/".join(parts[start:]))
            found |= {"/".join(parts[start:stop]) + "/" for stop in range(start + 1, len(parts))}
    return frozenset(found)


def python_files() -> list[Path]:
    return [PROJECT / name for name in sorted(files()) if name.endswith(".py")]


@functools.cache
def names() -> frozenset[str]:
    """Every word of the code, without docstrings and comments, and every part of a path."""
    texts = [split(path)[1] for path in python_files()]
    others = (".js", ".css", ".j2", ".toml", ".yaml", ".sbatch", "/run")
    texts += [(PROJECT / name).read_text() for name in files() if name.endswith(others)]
    parts = {part for path in files() for part in Path(path).with_suffix("").parts}
    return frozenset(parts.union(*(re.findall(r"\w+", text) for text in texts)))


def is_module(dotted: str) -> bool:
    """Whether a dotted name is a module, or a name in a module."""
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        stem = "/".join(parts[:count])
        for path in {f"{stem}.py", f"{stem}/__init__.py"} & files():
            return count == len(parts) or parts[count] in re.findall(r"\w+", split(PROJECT / path)[1])
    return False


def missing(text: str) -> Iterator[str]:
    """What a text names and does not exist."""
    for name in [*FILE.findall(text), *FOLDER.findall(text)]:
        if name.removeprefix("../") not in endings() and name.rpartition("/")[2] not in ELSEWHERE:
            yield name
    for name in MODULE.findall(text):
        if name not in endings() and not is_module(name):
            yield name
    for path, name in TEST.findall(text):
        if path not in files() or f"def {name}(" not in (PROJECT / path).read_text():
            yield f"{path}::{name}"
    for name in NAME.findall(text):
        if name not in names():
            yield name


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("as `absent.py` does", ["absent.py"]),
        ("see scheduler/absent.py.", ["scheduler/absent.py"]),
        ("`analysis/report/page.js` and `analysis/absent/`", ["analysis/absent/"]),
        ("`cluster/scheduler/broker.py`, `broker.py`, `cluster/`, `clus*/b*.py`, https://a.b/c.html, m.py", []),
        ("dmls_ray.records.metrics.Metric of dmls_ray.records", []),
        ("dmls_ray.records.absent", ["dmls_ray.records.absent"]),
        ("dmls_ray.records.metrics.Absent", ["dmls_ray.records.metrics.Absent"]),
        ("tests/test_references.py::no_test, tests/test_references.py::missing", ["tests/test_references.py::no_test"]),
    ],
)  # fmt: skip
def test_what_does_not_exist_is_found(text: str, found: list[str]) -> None:
    assert list(missing(text)) == found


def test_everything_that_a_text_names_exists() -> None:
    texts = {}
    for path in python_files():
        texts |= split(path)[0]
    for pattern in PAGES:
        for path in {*PROJECT.glob(pattern)} - {PROJECT / GENERATED}:
            texts |= {f"{path}:{number}": line for number, line in enumerate(path.read_text().splitlines(), 1)}
    found = [f"{place}: {name}" for place, text in texts.items() for name in missing(text) if name not in ELSEWHERE]
    assert not found, "\n".join(found)
