"""Traits of scripts that people have: what is seen of each, and that each ends as it should."""

from __future__ import annotations

import contextlib
import re
import signal
import threading
import time
from pathlib import Path

import psutil
import pytest
import torch

from dmls_ray.records.outcome import Outcome
from dmls_ray.util.fork_server import ForkServer
from dmls_ray.util.importing import missing_extra
from tests.conftest import PROJECT
from tests.workloads.script.conftest import BEGIN, ENTRY, LOOP, Runner


def test_a_script_that_starts_its_ranks_itself_is_told_who_does(run: Runner) -> None:
    source = """
import os
import torch
import torch.multiprocessing as mp

def work(rank):
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    os.write(1, f"worked {rank} ".encode())  # not in parts, between those of the other one

if __name__ == "__main__":
    mp.start_processes(work, nprocs=2, start_method="fork")
"""
    result = run.one(source)
    assert result.outcome is Outcome.ERROR
    assert "leave that to dmls_ray: --world-size 2" in result.reason
    assert "int(os.environ.get('RANK', 0)), as docs/scripts.md shows" in result.reason
    assert "worked 1" in run.log


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_script_that_started_its_ranks_itself_is_seen_after_the_change_of_its_page(
    run: Runner, world_size: int
) -> None:
    page = (PROJECT / "docs" / "scripts.md").read_text()
    section = page.partition("### A script that starts its ranks itself")[2]
    (change, *_) = re.findall(r"^```python\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    source = """
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def work(rank, world_size, batch_size):
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    model = DistributedDataParallel(torch.nn.Linear(2, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(30):
        optimizer.zero_grad()
        model(torch.ones(batch_size, 2)).sum().backward()
        optimizer.step()
    dist.destroy_process_group()

batch_size = 4
"""
    # With one rank, another program of this machine may have the usual port.
    results = run.ranks(source + change.replace("29500", "0"), world_size=world_size)
    assert [result.outcome for result in results] == [Outcome.OK] * world_size
    assert results[0].values["samples_per_step"] == 4


def test_nccl_without_a_gpu_is_the_error_of_the_script(run: Runner) -> None:

    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    results = run.ranks(BEGIN + "torch.distributed.init_process_group('nccl')\n" + LOOP, world_size=2)
    assert {result.outcome for result in results} == {Outcome.ERROR}
    assert "(train.py, line " in results[0].reason


def test_all_that_a_script_has_started_ends_with_it(run: Runner) -> None:
    source = """
import os, time
for number in range(50):
    if os.fork() == 0:
        if number % 2:
            os.setsid()
        time.sleep(600)
raise SystemExit(4)
"""
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    assert run.one(source).reason.startswith("exit code 4")
    left = {process.pid for process in psutil.Process().children(recursive=True)} - before
    assert left == set()


def test_a_script_that_hangs_leaves_the_stacks_of_its_threads(run: Runner) -> None:
    source = """
import time
def waits_for_ever():
    print("waiting", flush=True)
    time.sleep(600)
waits_for_ever()
"""
    thread = threading.Thread(target=run.one, args=(source,))
    thread.start()
    log = run.folder / "rank0.log"
    while not log.exists() or "waiting" not in log.read_text():
        time.sleep(0.05)
    run.servers[0].kill_child()
    thread.join()
    assert "in waits_for_ever" in log.read_text()


def test_a_crash_leaves_a_stack_and_the_next_run_is_that_of_a_fresh_process(run: Runner) -> None:
    crash = f"""
import os, torch
def crashes():
    os.kill(os.getpid(), {int(signal.SIGSEGV)})
torch.set_default_dtype(torch.float64)
crashes()
"""
    result = run.one(crash)
    assert (result.outcome, result.reason) == (Outcome.KILLED, "its process ended with exit code -11")
    assert "in crashes" in run.log
    assert run.one(BEGIN + LOOP).outcome is Outcome.OK


LOGGER = """
class Run:
    def log(self, data, step=None):
        pass
"""


def test_numbers_for_loggers_are_metrics(run: Runner) -> None:
    package = run.folder / "wandb" / "sdk"
    package.mkdir(parents=True)
    (run.folder / "wandb" / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "wandb_run.py").write_text(LOGGER)
    source = """
import os
from wandb.sdk.wandb_run import Run
print(os.environ["WANDB_MODE"])
for value in (1.0, 2.0):
    Run().log({"val/score": torch.tensor(value), "table": "text"})
"""
    if not missing_extra("tensorboard", "tensorboard", "this test"):
        source += """
from torch.utils.tensorboard import SummaryWriter
with SummaryWriter(os.path.dirname(__file__)) as writer:
    writer.add_scalar("quality", 0.5, 1)
"""
    result = run.one(BEGIN + source + LOOP)
    assert result.outcome is Outcome.OK, result.reason
    assert result.run.reported["val/score"] == 2.0
    assert "table" not in result.run.reported
    assert result.run.reported.get("quality", 0.5) == 0.5
    assert "offline" in run.log


def test_numbers_for_a_logger_that_a_library_has_imported_before_the_run_are_metrics_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site-packages" / "wandb" / "sdk"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text("")
    (package / "wandb_run.py").write_text(LOGGER)
    monkeypatch.syspath_prepend(str(tmp_path / "site-packages"))
    source = """
print("imported", "wandb.sdk.wandb_run" in sys.modules)
from wandb.sdk.wandb_run import Run
Run().log({"score": 2.0})
"""
    with contextlib.closing(ForkServer("dmls_ray.training.rank:preload", ENTRY, "wandb.sdk.wandb_run")) as server:
        run = Runner([server], tmp_path)
        result = run.one(BEGIN + source + LOOP)
    assert result.outcome is Outcome.OK, result.reason
    assert "imported True" in run.log
    assert result.run.reported["score"] == 2.0


def test_files_that_a_run_writes_into_its_working_folder_are_named(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = run.folder / "place"
    (place / "data").mkdir(parents=True)
    (place / "data" / "old.txt").write_text("kept")
    monkeypatch.chdir(place)
    source = BEGIN + "torch.save(model.state_dict(), 'data/checkpoint.pt')\n" + LOOP
    assert run.one(source).run.facts["written"] == ["data/checkpoint.pt"]
    assert run.one(source, own_folder=True).outcome is Outcome.ERROR  # it has no folder data there
    assert run.one(BEGIN + LOOP, own_folder=True).outcome is Outcome.OK


def test_flags_of_parsers_of_libraries_and_of_known_arguments_are_read(tmp_path: Path) -> None:
    from dmls_ray.workloads.script.flags import FlagReader

    (tmp_path / "train.py").write_text("""
import argparse, dataclasses

@dataclasses.dataclass
class Arguments:
    per_device_batch: int = 8
    bf16: bool = False

class DataclassParser(argparse.ArgumentParser):
    def __init__(self, cls):
        super().__init__()
        for field in dataclasses.fields(cls):
            kind = {"type": int} if field.type is int else {"action": "store_true"}
            self.add_argument(f"--{field.name}", default=field.default, **kind)
    def parse_into_dataclasses(self):
        return self.parse_known_args()[0]

DataclassParser(Arguments).parse_into_dataclasses()
""")
    reader = FlagReader(str(tmp_path / "train.py"), ["--per_device_batch", "4", "--other", "1"])
    try:
        assert {name: flag.kind for name, flag in reader.flags.items()} == {
            "per_device_batch": "value",
            "bf16": "switch",
        }
        assert {name for name, flag in reader.flags.items() if flag.given is not None} == {"per_device_batch"}
        assert reader.error_of(["--per_device_batch", "x"]) != ""
        assert reader.error_of(["--unknown", "1"]) == ""
    finally:
        reader.close()


def test_flags_of_a_parser_before_the_main_one_are_read_too(tmp_path: Path) -> None:
    from dmls_ray.workloads.script.flags import FlagReader

    (tmp_path / "train.py").write_text("""
import argparse

first = argparse.ArgumentParser(add_help=False)
first.add_argument("--config", default="")
given, left = first.parse_known_args()
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.set_defaults(batch_size=16 if given.config else 8)
parser.parse_args(left)
raise SystemExit("went on")
""")
    reader = FlagReader(str(tmp_path / "train.py"), ["--config", "x"])
    try:
        assert set(reader.flags) == {"config", "batch_size"}
        assert reader.specs["batch_size"].default == 16
        assert reader.error_of(["--config", "x", "--batch-size", "4"]) == ""
        assert "--sise" in reader.error_of(["--config", "x", "--sise", "4"])
    finally:
        reader.close()


def test_a_script_can_start_cuda_since_no_process_before_it_has(run: Runner) -> None:
    result = run.one(BEGIN + "print(f'{{\"poisoned\": {int(torch.cuda._is_in_bad_fork())}}}')\n" + LOOP)
    assert result.run.reported["poisoned"] == 0


@pytest.mark.parametrize(
    "loop",
    [
        "try:\n    LOOP\nexcept:\n    print('failed')\n    sys.exit(1)",
        "try:\n    LOOP\nexcept BaseException as error:\n    raise RuntimeError('failed') from error",
        "try:\n    LOOP\n    best = 1\nfinally:\n    print(best)",
        "with open(os.devnull, 'w') as sys.stdout:\n    LOOP",
        "if os.fork() == 0:\n    sys.exit(0)\nos.wait()\nLOOP",
    ],
)
def test_what_a_script_does_when_it_is_ended_does_not_matter(run: Runner, loop: str) -> None:
    indented = LOOP.strip().replace("\n", "\n    ")
    result = run.one(BEGIN + loop.replace("    LOOP", f"    {indented}").replace("\nLOOP", LOOP))
    assert (result.outcome, result.run.metrics["steps"]) == (Outcome.OK, 20), result.reason


def test_a_printed_text_that_is_no_number_ends_no_run(run: Runner) -> None:
    result = run.one(BEGIN + "print('acc: none')\n" + LOOP, patterns={"acc": r"acc: (\S+)"})
    assert result.outcome is Outcome.OK, result.reason
    assert result.run.reported["acc"] == "none"
