"""Files, folders, modules and names that documents, docstrings and comments name: a renamed one must not leave them."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import PROJECT

FOLDERS = (".ci", "benchmarks", "dmls_ray", "docs", "examples", "results/reference", "results/published", "sweeps",
           "tests")  # fmt: skip
PAGES = [*(PROJECT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
         *sorted({*(PROJECT / "docs").glob("*.md")} - {PROJECT / "docs" / "commands.md"})]  # fmt: skip
"""Without the command reference, which is generated from docstrings."""

SOURCES = ("py", "md", "js", "css", "j2", "cpp", "cu", "sbatch", "yaml", "toml")
OUTPUTS = ("csv", "json", "jsonl", "parquet", "html", "pt", "png", "svg", "txt", "gz")
FILE = re.compile(rf"(?<![\w./~>$-])((?:[\w.*<>-]+/)*[\w.*<>-]*[\w*]\.(?:{'|'.join(SOURCES + OUTPUTS)}))\b(?![\w/(=])")
FOLDER = re.compile(r"`((?:[\w.*<>-]+/)+)`")
TEST = re.compile(r"\b(tests/[\w/]+\.py)::(\w+)")
MODULE = re.compile(r"(?<![\w./])((?:dmls_ray|benchmarks|tests)(?:\.\w+)+)")
NAME = re.compile(r"`([A-Za-z_]\w*)`")

ELSEWHERE = {
    "m.py": "module of a user, in examples",
    "edited_m.py": "the same, in tests",
    "ray_bootstrap_config.yaml": "written by Ray's cluster launcher",
    "train/<class>/": "folder of a user's images",
    "test/<class>/": "folder of a user's images",
    "Run/": "first part of a tag in TensorBoard",
    "_mib": "ending of names",
    "RAY_USE_TLS": "environment variable of Ray",
    "measured_total_s": "column of a user's metric total_s",
    "code.py": "module of a user, with the name of one of Python's",
}
"""What is named and is not of this project -> what it is."""


class Prose(NamedTuple):
    """A text of people about the project."""

    path: Path
    line: int
    text: str


@functools.cache
def files() -> frozenset[str]:
    """Paths of the project's files, relative to its root."""
    inside = [path for folder in FOLDERS for path in (PROJECT / folder).rglob("*") if "__pycache__" not in path.parts]
    return frozenset(
        path.relative_to(PROJECT).as_posix() for path in [*inside, *PROJECT.iterdir()] if path.is_file()
    )  # fmt: skip


def endings(paths: Iterable[str]) -> set[str]:
    """All by which files and their folders may be named: in full, or from any folder on; a folder ends in a slash."""
    found = set()
    for path in paths:
        parts = path.split("/")
        for start in range(len(parts)):
            found.add("/".join(parts[start:]))
            found |= {"/".join(parts[start:stop]) + "/" for stop in range(start + 1, len(parts))}
    return found


@functools.cache
def split(path: Path) -> tuple[tuple[Prose, ...], str]:
    """The docstrings and comments of a Python file, and the code without them."""
    source = path.read_text()
    lines = source.splitlines()
    prose = []
    for node in statements(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            prose.append(Prose(path, node.lineno, node.value.value))
            lines[node.lineno - 1 : node.end_lineno] = [""] * ((node.end_lineno or 0) - node.lineno + 1)
    for number, line in enumerate(lines):
        code, mark, comment = line.partition("# ")
        if mark:
            prose.append(Prose(path, number + 1, comment))
            lines[number] = code
    return tuple(prose), "\n".join(lines)


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements below a node; `ast.walk` visits all expressions too and takes several times as long."""
    for block in ("body", "orelse", "finalbody", "handlers", "cases"):
        for statement in getattr(node, block, ()):
            yield statement
            yield from statements(statement)


def sources(*suffixes: str) -> list[Path]:
    """The files of the project with these suffixes, without results."""
    return [PROJECT / name for name in sorted(files()) if name.endswith(suffixes) and not name.startswith("results/")]


def pages() -> Iterator[Prose]:
    for path in PAGES:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            yield Prose(path, number, line)


def comments() -> Iterator[Prose]:
    """The docstrings and comments of all sources; of those that are no Python, all lines."""
    for path in sources(".py"):
        yield from split(path)[0]
    for path in sources(".js", ".css", ".j2", ".cpp", ".cu", ".sbatch", ".yaml", "/run"):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            yield Prose(path, number, line)


@functools.cache
def code(folder: str = "") -> str:
    """The code below a folder without docstrings and comments."""
    texts = [split(path)[1] for path in sources(".py") if path.is_relative_to(PROJECT / folder)]
    others = sources(".js", ".css", ".j2", ".toml", ".yaml", ".sbatch", "/run")
    return "\n".join([*texts, *(path.read_text() for path in others if path.is_relative_to(PROJECT / folder))])


def missing_files(text: str, known: set[str]) -> list[str]:
    """The files and folders that a text names and that do not exist."""
    named = [name.removeprefix("../") for name in [*FILE.findall(text), *FOLDER.findall(text)]]
    return [
        name
        for name in named
        if not {name, name.rpartition("/")[2]} & ELSEWHERE.keys() and not is_known(re.sub(r"<\w+>", "*", name), known)
    ]


def is_known(name: str, known: set[str]) -> bool:
    """Whether a file or folder is there, or the code names it as one that it writes."""
    if name in known or any(fnmatch(path, name) for path in known if "*" in name):
        return True
    if name.endswith(tuple(f".{suffix}" for suffix in SOURCES)):
        return False
    written = [part for part in name.split("/") if part and "*" not in part]
    return bool(written) and f'"{written[0 if name.endswith("/") else -1]}"' in code("dmls_ray/")


def missing_modules(text: str) -> list[str]:
    """The dotted names of the project in a text that are no module, or no name in a module."""
    named = [name for name in MODULE.findall(text) if not name.endswith(tuple(f".{suffix}" for suffix in SOURCES))]
    return [name for name in named if not is_module(name.split("."))]


def is_module(parts: list[str]) -> bool:
    for count in range(len(parts), 0, -1):
        stem = "/".join(parts[:count])
        for path in (f"{stem}.py", f"{stem}/__init__.py"):
            if path in files():
                rest = parts[count : count + 1]
                return not rest or re.search(rf"\b{rest[0]}\b", split(PROJECT / path)[1]) is not None
    return False


def missing_tests(text: str) -> list[str]:
    """The tests that a text names by file and function and that do not exist."""
    return [
        f"{path}::{name}"
        for path, name in TEST.findall(text)
        if path not in files() or f"def {name}(" not in (PROJECT / path).read_text()
    ]


def report(found: Iterable[tuple[Prose, list[str]]]) -> str:
    """A line for each name, by where it stands."""
    return "\n".join(f"{at.path.relative_to(PROJECT)}:{at.line}: {name}" for at, names in found for name in names)


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("as `queue.py` does", ["queue.py"]),
        ("see scheduler/queue.py.", ["scheduler/queue.py"]),
        ("// made by gzip_json.py", ["gzip_json.py"]),
        ("`analysis/report/page.js` and `analysis/report/`", ["analysis/report/page.js", "analysis/report/"]),
        ("`workloads/<name>/view*.py`", ["workloads/<name>/view*.py"]),
        ("`cluster/broker.py`, `broker.py` next to it, `cluster/`, `clus*/b*.py`, https://a.b/c.html, m.py", []),
    ],
)
def test_a_renamed_file_is_missed_with_and_without_a_slash(text: str, missing: list[str]) -> None:
    assert missing_files(text, endings(["dmls_ray/cluster/broker.py"])) == missing


def test_a_renamed_module_and_a_renamed_test_are_missed() -> None:
    assert missing_modules("dmls_ray.records.metric.Metric of dmls_ray.records, not dmls_ray.records.metrics") == [
        "dmls_ray.records.metrics"
    ]
    assert missing_modules("dmls_ray.records.metric.Number") == ["dmls_ray.records.metric.Number"]
    here = "tests/test_references.py"
    assert missing_tests(f"{here}::no_test, {here}::pages, tests/test_none.py::pages") == [
        f"{here}::no_test", "tests/test_none.py::pages"
    ]  # fmt: skip


def test_every_file_and_folder_that_a_text_names_exists() -> None:
    known = endings(files())
    missed = report((prose, missing_files(prose.text, known)) for prose in [*pages(), *comments()])
    assert not missed, missed


def test_every_module_and_test_that_a_text_names_exists() -> None:
    texts = [prose for prose in [*pages(), *comments()] if prose.path.suffix in (".py", ".md")]
    missed = report((prose, missing_modules(prose.text) + missing_tests(prose.text)) for prose in texts)
    assert not missed, missed


def test_every_name_in_backticks_is_a_name_of_the_code_or_a_module() -> None:
    names = {*re.findall(r"\w+", code()), *(part for path in files() for part in Path(path).with_suffix("").parts)}
    missed = report(
        (prose, [name for name in NAME.findall(prose.text) if name not in names and name not in ELSEWHERE])
        for prose in [*pages(), *comments()]
    )
    assert not missed, missed
