"""README.md and docs/: commands run, links lead somewhere, generated parts are up to date."""

from __future__ import annotations

import ast
import inspect
import json
import re
import runpy
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from dmls_ray.cli.main import STARTING
from docs.generate import SCHEMA, SKILL, regenerated, schema, skill
from tests.conftest import PROJECT

PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
PROGRAMS = ("python ", "dmls-ray ", "pip ", "ray ", "sbatch ", "ssh ", "tensorboard ", "cp ", "export ")

ELSEWHERE = {
    "pip ": ".ci/run",
    "cp ": "tests/test_sweeps.py",
    "python -m dmls_ray": "tests/cli/test_main.py",
    "python -m benchmarks.chaos": "tests/multihost/test_chaos.py",
    "dmls-ray figures": "tests/cli/test_main.py",
    "tensorboard ": "tests/analysis/tensorboard",
    "s3://": "tests/test_sweeps_remote.py",
    "/shared/": "tests/test_sweeps_remote.py",
    "results/grid": "tests/cli/test_main.py",
    "RAY_AUTH_MODE=": "tests/cluster/test_jobs.py",
    "ray ": "tests/cluster/test_jobs.py",
    "ray up": "tests/cluster/test_cluster_files.py",
    "--address auto": "tests/multihost/test_machines.py",
    "dmls-ray up --address": "tests/cluster/test_standby_of_cluster.py",
    "sbatch ": "tests/multihost/test_slurm.py",
    "ssh ": "docs/clusters.md",
    "kubectl ": "docs/kubernetes.md",
    "train.py": "tests/cli/test_sweep_command.py",
    "sweep.toml": "tests/cli/test_sweep_command.py",
    "package.train": "tests/cli/test_sweep_command.py",
    "./bench.sh": "tests/cli/test_sweep_command.py",
    "module:": "tests/cli/test_sweep_command.py",
    "--columns tflop_per_s": "tests/cli/test_sweep_command.py",
    "results/train": "tests/cli/test_main.py",
    "results/optimizer": "tests/cli/test_skill.py",
    "dmls-ray compare A B": "tests/cli/test_main.py",
    "dmls-ray show RUN": "tests/cli/test_main.py",
}
"""Part of a command that needs what a quick test does not have -> where such commands are run."""


def commands_of(page: str) -> list[str]:
    """Commands in fenced blocks and in inline code, without their comments."""
    shown = re.findall(r"^\$ (.*)$", page, re.MULTILINE)
    prose = re.sub(r"^```.*?^```$", "", page, flags=re.MULTILINE | re.DOTALL)
    inline = [span for span in re.findall(r"`([^`\n]+)`", prose) if span.startswith(PROGRAMS)]
    return [re.sub(r"\s+#.*", "", command).strip() for command in [*shown, *inline]]


def has_part(command: str, part: str) -> bool:
    """Whether a command has a part of `ELSEWHERE`, from the beginning of a word on: `dmls-ray ls` has no `ray `."""
    return re.search(rf"(?<![\w-]){re.escape(part)}", command) is not None


each_page = pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
COMMANDS = sorted({command for path in PAGES for command in commands_of(path.read_text())})


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a user has it after some sweeps."""
    folder = tmp_path_factory.mktemp("workspace")
    for name in ("batch_size", "before", "after"):
        shutil.copytree(PROJECT / "results" / "reference" / "batch_size", folder / "results" / name)
    for number, name in enumerate(("before", "after")):
        runs = folder / "results" / name / "runs.jsonl"
        records = [json.loads(line) for line in runs.read_text().splitlines()]
        for record in records:
            record |= {"run_id": f"{name}-{record['run_id']}", "started_at": f"2026-11-2{number}T00:00:00+00:00"}
        runs.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    shutil.copytree(PROJECT / "results" / "published", folder / "results" / "published")
    shutil.copy(PROJECT / "examples" / "char_lm.py", folder)
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_is_accepted_or_run_elsewhere(
    command: str, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if any(has_part(command, part) for part in ELSEWHERE):
        return
    monkeypatch.chdir(workspace)
    monkeypatch.syspath_prepend(workspace)
    words = shlex.split(command)
    if words[0] == "dmls-ray":
        command = words[1]
        is_name = len(words) == 2 and command != "ls"
        words = ["python", str(PROJECT / "dmls_ray" / "__main__.py"), *words[1:]]
        if is_name:
            words.append("--help")
        elif command in STARTING:
            words.append("--dry-run")
    elif words[1].startswith("sweeps/"):
        words.append("--dry-run")
    else:
        words.append("--help")
    monkeypatch.setattr(sys, "argv", words[1:])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(PROJECT / words[1]), run_name="__main__")
    # The folders of the workspace are of one session each, so `compare --fail-if-slower` cannot say.
    assert ended.value.code in ((4,) if "--fail-if-slower" in words else (0, None))


@each_page
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


def test_every_kind_of_command_that_is_run_elsewhere_occurs_and_the_place_exists() -> None:
    for part, place in ELSEWHERE.items():
        assert any(has_part(command, part) for command in COMMANDS), part
        assert (PROJECT / place).exists()


@pytest.mark.parametrize(
    "path", [*PAGES, PROJECT / "CONTRIBUTING.md", PROJECT / "SECURITY.md"], ids=lambda path: path.name
)
def test_every_link_leads_to_a_file_and_a_heading(path: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if target.startswith(("https://", "http://")):
            continue
        name, _, anchor = target.partition("#")
        linked = path.parent / name if name else path
        assert linked.exists(), target
        if anchor:
            assert anchor in anchors_of(linked.read_text()), target


def anchors_of(page: str) -> set[str]:
    """Anchors of the headings of a page, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@each_page
def test_generated_parts_are_what_the_generator_writes(path: Path) -> None:
    page = path.read_text()
    assert page == regenerated(page), "run python docs/generate.py"


def test_the_json_schema_is_that_of_the_objects() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == schema(), "run python docs/generate.py"


def test_the_skill_is_the_page_for_agents() -> None:
    assert SKILL.read_text(encoding="utf-8") == skill(), "run python docs/generate.py"


def test_the_readme_is_short_and_links_to_every_page() -> None:
    readme = (PROJECT / "README.md").read_text()
    assert readme.count("\n") <= 150
    tables = re.findall(r"^```text\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    assert all(len(line) <= 100 for table in tables for line in table.splitlines())
    for path in (PROJECT / "docs").glob("*.md"):
        assert f"(docs/{path.name})" in readme


def ways() -> dict[str, list[tuple[str, str]]]:
    """The ways through the code of docs/architecture.md: title -> file and name of each step."""
    page = (PROJECT / "docs" / "architecture.md").read_text(encoding="utf-8")
    _, _, section = page.partition("## Three ways through the code\n")
    found = {}
    for part in section.partition("\n## ")[0].split("\n**")[1:]:
        title, _, table = part.partition("**")
        found[title] = re.findall(r"^\| `([\w/]+\.py)` \| `(\w+)` \|", table, re.MULTILINE)
    return found


@pytest.mark.parametrize("title", ways())
def test_each_name_of_a_way_is_in_the_file_that_the_architecture_says(title: str) -> None:
    steps = ways()[title]
    assert len(steps) >= 10
    for file, name in steps:
        source = (PROJECT / "dmls_ray" / file).read_text(encoding="utf-8")
        assert re.search(rf"^(class|def) {name}\b", source, re.MULTILINE), (file, name)
