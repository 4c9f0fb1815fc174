"""Real sweeps through Ray, run from the command line as a user runs them."""

from __future__ import annotations

import contextlib
import html
import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from dmls_ray import load
from dmls_ray.analysis.summary import summarize
from dmls_ray.execution.supervisor import stopped_text
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.workloads.classification.config import TrialConfig
from tests.conftest import GRID, PROJECT, SMALL, Command, call, char_lm_example, command_line, free_ports
from tests.new_processes import run_ranks
from tests.workloads.classification.data.samples import READ_ARRAYS, write_arrays

METRICS = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")


def epoch_metrics(record: Any) -> list[tuple[float, ...]]:
    """Return the metrics of each epoch of a run."""
    return [tuple(epoch.metrics[name] for name in METRICS) for epoch in record.epochs]


def lines(folder: Path) -> list[dict[str, Any]]:
    """Return the complete lines of runs.jsonl; none where the file does not exist."""
    path = folder / "runs.jsonl"
    if not path.exists():
        return []
    # The last line may be incomplete while a sweep writes it.
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


class Family:
    """Process of a sweep and all its descendants."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._first = psutil.Process(process.pid)
        self.members: set[psutil.Process] = {self._first}

    def look(self) -> None:
        """Add the processes that were started since the last call."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self.members |= set(self._first.children(recursive=True))

    def left(self, within_s: float = 10) -> list[str]:
        """Return the command lines of the processes that still run after so many seconds."""
        _, alive = psutil.wait_procs(self.members, timeout=within_s)
        return [" ".join(process.cmdline())[:80] for process in alive if process.is_running()]


def start(*command: str, cwd: Path, **options: Any) -> subprocess.Popen[str]:
    """Start a sweep in a new process group, as a terminal does; by default its output is lost."""
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, cwd=cwd, text=True, start_new_session=True, **(streams | options))


def python(code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a program as a notebook runs its cells."""
    done = call([sys.executable, "-c", code], cwd, env={**os.environ, "PYTHONPATH": str(PROJECT)})
    assert done.returncode == 0, done.stderr
    return done


def by_model(folder: Path) -> dict[str, Any]:
    """Return the records of a folder by the names of their models, without modules."""
    return {record.config["model"].rpartition(":")[2]: record for record in load(folder).records}


def wait_for(process: subprocess.Popen[str], is_there: Callable[[], object]) -> None:
    """Wait until something is there, or the process has ended."""
    while not is_there() and process.poll() is None:
        time.sleep(0.02)


def kill(process: subprocess.Popen[str]) -> None:
    """Kill the command of a sweep, and wait until all of its processes have ended."""
    family = Family(process)
    family.look()
    process.kill()
    process.wait()
    assert not family.left(within_s=60)


@pytest.fixture(scope="module")
def main_job(main_job_folder: Path) -> Path:
    """Working folder of a finished sweep, which is the main job on a small data set."""
    deadline = time.monotonic() + 250
    while not (exit_code := main_job_folder / "exit_code.txt").exists():
        assert time.monotonic() < deadline, (main_job_folder / "stdout.txt").read_text()
        time.sleep(0.1)
    assert (exit_code.read_text(), (main_job_folder / "stderr.txt").read_text()) == ("0\n", "")
    return main_job_folder


def test_the_main_job_prints_rows_table_and_answer_and_writes_its_files(main_job: Path) -> None:
    out = (main_job / "stdout.txt").read_text()
    counters = re.findall(r"^\[ *(\d+)/12\] ", out, re.MULTILINE)
    assert counters == [str(number) for number in range(1, 13)]
    assert re.search(r"^batch_per_rank 16 vs 8 +2 ranks +", out, re.M)
    folder = main_job / "results" / "batch_size"
    assert {path.name for path in folder.iterdir()} == {
        ".lock", "runs.jsonl", "sweep.json", "runs.csv", "ranks.csv", "epochs.csv", "runs.parquet", "table.md",
        "table.csv", "report.html", "tensorboard", "sweep.toml",
    }  # fmt: skip
    answer = summarize(load(folder)).answer
    shown = "\n".join(answer.lines(100))
    assert f"\n\n{shown}\n\nReport: results/batch_size/report.html; next to it table.md" in out
    assert html.escape(answer.headline) in (folder / "report.html").read_text()
    events = list(folder.glob("tensorboard/*repeat=*/events.*"))
    assert len(events) == 12
    assert len(list(folder.glob("tensorboard/*repeat=*/rank-*"))) == 18
    results = load(folder)
    assert results.runs["outcome"].tolist() == ["ok"] * 12
    assert results.runs["run_id"].is_unique
    assert (len(results.ranks), len(results.epochs)) == (18, 24)
    described = json.loads((folder / "sweep.json").read_text())["sessions"]
    assert described[0]["order_seed"] == 0
    assert described[0]["axes"]["batch_per_rank"] == [8, 16]


def test_a_record_contains_how_the_run_was_measured(main_job: Path) -> None:
    records = sorted(load(main_job / "results" / "batch_size").records, key=lambda record: record.order)
    for record in records:
        phases = ("setup_s", "warmup_s", "train_s", "eval_s", "checkpoint_s")
        assert sum(record.metrics.get(name) or 0.0 for name in phases) <= record.metrics["total_s"] * 1.02
        assert record.metrics["images_per_s"] > 0
        assert "overhead_s" in record.metrics or record is records[0]
        assert record.metrics["peak_mem_mib"] > 100
        assert record.backend == ("gloo" if record.config["world_size"] == 2 else "")
        assert len(record.ranks) == record.config["world_size"]
        assert record.machine["cores"] >= 1
        assert set(record.versions) >= {"python", "torch", "ray"}
        assert record.config["seed"] == 0
        assert record.seed == record.repeat * 10_000


def test_the_memory_of_a_batch_is_equal_in_all_repeats_and_grows_with_the_batch(main_job: Path) -> None:
    sizes: dict[tuple[int, int], set[float]] = {}
    for record in load(main_job / "results" / "batch_size").records:
        assert [rank.no_tensor_mem for rank in record.ranks] == [""] * len(record.ranks)
        trial = record.config["world_size"], record.config["batch_per_rank"]
        sizes.setdefault(trial, set()).add(record.metrics["tensor_mem_mib"])
    assert [len(values) for values in sizes.values()] == [1] * 4
    for world_size in (1, 2):
        assert max(sizes[world_size, 8]) < max(sizes[world_size, 16])
    assert "tensor memory" in (main_job / "stdout.txt").read_text()


def test_runs_of_a_reused_worker_equal_runs_of_new_processes_bit_for_bit(main_job: Path) -> None:
    records = load(main_job / "results" / "batch_size").records
    for world_size in (1, 2):
        last = [record for record in records if record.config["world_size"] == world_size][-1]
        ranks = run_ranks(TrialConfig(**{**last.config, "seed": last.seed}))
        expected = [tuple(epoch.metrics[name] for name in METRICS) for epoch in ranks[0].run.epochs]
        assert epoch_metrics(last) == expected


@pytest.mark.slow
def test_the_same_command_again_runs_nothing_and_a_changed_flag_adds_to_the_folder(main_job: Path) -> None:
    folder = main_job / "results" / "batch_size"
    before = (folder / "runs.jsonl").read_bytes()

    def again(*flags: str) -> str:
        done = call(command_line("batch_size", *GRID, *flags), main_job)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "/12]" not in again()
    assert (folder / "runs.jsonl").read_bytes() == before
    out = again("--batch-per-rank", "16", "32", "--world-size", "1")
    assert "[3/3]" in out
    assert len(lines(folder)) == 15
    assert (folder / "runs.jsonl").read_bytes().startswith(before)


@pytest.mark.slow
def test_a_sweep_killed_at_any_moment_continues_where_it_was(
    main_job: Path, sweep_command: Command, tmp_path: Path
) -> None:
    folder = tmp_path / "results" / "batch_size"
    chance = random.Random(os.urandom(8))
    stop_after, delay = chance.randrange(0, 11), chance.uniform(0, 0.05)
    process = start(*command_line("batch_size", *GRID), cwd=tmp_path)
    wait_for(process, lambda: len(lines(folder)) >= stop_after)
    time.sleep(delay)
    kill(process)
    moment = f"killed after {stop_after} lines and {delay:.3f} s"
    kept = (folder / "runs.jsonl").read_bytes() if (folder / "runs.jsonl").exists() else b""
    done = sweep_command("batch_size", *GRID)
    assert done.returncode == 0, moment + done.stderr
    written = (folder / "runs.jsonl").read_bytes()
    assert written.startswith(kept[: kept.rfind(b"\n") + 1]), moment
    records = load(folder).records
    assert len(lines(folder)) == len({record.run_id for record in records}) == 12, moment
    assert (folder / "runs.csv").exists()
    undisturbed = {record.run_id: epoch_metrics(record) for record in load(main_job / "results" / "batch_size").records}
    assert all(epoch_metrics(record) == undisturbed[record.run_id] for record in records), moment


@pytest.mark.slow
def test_a_run_of_a_killed_sweep_resumes_from_its_checkpoint_with_equal_results(
    sweep_command: Command, tmp_path: Path
) -> None:
    flags = (
        "grid", "--dataset", SMALL, "--batch-per-rank", "8", "--world-size", "2", "--epochs", "150", "--repeats", "1",
        "--dropout", "0.3", "--augmentation", "flip-crop", "--lr-schedule", "cosine", "--oversubscribe",
        "--device", "cpu",
    )  # fmt: skip
    process = start(*command_line(*flags, "--checkpoints"), cwd=tmp_path)
    runs = tmp_path / "results" / "grid" / "runs"
    wait_for(process, lambda: list(runs.glob("*/checkpoints/[1-9]?.rank-1.pt")))
    kill(process)
    assert not lines(tmp_path / "results" / "grid"), "the sweep was killed during the run"
    assert sweep_command(*flags, "--checkpoints").returncode == 0
    assert sweep_command(*flags, "--out", "undisturbed").returncode == 0
    (resumed,), (undisturbed,) = load(tmp_path / "results" / "grid").records, load(tmp_path / "undisturbed").records
    assert (resumed.metrics["resumed_epoch"] or 0) >= 9
    assert "resumed_epoch" not in undisturbed.metrics
    assert epoch_metrics(resumed) == epoch_metrics(undisturbed)
    assert len(resumed.epochs) == 150


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["bench", "search"])
def test_a_full_disk_ends_a_sweep_with_one_line_and_the_same_command_completes_it_when_there_is_space(
    mode: str, tmp_path: Path
) -> None:
    if os.geteuid() != 0 or not shutil.which("unshare"):
        pytest.skip("mounting a small file system needs root and unshare")
    flags = ["--dataset", SMALL, "--epochs", "2", "--repeats", "10", "--device", "cpu", "--batch-per-rank", "8", "16"]
    if mode == "search":
        flags = [
            "--dataset", SMALL, "--epochs", "9", "--device", "cpu", "--search", "--searcher", "grid",
            "--lr", *(f"1e-{power}" for power in range(1, 21)),
        ]  # fmt: skip
    sweep = shlex.join(command_line("grid", *flags, "--out", "disk"))
    script = f"""
        mkdir disk && mount -t tmpfs -o size=96k none disk
        {sweep} > out1 2> err1; echo $? > code1
        cp disk/runs.jsonl first.jsonl
        mount -o remount,size=16m disk
        {sweep} > out2 2> err2; echo $? > code2
        cp disk/runs.jsonl second.jsonl
    """
    subprocess.run(
        ["unshare", "-m", "sh", "-ec", script.replace("; echo", " || true; echo")], cwd=tmp_path, check=False
    )
    first, second = ((tmp_path / f"{name}.jsonl").read_text().splitlines() for name in ("first", "second"))
    assert (tmp_path / "err1").read_text().count("\n") == 1, (tmp_path / "err1").read_text()
    assert "runs.jsonl cannot be written (No space left on device)" in (tmp_path / "err1").read_text()
    assert 0 < len(first) < 20
    assert second[: len(first)] == first
    assert len({json.loads(line)["run_id"] for line in second}) == 20
    assert (tmp_path / "err2").read_text() == ""


MODEL = """
import torch
from edited_width import WIDTH
def net(shape, classes):
    first = torch.nn.Linear(shape[0] * shape[1] * shape[2], WIDTH)
    return torch.nn.Sequential(torch.nn.Flatten(), first, torch.nn.ReLU(), torch.nn.Linear(WIDTH, classes))
"""


@pytest.mark.slow
def test_after_an_edit_the_same_command_trains_the_new_model_from_its_start_and_shows_it_alone(
    sweep_command: Command, tmp_path: Path
) -> None:
    (tmp_path / "edited_net.py").write_text(MODEL)
    (tmp_path / "edited_width.py").write_text("WIDTH = 8\n")
    shared = ("--model", "edited_net:net", "--dataset", SMALL, "--repeats", "1", "--device", "cpu", "--checkpoints")
    long = ("grid", *shared, "--batch-per-rank", "8", "--epochs", "150")
    process = start(*command_line(*long), cwd=tmp_path)
    folder = tmp_path / "results" / "grid"
    wait_for(process, lambda: list(folder.glob("runs/*/checkpoints/[1-9]?.rank-0.pt")))
    kill(process)
    (tmp_path / "edited_width.py").write_text("WIDTH = 9\n")
    assert sweep_command(*long).returncode == 0
    (record,) = load(folder).records
    assert (record.metrics.get("resumed_epoch"), len(record.epochs)) == (None, 150)
    assert list(record.code) == ["edited_net.py", "edited_net.py and its imports", "edited_width.py"]

    (tmp_path / "edited_width.py").write_text("WIDTH = 10\n")
    done = sweep_command("grid", *shared, "--batch-per-rank", "8", "16", "--epochs", "150")
    assert "1 run of other versions of edited_width.py left out; --stale includes them." in done.stdout
    later = load(folder).records
    assert len(later) == 2
    assert {item.metrics["parameters"] for item in later}.isdisjoint({record.metrics["parameters"]})
    assert len(load(folder, stale=True).records) == 3


@pytest.mark.slow
@pytest.mark.parametrize("streams", ["|", "2>&1 |"])
def test_a_sweep_piped_into_head_runs_to_its_end_without_a_traceback(tmp_path: Path, streams: str) -> None:
    words = shlex.join(command_line("batch_size", *GRID, "--repeats", "3"))
    script = f"{words} {streams} head -n 1; exit ${{PIPESTATUS[0]}}"
    done = call(["bash", "-c", script], tmp_path)
    assert done.returncode == 0, done.stderr
    assert (done.stdout.count("\n"), done.stderr.count("\n")) == (1, 0)
    assert len(load(tmp_path / "results" / "batch_size").records) == len(lines(tmp_path / "results" / "batch_size")) > 2


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_sweep_ends_in_time_keeps_its_runs_and_leaves_no_process(
    number: signal.Signals, tmp_path: Path
) -> None:
    (tmp_path / "tests").symlink_to(PROJECT / "tests")
    started_at = time.monotonic()
    sweep = command_line("batch_size", *GRID, "--model", "tests.failing:slow_on_request")
    process = start(*sweep, cwd=tmp_path, stderr=subprocess.PIPE)
    family, folder = Family(process), tmp_path / "results" / "batch_size"
    while len(lines(folder)) < 1 and process.poll() is None:
        family.look()
        time.sleep(0.05)
    (tmp_path / "slow").touch()  # to its end the sweep would take minutes
    interrupted_at = time.monotonic()
    if number is signal.SIGINT:
        os.killpg(process.pid, number)  # Ctrl-C reaches every process of the command
    else:
        process.send_signal(number)
    # It ends within 5 s, and on a busy machine within a third of the time that its start took there, of 15 s otherwise.
    within_s = max(5, (interrupted_at - started_at) / 3)
    _, err = process.communicate(timeout=150)
    assert not family.left(within_s=max(0.1, interrupted_at + within_s - time.monotonic()))
    assert time.monotonic() - interrupted_at < within_s + 0.5
    assert process.returncode == 130
    assert err == f"{stopped_text('results/batch_size')}\n"
    assert len(load(folder).records) == len(lines(folder)) >= 1
    assert (folder / "report.html").exists()


@pytest.mark.slow
def test_a_run_that_fails_is_a_row_and_the_other_runs_are_unaffected(
    main_job: Path, sweep_command: Command, tmp_path: Path
) -> None:
    (tmp_path / "tests").symlink_to(PROJECT / "tests")
    failing = [f"tests.training.probes:{name}" for name in ("raising", "dying_once")]
    flags = ("--repeats", "1", "--batch-per-rank", "8", "--world-size", "2", "--model", "digits_convnet", *failing)
    done = sweep_command("grid", *GRID, *flags, "--checkpoints", "--save-weights")
    assert done.returncode == 1, done.stderr
    assert "error: RuntimeError: a fault in the user's model." in done.stdout
    records = by_model(tmp_path / "results" / "grid")
    fault = records["raising"]
    assert (fault.outcome, fault.attempts) == ("error", 1)
    assert fault.reason == "RuntimeError: a fault in the user's model"
    assert "probes.py" in fault.traceback
    assert (records["dying_once"].outcome, records["dying_once"].attempts) == ("ok", 2)
    undisturbed = {record.run_id: epoch_metrics(record) for record in load(main_job / "results" / "batch_size").records}
    unaffected = records["digits_convnet"]
    assert unaffected.outcome == "ok"
    assert epoch_metrics(unaffected) == undisturbed[unaffected.run_id]
    run_folder = tmp_path / "results" / "grid" / "runs" / unaffected.run_id
    assert sorted(path.name for path in run_folder.iterdir()) == ["weights.json", "weights.pt"]
    weights = torch.load(run_folder / "weights.pt", weights_only=True)
    assert sum(value.numel() for value in weights.values()) == unaffected.metrics["parameters"]


@pytest.mark.slow
def test_a_run_whose_rank_always_dies_is_killed_and_other_failures_have_other_outcomes(
    sweep_command: Command, tmp_path: Path
) -> None:
    outcomes = {"exploding": "diverged", "out_of_memory": "oom", "dying": "killed", "watched": "ok"}
    (tmp_path / "tests").symlink_to(PROJECT / "tests")
    models = [f"tests.training.probes:{name}" for name in outcomes]
    flags = ("--repeats", "1", "--batch-per-rank", "8", "--world-size", "1", "2")
    done = sweep_command("grid", *GRID, *flags, "--model", *models)
    assert done.returncode == 1, done.stderr
    for record in load(tmp_path / "results" / "grid").records:
        name = record.config["model"].rpartition(":")[2]
        assert record.outcome == outcomes[name]
        assert record.attempts == (2 if name == "dying" else 1)
        assert len(record.epochs) == {"diverged": 1, "ok": 2}.get(record.outcome, 0)
        if name == "dying":
            died = f"1 of {record.config['world_size']} ranks died"
            assert record.reason == f"{died}: its process ended with exit code -{signal.SIGKILL.value}"


def test_more_ranks_than_cores_are_skipped_with_the_reason_and_run_on_request(
    sweep_in_process: Command, tmp_path: Path
) -> None:
    many = str(os.cpu_count() or 1) + "0"
    flags = ("--dataset", SMALL, "--batch-per-rank", "8", "--world-size", many, "--repeats", "2", "--device", "cpu")
    done = sweep_in_process("grid", *flags)
    assert done.returncode == 1, done.stderr
    assert f"world_size={many} does not fit on this machine of" in done.stdout
    records = load(tmp_path / "results" / "grid").records
    assert [record.outcome.value for record in records] == ["skipped", "skipped"]
    sweep_in_process("grid", *flags)
    assert len(lines(tmp_path / "results" / "grid")) == 2, "a skipped run is recorded once"


RAY = str(Path(sys.executable).with_name("ray"))


@contextlib.contextmanager
def cluster(cwd: Path, *flags: str) -> Iterator[tuple[Family, str, dict[str, str]]]:
    """Start a cluster of two cores; yield its processes, its address and the environment of its users."""
    # The paths of sockets must be short. `ray stop` is not used, because it ends every Ray on this machine.
    with tempfile.TemporaryDirectory(prefix="r-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        (port,) = free_ports(1)
        environment = {**os.environ, "RAY_AUTH_MODE": "disabled", "RAY_TMPDIR": folder}
        head = start(
            RAY, "start", "--head", "--block", f"--port={port}", "--num-cpus=2", "--disable-usage-stats", *flags,
            cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment,
        )  # fmt: skip
        family = Family(head)
        try:
            assert any("Ray runtime started" in line for line in head.stdout), "the cluster did not start"
            yield family, f"127.0.0.1:{port}", environment
        finally:
            family.look()
            head.terminate()
            for process in psutil.wait_procs(family.members, timeout=10)[1]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            head.communicate()


@pytest.mark.slow
def test_a_sweep_on_a_running_cluster_does_not_end_the_cluster(tmp_path: Path) -> None:
    with cluster(tmp_path, "--include-dashboard=false") as (family, address, environment):
        words = command_line("batch_size", *GRID, "--repeats", "1", "--address", address)
        done = call(words, tmp_path, env=environment)
        assert done.returncode == 0, done.stderr
        assert len(load(tmp_path / "results" / "batch_size").runs) == 4
        family.look()
        assert any("raylet" in " ".join(process.cmdline()) for process in family.members)


@pytest.mark.slow
def test_sweeps_from_a_notebook_return_data_frames_of_trials_and_of_a_user_function(tmp_path: Path) -> None:
    code = f"""
import ray
import torch
from dmls_ray import sweep

def train(config, rank, emit):
    place = torch.tensor(1.0 + rank.rank)
    if rank.world_size > 1:
        torch.distributed.all_reduce(place)
    emit({{"place": place}})
    return {{"slope": config["lr"] * place}}

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
results = sweep({{"dataset": {SMALL!r}, "batch_per_rank": [8], "epochs": 1, "device": "cpu"}}, repeats=2)
print(len(results.runs), len(results.ranks), len(results.epochs), set(results.runs.outcome))
results = sweep(train, {{"lr": [0.5, 1], "world_size": [1, 2], "device": "cpu"}}, repeats=1)
runs = results.runs.sort_values(["world_size", "lr"])
print(results.folder, runs.slope.tolist(), runs.place.tolist(), len(results.epochs))
"""
    done = python(code, tmp_path)
    assert "tune" not in done.stderr.lower(), "the logging levels of a notebook's own connection are Ray's"
    assert "2 2 2 {'ok'}" in done.stdout.splitlines()
    assert done.stdout.splitlines()[-1] == "results/train [0.5, 1.0, 1.5, 3.0] [1.0, 1.0, 3.0, 3.0] 4"


@pytest.mark.slow
def test_the_example_language_model_is_swept_from_the_command_line(sweep_command: Command, tmp_path: Path) -> None:
    example = char_lm_example()
    assert example.count("\n") < 60
    (tmp_path / "char_lm.py").write_text(example)
    done = sweep_command(
        "grid", "--train", "char_lm:train", "--context", "64", "--world-size", "1", "2", "--repeats", "1",
        "--oversubscribe", "--device", "cpu",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "bits_per_character" in done.stdout
    assert "ranks 2 vs 1" in done.stdout
    results = load(tmp_path / "results" / "char_lm-train")
    assert [record.outcome.value for record in results.records] == ["ok", "ok"]
    assert results.runs.bits_per_character.between(1, 5).all(), "a model that learned nothing needs about seven bits"
    assert results.runs.parameters.nunique() == 1
    assert (results.epochs.test_loss > 0).all()


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["inline", "spawn", "torchrun", "mpirun"])
def test_a_user_function_runs_under_every_launcher(launcher: str, sweep_command: Command, tmp_path: Path) -> None:
    (tmp_path / "char_lm.py").write_text(char_lm_example())
    size = "1" if launcher == "inline" else "2"
    flags = ("--train", "char_lm:train", "--context", "64", "--world-size", size, "--repeats", "1", "--oversubscribe")
    done = sweep_command("grid", *flags, "--device", "cpu", "--launcher", "ray", launcher)
    assert done.returncode == 0, done.stdout + done.stderr
    under_ray, under_launcher = load(tmp_path / "results" / "char_lm-train").runs.test_loss
    assert under_ray == under_launcher


def priority(config: dict[str, Any], rank: RankInfo, emit: Emit) -> dict[str, float]:
    """Training function that returns the niceness of its process."""
    return {"niceness": os.nice(0)}


@pytest.mark.slow
def test_ranks_have_the_priority_of_the_command(sweep_command: Command, tmp_path: Path) -> None:
    (tmp_path / "tests").symlink_to(PROJECT / "tests")
    flags = ("--train", "tests.test_sweeps:priority", "--world-size", "1", "--repeats", "1", "--device", "cpu")
    done = sweep_command("grid", *flags, "--launcher", "ray", "spawn")
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(load(tmp_path / "results" / "tests-test_sweeps-priority").runs.niceness) == [os.nice(0)] * 2


@pytest.mark.slow
def test_a_rank_that_cannot_start_says_why_and_ends_the_sweep(
    sweep_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # All processes search this folder before those of installed packages, so this file imitates a broken installation.
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "sympy.py").write_text("raise ImportError('a broken installation')\n")
    done = sweep_command("grid", *GRID, "--repeats", "1")
    assert done.returncode == 1, done.stdout
    assert "could not start: ImportError: a broken installation." in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_a_stopped_sweep_returns_the_cores_of_a_notebooks_cluster(tmp_path: Path) -> None:
    code = f"""
import time
import ray
from dmls_ray import sweep
from dmls_ray.execution import executor

ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
keep = executor.Executor._keep

def stop_after_one(self, record):
    keep(self, record)
    raise KeyboardInterrupt

executor.Executor._keep = stop_after_one
axes = {{"dataset": {SMALL!r}, "batch_per_rank": 8, "epochs": 2, "world_size": [1, 2], "device": "cpu"}}
try:
    sweep(axes, repeats=1)
except KeyboardInterrupt:
    print("stopped")
executor.Executor._keep = keep
until = time.monotonic() + 10
while ray.available_resources().get("CPU") != 2 and time.monotonic() < until:
    time.sleep(0.1)
print(ray.available_resources().get("CPU"))
print(repr(sweep(axes, repeats=1)))
"""
    done = python(code, tmp_path)
    printed = done.stdout.splitlines()
    assert printed[printed.index("stopped") + 1] == "2.0"
    assert printed[-1] == "Results('results/sweep', 2 runs: 2 ok)"


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["ray", "spawn"])
def test_after_an_edit_of_its_data_the_same_command_runs_again_and_shows_only_the_new_runs(
    sweep_command: Command, tmp_path: Path, launcher: str
) -> None:
    (tmp_path / "arrays.py").write_text(READ_ARRAYS)
    write_arrays(tmp_path / "clean")
    write_arrays(tmp_path / "noisy", other_label=True)
    flags = (
        "--dataset", "arrays:data", "--data-dir", "clean", "noisy", "--batch-per-rank", "50", "--epochs", "1",
        "--device", "cpu", "--repeats", "1", "--launcher", launcher,
    )  # fmt: skip
    sweep_command("grid", *flags)
    clean, noisy = load(tmp_path / "results" / "grid").records
    assert clean.metrics["train_loss"] != noisy.metrics["train_loss"], "each folder has its decoded images"

    write_arrays(tmp_path / "noisy")
    done = sweep_command("grid", *flags)
    assert done.returncode == 0, done.stderr
    assert "1 run of other versions of arrays:data in noisy left out" in " ".join(done.stdout.split())
    records = load(tmp_path / "results" / "grid").records
    assert {record.metrics["train_loss"] for record in records} == {
        min(clean, noisy, key=lambda run: run.config["data_dir"]).metrics["train_loss"]
    }
    assert len(lines(tmp_path / "results" / "grid")) == 3
    assert "[1/" not in sweep_command("grid", *flags).stderr, "all is done"


@pytest.mark.slow
def test_a_sweep_repeats_until_it_is_decided_and_the_same_command_again_runs_nothing(
    tmp_path: Path, sweep_command: Command
) -> None:
    """Trials 1 and 2 are equal and noisy, and 9 is far from both."""
    (tmp_path / "noisy.py").write_text(
        "import random\n"
        "def train(config, rank, emit):\n"
        "    return {'score': config['size'] // 3 + 1 + 0.5 * random.Random(str(config)).random()}\n"
    )
    flags = ("--train", "noisy:train", "--set", "size", "1", "2", "9", "--out", "noisy", "--equivalent", "0")
    flags += ("--within", "0.02", "--max-repeats", "5")
    done = sweep_command("grid", *flags)
    assert done.returncode == 0, done.stderr
    assert "After 3 repeats, " in done.stdout
    assert " after 5 repeats; " in " ".join(done.stdout.split())
    assert len(lines(tmp_path / "noisy")) == 15
    again = sweep_command("grid", *flags)
    assert "Nothing to run. Undecided" in again.stdout
    assert len(lines(tmp_path / "noisy")) == 15
    sessions = json.loads((tmp_path / "noisy" / "sweep.json").read_text())["sessions"]
    assert [session["until"]["max_repeats"] for session in sessions] == [5]
