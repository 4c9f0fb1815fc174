"""`dmls-ray skill`: the instructions for agents, each command in them, and a program that knows no more."""

from __future__ import annotations

import ast
import json
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dmls_ray.cli.commands.skill import FOLDERS, SKILL
from dmls_ray.cli.main import STARTING
from tests.conftest import PROJECT, DmlsRay, call, without_ray
from tests.test_docs import commands_of

SCRIPT = """
import argparse, os, time
import torch
import torch.distributed as dist
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
parser.add_argument("--data")
batch_size = parser.parse_args().batch_size
if int(os.environ.get("WORLD_SIZE", "1")) > 1:
    dist.init_process_group("gloo")
model = torch.nn.Linear(8, 1)
if dist.is_initialized():
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(10**6):
    optimizer.zero_grad()
    model(torch.ones(batch_size, 8)).square().mean().backward()
    optimizer.step()
    time.sleep(0.001 * (2 + abs(batch_size - 32) / 8))
"""
"""A script that is fastest at 32 samples: each step waits for milliseconds, and a smaller batch has fewer samples."""

TEXT = SKILL.read_text(encoding="utf-8")
COMMANDS = list(dict.fromkeys(commands_of(TEXT)))

LONG = {"--batch-size max": "tests/execution/test_largest.py", "dmls-ray doctor": "tests/cli/test_doctor.py"}
"""Part of a command that takes minutes -> where it is run."""

SHORT = {
    "sweep train.py": "--steps 10 --budget 1s",
    "tune train.py": "--steps 10 --budget 15s",
    "-- command": "--max-repeats 3",
    "ab ": "--steps 10 --max-repeats 3",
    "sweep optimizer": "--train-samples 200 --repeats 2",
}
"""Part of a command -> what is added to it, so that it takes seconds."""


def with_flags(command: str, flags: str) -> str:
    """A command with flags of dmls-ray added, which come before the arguments of a script."""
    own, separator, others = command.partition(" -- ")
    return f"{own} {flags}{separator}{others}"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a training script."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "train.py").write_text(SCRIPT)
    (folder / "bench.sh").write_text("#!/bin/sh\nsleep 0.05\n")
    (folder / "bench.sh").chmod(0o755)
    (folder / ".gitignore").write_text("results\n")
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    for words in (["init", "-q", "-b", "main"], ["add", "."], [*who, "commit", "-qm", "a"], ["branch", "my-branch"]):
        subprocess.run(["git", *words], cwd=folder, check=True)
    return folder


def test_it_begins_with_a_name_and_a_description_within_the_limits_of_the_convention(run: DmlsRay) -> None:
    code, out, _ = run("skill")
    assert (code, out) == (0, TEXT)
    found = re.match(r"---\nname: (.*)\ndescription: (.*)\n---\n\n# ", TEXT)
    assert found is not None
    name, description = found.groups()
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
    assert len(name) <= 64
    assert 1 <= len(description) <= 1024
    assert ": " not in description, "it is plain text in YAML"
    assert {Path(folder).name for folder in FOLDERS} == {name}
    assert TEXT.count("\n") < 500


def test_it_is_written_where_agents_look_and_no_other_file_is_overwritten(tmp_path: Path, run: DmlsRay) -> None:
    agents, claude = (tmp_path / folder / "SKILL.md" for folder in FOLDERS)
    for _ in range(2):
        code, out, _ = run("skill", "install", tmp_path)
        assert (code, out.split()) == (0, [str(agents), str(claude)])
        assert agents.read_text() == claude.read_text() == TEXT
    agents.unlink()
    claude.write_text("of someone else")
    code, _, said = run("skill", "install", tmp_path)
    assert code == 2
    assert said.count("\n") == 1
    assert str(claude) in said
    assert claude.read_text() == "of someone else"
    assert not agents.exists()


def test_another_word_than_install_is_refused(run: DmlsRay) -> None:
    code, _, said = run("skill", "instal")
    assert code == 2
    assert "'instal'" in said


@pytest.mark.parametrize("command", [command for command in COMMANDS if shlex.split(command)[1] in ("sweep", "ab")])
def test_each_plan_is_accepted(command: str, project: Path) -> None:
    if any(part in command for part in LONG):
        return
    if "--dry-run" not in command:
        command = with_flags(command, "--dry-run")
    done = call([sys.executable, "-m", *shlex.split(command.replace("dmls-ray", "dmls_ray", 1))], project)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def results(project: Path) -> Iterator[Path]:
    yield project / "results"
    call([sys.executable, "-m", "dmls_ray", "down"], project, env=without_ray())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="up is for Linux alone")
def test_each_command_does_what_it_says(project: Path, results: Path) -> None:
    last = [command for command in COMMANDS if command == "dmls-ray down"]
    for command in [*(command for command in COMMANDS if command not in last), *last]:
        if any(part in command for part in LONG):
            continue
        for part, flags in SHORT.items():
            if part in command and not command.startswith(f"dmls-ray ab -- {part}"):
                command = with_flags(command, flags)
                break
        if " RUN" in command:
            command = command.replace("RUN", next((results / "train" / "runs").iterdir()).name)
        words = shlex.split(command.replace("dmls-ray", "dmls_ray", 1))
        done = call([sys.executable, "-m", *words], project, env=without_ray())
        # Three repeats may not decide which revision is slower.
        assert done.returncode in ((0, 3, 4) if words[1] == "ab" else (0,)), (command, done.stderr)
        if "--format json" in command and "--dry-run" not in command:
            assert json.loads(done.stdout)["kind"] == words[1]
        if words[1] in STARTING and "--dry-run" not in command:
            assert "Processes of dmls-ray up are used." in done.stderr


AGENT = PROJECT / "examples" / "agent.py"


def test_the_example_of_an_agent_reads_and_says_only_what_the_instructions_name() -> None:
    words = set()
    for node in ast.walk(ast.parse(AGENT.read_text())):
        read = [node.slice] if isinstance(node, ast.Subscript) else []
        compared = node.comparators if isinstance(node, ast.Compare) else []
        given = node.args if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "ask" else []
        for item in (*read, *compared, *given):
            if isinstance(item, ast.Constant) and isinstance(item.value, str):
                words.add(item.value)
    assert words >= {"sweep", "advise", "--max-repeats", "folder", "repeats_wanted", "not distinguished"}
    for word in words - {"__main__"}:
        assert re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", TEXT), word


@pytest.mark.slow
def test_a_program_that_knows_the_instructions_alone_finds_the_best_of_six_settings_and_stops(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    settings = ("8", "16", "24", "32", "48", "64")
    words = ["train.py", "--batch-size", *settings, "--steps", "20", "--out", "out", "--", "--data", "d"]
    done = call([sys.executable, AGENT, *words], tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["best"]["batch_size"] == 32
    assert found["not_distinguished"] == []
    assert found["speed"]["low"] <= found["speed"]["value"] <= found["speed"]["high"]
    rows = (tmp_path / "out" / "runs.jsonl").read_text().splitlines()
    counts = {json.loads(row)["repeat"] for row in rows}
    assert len(rows) == 6 * len(counts), "each setting has as many runs"
    refused = call([sys.executable, AGENT, "train.py", "--batch-sise", "8"], tmp_path)
    assert (refused.returncode, refused.stdout) == (2, "")


@pytest.mark.slow
def test_another_process_hears_of_the_steps_of_a_run_that_goes_on(tmp_path: Path) -> None:
    """Also within a run of whose steps nothing is written."""
    (tmp_path / "train.py").write_text(SCRIPT)
    words = ["sweep", "train.py", "--repeats", "1", "--steps", "8000", "--out", "out"]
    sweep = subprocess.Popen([sys.executable, "-m", "dmls_ray", *words], cwd=tmp_path, start_new_session=True)
    seen = []
    try:
        while sweep.poll() is None and (len(seen) < 2 or seen[-1] >= seen[-2]):
            done = call([sys.executable, "-m", "dmls_ray", "ls", "--format", "json", "out"], tmp_path)
            running = json.loads(done.stdout)["running"] if done.returncode == 0 else []
            if running and running[0]["run_id"]:
                assert (running[0]["done"], running[0]["total"]) == (0, 1)
                seen.append(running[0]["seconds_since_progress"])
            time.sleep(0.5)
    finally:
        sweep.send_signal(signal.SIGINT)
        code = sweep.wait()
    assert code == 130
    assert seen[-1] < seen[-2], "a step was seen"
    assert max(seen) < 30
