"""README.md and docs/: commands run, links lead somewhere, generated parts are up to date."""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
import json
import re
import runpy
import shlex
import shutil
import sys
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from dmls_ray.cli.main import main
from tests.conftest import PROJECT

PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
PROGRAMS = (
    "python ",
    "dmls-ray ",
    "pip ",
    "ray ",
    "sbatch ",
    "ssh ",
    "tensorboard ",
    "cp ",
    "export ",
    "RAY_AUTH_MODE=",
)
LINKING = [
    *PAGES,
    *(PROJECT / name for name in ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")),
    *(PROJECT / "results").glob("*/README.md"),
]

NEEDS = {
    "pip install -e .": "a fresh environment: .ci/run",
    "pip install -e . && python sweeps/batch_size.py": "a fresh environment: .ci/run",
    'pip install -e ".[dev]" && pytest -n 2 --dist loadfile': "a fresh environment: .ci/run",
    'pip install -e ".[dev]"': "a fresh environment: .ci/run",
    'pip install -e ".[mpi]"': "a fresh environment; part of .[dev]: .ci/run",
    'pip install -e ".[search]"': "a fresh environment; part of .[dev]: .ci/run",
    'pip install -e ".[images]"': "a fresh environment; part of .[dev]: .ci/run",
    "cp examples/char_lm.py .": "tests/test_sweeps.py::test_the_example_language_model_is_swept_from_the_command_line",
    "dmls-ray figures results/batch_size": "many seconds to draw: tests/cli/test_main.py",
    "python -m dmls_ray": "the command dmls-ray in another form: dmls_ray/__main__.py",
    "tensorboard --logdir results/batch_size/tensorboard": "a browser: tests/analysis/tensorboard",
    "python sweeps/batch_size.py --out s3://BUCKET/NAME": "an object store: tests/test_sweeps_remote.py",
    "dmls-ray table s3://BUCKET/NAME": "an object store: tests/test_sweeps_remote.py",
    "dmls-ray copy s3://BUCKET/NAME results/batch_size": "an object store: tests/test_sweeps_remote.py",
    "dmls-ray copy s3://BUCKET/NAME s3://BUCKET/COPY": "an object store: tests/storage/test_remote_store.py",
    "dmls-ray table results/grid --stale": "runs of two versions: tests/cli/test_main.py",
    "dmls-ray export results/grid --stale": "runs of two versions: tests/cli/test_main.py",
    "dmls-ray copy results/batch_size /shared/batch_size": "a shared disk: tests/test_sweeps_remote.py",
    "ray get-auth-token --generate": "a cluster: tests/cluster/test_auth.py",
    "export RAY_AUTH_MODE=token": "a cluster: tests/cluster/test_jobs.py",
    "ray start": "a cluster: tests/cluster/test_jobs.py",
    "ray start --head": "a cluster: tests/cluster/test_jobs.py",
    "ray start --address=HOST:6379": "a cluster: tests/multihost/test_machines.py",
    "python sweeps/machines.py --address auto": "a cluster: tests/multihost/test_machines.py",
    "ray up sweeps/cluster/on_premise.yaml": "machines: tests/cluster/test_cluster_files.py",
    "ray up sweeps/cluster/aws.yaml": "a cloud: tests/cluster/test_cluster_files.py",
    "sbatch --nodes=2 sweeps/cluster/slurm.sbatch": "Slurm: tests/multihost/test_slurm.py",
    "sbatch --nodes=4 sweeps/cluster/slurm.sbatch python sweeps/world_size.py --world-size 1 2 4 --out results/four":
        "Slurm: tests/multihost/test_slurm.py",
    "python -m benchmarks.chaos --seeds 1-12": "root: tests/multihost/test_chaos.py",
    "ssh -L 8265:127.0.0.1:8265 HEAD": "a cluster",
    "RAY_AUTH_MODE=token ray job submit --address http://127.0.0.1:8265 --working-dir . -- python sweeps/batch_size.py "
    "--out /shared/batch_size": "a cluster: tests/cluster/test_jobs.py",
}  # fmt: skip
"""Command -> what it needs that a quick test does not have, and the test that runs it."""


def commands_of(page: str) -> list[str]:
    """Commands in fenced blocks and in inline code, without their comments."""
    shown = re.findall(r"^\$ (.*)$", page, re.MULTILINE)
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    inline = [span for span in re.findall(r"`([^`\n]+)`", prose) if span.startswith(PROGRAMS)]
    return [re.sub(r"\s+#.*", "", command).strip() for command in [*shown, *inline]]


COMMANDS = sorted({command for path in PAGES for command in commands_of(path.read_text())})


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a user has it after some sweeps."""
    folder = tmp_path_factory.mktemp("workspace")
    for name in ("batch_size", "before", "after"):
        shutil.copytree(PROJECT / "results" / "reference" / "batch_size", folder / "results" / name)
        if name != "batch_size":
            runs = folder / "results" / name / "runs.jsonl"
            records = [json.loads(line) for line in runs.read_text().splitlines()]
            for record in records:
                record["run_id"] = f"{name}-{record['run_id']}"
                record["started_at"] = f"2026-11-2{2 if name == 'before' else 3}T00:00:00+00:00"
            runs.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    shutil.copy(PROJECT / "examples" / "char_lm.py", folder)
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_accepted_or_says_what_it_needs(
    command: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if command in NEEDS:
        for path in re.findall(r"(?:tests/[\w/.]+|\.ci/run)", NEEDS[command]):
            assert (PROJECT / path).exists()
        return
    monkeypatch.chdir(workspace)
    monkeypatch.syspath_prepend(workspace)
    words = shlex.split(command)
    if words[0] == "dmls-ray":
        start: Callable[[], object] = functools.partial(main, words[1:])
    else:
        assert words[0] == "python"
        assert (PROJECT / words[1]).is_file()
        flag = "--dry-run" if words[1].startswith("sweeps/") else "--help"
        monkeypatch.setattr(sys, "argv", [words[1], *(word for word in words[2:] if word != flag), flag])
        start = functools.partial(runpy.run_path, str(PROJECT / words[1]), run_name="__main__")
    try:
        start()
    except SystemExit as ended:
        code = ended.code
    else:
        code = 0
    # The folders of the workspace are of one session each, so `compare --fail-if-slower` cannot say.
    assert code in ((4,) if "--fail-if-slower" in words else (0, None))


@pytest.mark.parametrize("path", PAGES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_every_import_and_keyword_of_a_python_example_exists(path: Path) -> None:
    for block in re.findall(r"^```python\n(.*?)^```", path.read_text(), re.MULTILINE | re.DOTALL):
        tree = ast.parse(block)
        imports = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        names: dict[str, object] = {}
        exec(compile(ast.Module(imports, []), path.name, "exec"), names)
        for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
            called = names.get(call.func.id) if isinstance(call.func, ast.Name) else None
            if callable(called):
                inspect.signature(called).bind(*call.args, **{str(item.arg): item.value for item in call.keywords})


def test_no_entry_of_the_table_is_left_without_its_command() -> None:
    assert set(NEEDS) <= set(COMMANDS)


@pytest.mark.parametrize(
    "path", [*PAGES, PROJECT / "CONTRIBUTING.md", PROJECT / "SECURITY.md"], ids=lambda path: path.name
)
def test_every_link_leads_to_a_file_and_a_heading(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if target.startswith(("https://", "http://")):
            continue
        name, _, anchor = target.partition("#")
        linked = (path.parent / name).resolve() if name else path
        assert linked.exists(), f"{path.name} links to {target}"
        if anchor:
            assert anchor in anchors_of(linked.read_text()), f"{path.name} links to {target}"


def anchors_of(page: str) -> set[str]:
    """Anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def generator() -> types.ModuleType:
    """docs/generate.py, which is in no package."""
    spec = importlib.util.spec_from_file_location("docs_generate", PROJECT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", PAGES, ids=lambda path: f"{path.parent.name}-{path.name}")
def test_generated_parts_are_what_the_generator_writes(path: Path) -> None:
    page = path.read_text()
    assert page == generator().regenerated(page), "run python docs/generate.py"


def test_the_readme_is_short_and_links_to_every_page() -> None:
    readme = (PROJECT / "README.md").read_text()
    assert readme.count("\n") <= 150
    tables = re.findall(r"^```text\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    assert all(len(line) <= 100 for table in tables for line in table.splitlines())
    for path in (PROJECT / "docs").glob("*.md"):
        assert f"(docs/{path.name})" in readme


@pytest.mark.parametrize("path", PAGES[1:], ids=lambda path: f"{path.parent.name}-{path.name}")
def test_every_page_starts_with_what_the_reader_can_do_after_it(path: Path) -> None:
    title, blank, first, *_ = path.read_text().splitlines()
    assert title.startswith("# ")
    assert blank == ""
    assert first.startswith("After this page you ")
