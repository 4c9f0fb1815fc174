"""Traits of scripts that people have: what is seen of each, and that each ends as it should."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import psutil
import pytest
import torch

from dmls_ray.analysis.findings.same_training import ROUNDING
from dmls_ray.records.outcome import Outcome
from dmls_ray.util.importing import missing_extra
from tests.workloads.script.conftest import BEGIN, LOOP, Runner

SCALED = """
scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
for epoch in range(100):
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x), y)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
"""

ITERABLE = """
class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        while True:
            yield torch.randn(8), torch.randint(0, 4, ()).item()

for x, y in DataLoader(Stream(), 12):
    step(x, y)
"""

WORKERS = """
for x, y in DataLoader(data, 16, num_workers=2):
    step(x, y)
"""

CHECKPOINTED = """
from torch.utils.checkpoint import checkpoint

class Deep(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.head = nn.Linear(8, 8), nn.Linear(8, 4)
    def forward(self, x):
        return self.head(checkpoint(self.inner, x, use_reentrant=False))

model = Deep()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""

TEACHER = """
for epoch in range(100):
    for x, y in loader:
        with torch.no_grad():
            model(x)
        step(x, y)
"""


@pytest.mark.parametrize(
    ("loop", "samples", "number_format"),
    [
        (SCALED, 16, "autocast bfloat16"),
        (ITERABLE, 12, "float32"),
        (CHECKPOINTED + LOOP, 16, "float32"),
        (TEACHER, 16, "float32"),
    ],
)
def test_samples_and_number_format_of_usual_loops_are_seen(
    run: Runner, loop: str, samples: int, number_format: str
) -> None:
    result = run.one(BEGIN + loop)
    assert result.outcome is Outcome.OK, result.reason
    assert result.run["steps"] == 20
    assert result.values["samples_per_step"] == samples
    assert result.run["counted_by"] == "loader and model agree"
    assert result.run["number_format"] == number_format
    assert 0 < result.run["first_loss"] < 10  # as it was before a scaler
    assert result.values["step_ms_p50"] > 0


def test_three_steps_are_enough_to_see_samples(run: Runner) -> None:
    result = run.one(BEGIN + LOOP, steps=3)
    assert result.values["samples_per_s"] > 0
    assert result.run["counted_by"] == "loader and model agree"


def test_workers_of_a_loader_are_not_taken_for_the_script(run: Runner) -> None:
    result = run.one(BEGIN + WORKERS, steps=10)
    assert (result.outcome, result.run["steps"]) == (Outcome.OK, 10)
    assert result.values["samples_per_step"] == 16


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
    assert "worked 1" in run.log


def test_nccl_without_a_gpu_is_the_error_of_the_script(run: Runner) -> None:
    import torch

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
    assert (result.outcome, result.reason) == (Outcome.KILLED, str(-signal.SIGSEGV))
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
    assert result.run["val/score"] == 2.0
    assert "table" not in result.run
    assert result.run.get("quality", 0.5) == 0.5
    assert "offline" in run.log


def test_files_that_a_run_writes_into_its_working_folder_are_named(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = run.folder / "place"
    (place / "data").mkdir(parents=True)
    (place / "data" / "old.txt").write_text("kept")
    monkeypatch.chdir(place)
    source = BEGIN + "torch.save(model.state_dict(), 'data/checkpoint.pt')\n" + LOOP
    assert run.one(source).run["written"] == ["data/checkpoint.pt"]
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
        assert {name for name, flag in reader.flags.items() if flag.is_given} == {"per_device_batch"}
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


@pytest.mark.slow
def test_steps_of_a_compiled_model_are_seen_and_the_compilation_is_warm_up(run: Runner) -> None:
    result = run.one(BEGIN + "model = torch.compile(model)\n" + LOOP, steps=30)
    assert (result.outcome, result.run["steps"]) == (Outcome.OK, 30), result.reason
    assert result.values["samples_per_step"] == 16
    assert result.values["step_ms_p95"] < 500


def test_losses_of_the_first_steps_tell_accumulation_from_another_learning_rate(run: Runner) -> None:
    whole = BEGIN.replace("nn.Linear(8, 4)", "nn.Sequential(nn.Linear(8, 64), nn.GELU(), nn.Linear(64, 4))")
    accumulated = """
loader = DataLoader(data, 4)
for number, (x, y) in enumerate(loader, 1):
    (nn.functional.cross_entropy(model(x), y) / 4).backward()
    if number % 4 == 0:
        optimizer.step()
        optimizer.zero_grad()
"""
    one = run.one(whole + LOOP)
    four = run.one(whole + accumulated, steps=10)
    faster = run.one(whole.replace("lr=0.1", "lr=0.2") + LOOP)
    assert [result.values["samples_per_step"] for result in (one, four, faster)] == [16, 16, 16]
    assert four.values["backward_passes"] == 4
    base = one.values["early_loss"]
    assert four.values["early_loss"] * 4 == pytest.approx(base, rel=ROUNDING)
    assert faster.values["early_loss"] != pytest.approx(base, rel=ROUNDING)
    assert faster.run["first_loss"] == pytest.approx(one.run["first_loss"], rel=ROUNDING)


def test_a_script_can_start_cuda_since_no_process_before_it_has(run: Runner) -> None:
    result = run.one(BEGIN + "print(f'{{\"poisoned\": {int(torch.cuda._is_in_bad_fork())}}}')\n" + LOOP)
    assert result.run["poisoned"] == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_memory_is_that_of_the_allocator_and_autocast_is_seen(run: Runner) -> None:
    loop = """
model.cuda()
big = torch.empty(2**26, device="cuda")
for epoch in range(100):
    for x, y in loader:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
    result = run.one(BEGIN + loop, device="cuda")
    assert (result.outcome, result.run["steps"]) == (Outcome.OK, 20), result.reason
    assert 256 < result.values["peak_mem_mib"] < 400
    assert result.run["number_format"] == "autocast bfloat16"
    assert result.values["samples_per_step"] == 16
    assert result.values["backward_ms"] > 0


EVALUATED = """
test_data = TensorDataset(torch.randn(512, 8), torch.randint(0, 4, (512,)))
test_loader = DataLoader(test_data, 64)

def evaluate(tested):
    time.sleep(0.4)
    tested.eval()
    for x, y in test_loader:
        tested(x)
    tested.train()

"""
"""Tests take hundreds of times as long as a step."""


@pytest.mark.parametrize(
    "tested",
    [
        "wrapped = nn.Sequential(model)\ntested = model",
        "tested = nn.Linear(8, 4).requires_grad_(False)  # averaged weights, say",
        "tested = model  # with gradients",
    ],
)
def test_a_test_in_the_middle_of_an_epoch_is_in_no_rate(run: Runner, tested: str) -> None:
    lines = """
for number, (x, y) in enumerate(loader):
    step(x, y)
    if number % 5 == 4:
        evaluate(tested)
"""
    result = run.one(BEGIN + EVALUATED + tested + lines, steps=16)
    assert result.outcome is Outcome.OK, result.reason
    assert result.values["samples_per_step"] == 16
    assert result.values["step_ms_p95"] < 400


def test_a_second_stage_of_the_training_goes_on_with_the_steps(run: Runner) -> None:
    source = """
for x, y in loader:
    step(x, y)
second = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(100):
    for x, y in loader:
        second.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        second.step()
"""
    result = run.one(BEGIN + source, steps=40)
    assert (result.outcome, result.run["steps"]) == (Outcome.OK, 40)
    assert result.values["backward_passes"] == pytest.approx(1.25)  # ten until it was noticed


def test_lists_of_images_and_descriptions_have_as_many_samples_as_items(run: Runner) -> None:
    source = """
class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def forward(self, images, targets):
        return sum(self.layer(image).mean() for image in images)

model = Detector()
samples = [(torch.randn(3, 4, 4), {"box": number}) for number in range(512)]
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for images, targets in DataLoader(samples, 8, collate_fn=lambda batch: tuple(zip(*batch))):
    model(images, targets).backward()
    optimizer.step()
"""
    result = run.one(BEGIN + source)
    assert result.values["samples_per_step"] == 8
    assert result.run["counted_by"] == "loader and model agree"


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
    assert (result.outcome, result.run["steps"]) == (Outcome.OK, 20), result.reason


def test_a_printed_text_that_is_no_number_ends_no_run(run: Runner) -> None:
    result = run.one(BEGIN + "print('acc: 12%')\n" + LOOP, patterns={"acc": r"acc: (\S+)"})
    assert result.outcome is Outcome.OK, result.reason
    assert result.run["acc"] == "12%"
