"""`dmls-ray up` and `down`, and commands that use what they hold."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest

from dmls_ray.storage.runs_file import RUNS
from dmls_ray.util.template_request import COMMANDS, request
from tests.conftest import PROJECT, without_ray
from tests.test_start import MARK, marked

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="templates are for Linux alone"),
]

SCRIPT = """
import argparse, json, os, sys, time
import torch
import torch.distributed as dist
parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=4)
parser.add_argument("--pause", type=float, default=0.0)
args = parser.parse_args()
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(args.steps):
    optimizer.zero_grad()
    model(torch.ones(8, 8)).mean().backward()
    optimizer.step()
    time.sleep(args.pause)
mask = os.umask(0)
seen = {"folder": os.getcwd(), "argv": sys.argv, "path": sys.path, "mask": mask, "environment": dict(os.environ)}
with open(f"seen-{os.environ['RANK']}.json", "w") as file:
    json.dump(seen, file)
dist.destroy_process_group()
"""
VARIES = {"MASTER_PORT"}
"""Variables of a rank that are others in each run."""
RUNS_OF_A_SECOND = ("--steps", "10", "20", "--repeats", "3", "--", "--pause", "0.05")
USED = "Processes of dmls-ray up are used."


class Machine:
    """Where commands are given in an environment of their own, with or without what `up` holds."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._mark = folder, uuid.uuid4().hex
        self.environment = without_ray(
            DMLS_RAY_CACHE=str(folder / "cache"), PYTHONPATH=str(PROJECT), TMPDIR="/tmp", **{MARK: self._mark}
        )
        (folder / "train.py").write_text(SCRIPT)

    def start(
        self, *words: str, python: tuple[str, ...] = ("-m", "dmls_ray"), **environment: str
    ) -> subprocess.Popen[str]:
        """Give a command."""
        return subprocess.Popen(
            [sys.executable, *python, *words], cwd=self.folder, env={**self.environment, **environment},
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip

    def do(self, *words: str, **given: Any) -> tuple[int, str, str]:
        """Give a command, and wait for its end; returns its exit code and what it has printed to both streams."""
        return self.end(self.start(*words, **given))

    @staticmethod
    def end(command: subprocess.Popen[str]) -> tuple[int, str, str]:
        """Wait for the end of a command."""
        printed, said = command.communicate(timeout=120)
        return command.returncode, printed, said

    def sweep(self, *words: str, out: str = "out", **environment: str) -> subprocess.Popen[str]:
        """Sweep the script."""
        flags = ("--out", out, "--world-size", "2", "--repeats", "1", "--device", "cpu", "--format", "json")
        return self.start("sweep", "train.py", *flags, *words, **environment)

    def rows(self, out: str = "out") -> list[dict[str, Any]]:
        """The records of a sweep."""
        path = self.folder / out / RUNS
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def wait_for(self, condition: Callable[[], object]) -> None:
        """Wait until something is so."""
        until = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < until
            time.sleep(0.05)

    def state(self) -> Mapping[str, Any] | None:
        """How commands find what is held."""
        found = list((self.folder / "cache").glob("up-*.json"))
        return json.loads(found[0].read_text()) if found else None

    def left(self) -> list[str]:
        """Processes of the commands that still run."""
        return marked(self._mark)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    found = Machine(tmp_path)
    code, _, said = found.do("up")
    assert code == 0, said
    yield found
    assert found.do("down")[0] == 0
    found.wait_for(lambda: not found.left())


def held_after_a_sweep(machine: Machine) -> int:
    """How many processes are held once the Ray of the standby was used."""
    assert machine.end(machine.sweep(out="first"))[0] == 0
    time.sleep(2)
    return len(busy(machine))


def busy(machine: Machine) -> list[str]:
    """The processes that are left, without those that Ray keeps for the next command, more or less of them."""
    return [name for name in machine.left() if not name.startswith("ray::IDLE")]


def test_a_run_finds_what_it_finds_in_a_start_of_its_own(machine: Machine) -> None:
    elsewhere = machine.folder / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "train.py").write_text(SCRIPT)
    machine.folder = elsewhere
    seen = []
    for out in ("held", "own"):
        code, _, said = machine.end(machine.sweep(out=out, PWD=str(elsewhere), TERM="xterm-other"))
        assert code == 0, said
        assert (USED in said) == (out == "held")
        found = json.loads((elsewhere / "seen-1.json").read_text())
        for name, value in list(found["environment"].items()):
            if name in VARIES:
                del found["environment"][name]
            else:
                found["environment"][name] = value.replace(f"/{out}/", "/OUT/").replace(f"/{out}-", "/OUT-")
        seen.append(found)
        machine.do("down")
    assert seen[0] == seen[1]
    held, own = (
        [{key: row[key] for key in ("outcome", "config", "versions")} for row in machine.rows(out)]
        for out in ("held", "own")
    )
    assert held == own


def test_a_command_has_the_exit_code_and_the_output_of_its_own_start(machine: Machine) -> None:
    code, printed, said = machine.do("sweep", "train.py", "--world-size", "0")
    assert (code, printed) == (2, "")
    assert said.splitlines()[0] == USED
    assert "--world-size 0" in said
    code, printed, said = machine.end(machine.sweep())
    assert code == 0, said
    assert json.loads(printed)["kind"] == "sweep"


def test_ctrl_c_ends_a_command_and_what_it_has_started(machine: Machine) -> None:
    held = held_after_a_sweep(machine)
    for moment in (0.1, 0.5, 1.0, 1.5, 3.0):
        command = machine.sweep(*RUNS_OF_A_SECOND, out=f"out-{moment}")
        time.sleep(moment)
        os.killpg(command.pid, signal.SIGINT)
        code, _, said = machine.end(command)
        assert code in (130, -signal.SIGINT), (moment, said)
        machine.wait_for(lambda: len(busy(machine)) <= held)
    code, _, said = machine.end(machine.sweep())
    assert code == 0, said
    assert USED in said


def test_a_command_ends_with_its_supervisor(machine: Machine) -> None:
    held = held_after_a_sweep(machine)
    command = machine.sweep(*RUNS_OF_A_SECOND)
    machine.wait_for(machine.rows)
    command.kill()
    command.communicate()
    machine.wait_for(lambda: len(busy(machine)) <= held)
    code, _, said = machine.end(machine.sweep(*RUNS_OF_A_SECOND))
    assert code == 0, said
    assert {row["outcome"] for row in machine.rows()} == {"ok"}
    assert len(machine.rows()) == 6


def test_of_two_commands_one_starts_a_ray_of_its_own(machine: Machine) -> None:
    commands = {out: machine.sweep(*RUNS_OF_A_SECOND, out=out) for out in ("one", "two")}
    said = []
    for out, command in commands.items():
        code, _, lines = machine.end(command)
        assert code == 0, lines
        assert [row["outcome"] for row in machine.rows(out)] == ["ok"] * 6
        said.append("starts its own" in lines)
    assert sorted(said) == [False, True]


@pytest.mark.parametrize(
    ("environment", "named"), [({"A_VARIABLE": "1"}, "variable A_VARIABLE"), ({"LANG": "C"}, "variable LANG")]
)
def test_in_another_environment_a_command_starts_its_own(
    machine: Machine, environment: dict[str, str], named: str
) -> None:
    code, _, said = machine.end(machine.sweep(**environment))
    assert code == 0, said
    assert USED not in said
    assert named in said.splitlines()[0]


@pytest.mark.parametrize("part", ["raylet", "gcs_server"])
def test_a_command_that_loses_ray_goes_on_with_its_own(machine: Machine, part: str) -> None:
    command = machine.sweep(*RUNS_OF_A_SECOND)
    machine.wait_for(machine.rows)
    state = machine.state()
    assert state is not None
    [pid] = [pid for pid in state["parts"].values() if psutil.Process(pid).name() == part]
    os.kill(pid, signal.SIGKILL)
    code, _, said = machine.end(command)
    assert code == 0, said
    assert "starts again (restart 1)" in said
    assert [row["outcome"] for row in machine.rows()] == ["ok"] * 6
    machine.wait_for(lambda: machine.state() is None)
    machine.wait_for(lambda: not machine.left())


@pytest.mark.parametrize("is_keeper", [True, False])
def test_nothing_is_left_of_a_holder_that_was_killed(machine: Machine, is_keeper: bool) -> None:
    state = machine.state()
    assert state is not None
    keeper = psutil.Process(state["holder"])
    [holder] = [child for child in keeper.children() if child.cmdline() == keeper.cmdline()]
    (keeper if is_keeper else holder).kill()
    machine.wait_for(lambda: not machine.left())
    code, _, said = machine.end(machine.sweep())
    assert code == 0, said
    assert USED not in said


def test_down_waits_for_the_command_that_uses_it(machine: Machine) -> None:
    command = machine.sweep(*RUNS_OF_A_SECOND)
    machine.wait_for(machine.rows)
    code, printed, _ = machine.do("down")
    assert code == 0
    assert "ends with the commands that use it" in printed
    code, _, said = machine.end(command)
    assert code == 0, said
    assert [row["outcome"] for row in machine.rows()] == ["ok"] * 6
    assert "restart" not in said
    machine.wait_for(lambda: not machine.left())


def test_up_again_is_the_same_and_in_another_environment_another(machine: Machine) -> None:
    before = machine.state()
    assert machine.do("up")[0] == 0
    assert machine.state() == before
    assert machine.do("up", A_VARIABLE="1")[0] == 0
    after = machine.state()
    assert before is not None
    assert after is not None
    assert after["holder"] != before["holder"]
    machine.wait_for(lambda: not psutil.pid_exists(before["holder"]))
    code, _, said = machine.end(machine.sweep(A_VARIABLE="1"))
    assert code == 0, said
    assert USED in said


SWEEPS = """
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
import click
print("click of", click.WHOSE)
sys.path.remove(str(Path(__file__).parent))
subprocess.Popen(["sleep", "600"], start_new_session=True)
from dmls_ray.cli.sweep_script import main
main("batch_size")
"""
SMALL = ("--dataset", "synthetic:shape=1x8x8,classes=4,train=160,test=40", "--epochs", "1", "--repeats", "1",
         "--batch-per-rank", "8", "--world-size", "1", "--device", "cpu")  # fmt: skip


def test_a_script_finds_its_own_modules_and_what_it_starts_ends_with_it(machine: Machine) -> None:
    held = held_after_a_sweep(machine)
    (machine.folder / "ask.py").write_text(SWEEPS.replace("import click\n", "WHOSE = 1\n").replace("click.WHOSE", "1"))
    code, printed, said = machine.do(*SMALL, "--out", "a", python=("ask.py",))
    assert code == 0, said
    assert USED in said
    assert "click of 1" in printed
    machine.wait_for(lambda: len(busy(machine)) <= held)
    # A module of a name that the template has loaded from elsewhere.
    (machine.folder / "click.py").write_text("WHOSE = 'the user'")
    (machine.folder / "ask.py").write_text(SWEEPS)
    _, printed, said = machine.do(*SMALL, "--out", "b", python=("ask.py",))
    assert USED not in said
    assert "click.py" in said
    assert "click of the user" in printed


@pytest.mark.parametrize("python", [("-um", "dmls_ray"), ("-mdmls_ray",), ("-X", "faulthandler", "-m", "dmls_ray")])
def test_with_options_of_python_a_command_starts_its_own(machine: Machine, python: tuple[str, ...]) -> None:
    code, _, said = machine.do("sweep", "train.py", "--world-size", "0", python=python)
    assert code == 2
    assert "Python is started by" in said
    assert USED not in said


def test_after_a_loaded_file_has_changed_a_command_starts_its_own_and_up_starts_anew(machine: Machine) -> None:
    changed = PROJECT / "dmls_ray" / "cli" / "__init__.py"
    times = changed.stat()
    try:
        os.utime(changed)
        code, _, said = machine.do("sweep", "train.py", "--world-size", "0")
        assert code == 2
        assert str(changed) in said
        before = machine.state()
        assert machine.do("up")[0] == 0
        assert machine.state() != before
    finally:
        os.utime(changed, ns=(times.st_atime_ns, times.st_mtime_ns))


def tell_parent(descriptor: int) -> None:
    os.write(descriptor, str(os.getppid()).encode())


def template_of(folder: str) -> int:
    """The process of which commands are copies."""
    reader, writer = os.pipe()
    request(COMMANDS, f"{__name__}:tell_parent", (), folder=folder, descriptors=[writer]).close()
    os.close(writer)
    with open(reader) as answer:
        return int(answer.read())


def test_a_command_goes_on_without_its_template_and_the_next_one_has_its_own(machine: Machine) -> None:
    command = machine.sweep(*RUNS_OF_A_SECOND)
    machine.wait_for(machine.rows)
    state = machine.state()
    assert state is not None
    os.kill(template_of(state["templates"]), signal.SIGKILL)
    code, _, said = machine.end(command)
    assert code == 0, said
    assert [row["outcome"] for row in machine.rows()] == ["ok"] * 6
    machine.wait_for(lambda: machine.state() is None)


def test_two_that_start_it_at_once_start_one(machine: Machine) -> None:
    assert machine.do("down")[0] == 0
    for command in [machine.start("up"), machine.start("up")]:
        assert machine.end(command)[0] == 0
    state = machine.state()
    assert state is not None
    assert len([name for name in machine.left() if "gcs_server" in name]) == 1


def test_nothing_comes_up_for_one_that_was_stopped(machine: Machine) -> None:
    assert machine.do("down")[0] == 0
    command = machine.start("up")
    time.sleep(1.0)
    command.send_signal(signal.SIGTERM)
    command.communicate()
    machine.wait_for(lambda: not machine.left())
    assert machine.state() is None


def test_a_command_that_is_suspended_measures_no_further(machine: Machine) -> None:
    command = machine.sweep(*RUNS_OF_A_SECOND)
    machine.wait_for(machine.rows)
    command.send_signal(signal.SIGTSTP)
    time.sleep(2)
    rows = len(machine.rows())
    time.sleep(4)
    assert len(machine.rows()) == rows < 6
    command.send_signal(signal.SIGCONT)
    code, _, said = machine.end(command)
    assert code == 0, said
    assert len(machine.rows()) == 6
