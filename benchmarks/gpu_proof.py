"""The first minutes on a GPU: what the instruments say there, next to independent measurements, in a folder to commit.

tests        the tests that need a GPU
precisions   fp32, TF32, bf16, fp16 and compile against a bare loop, which is timed by CUDA events
phases       what the marks of step phases cost, and whether the phases add up to a step
memory       kinds of tensors against what the allocator counts
child        seconds of a script's run in a forked child, with its own CUDA context, against a new interpreter
ranks        exposed communication of two ranks, with NCCL where there are two GPUs
grayscale    turning images grey, by the CUDA kernel among others

Each part has its own process and a limit of time; what fails in it is on the page, and the others go on. Ray is not
needed. With --device cpu the same parts run at a size that only shows that they work.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks import measuring, phases, throughput
from benchmarks.common import check, machine, with_range
from dmls_ray.analysis.export.text_tables import markdown
from dmls_ray.config.runtime import DeviceName
from dmls_ray.records.gpu_state import CLOCK_METRICS, open_gpus, read_gpu
from dmls_ray.records.provenance import describe_git, describe_versions
from dmls_ray.records.run_events import RankResult
from dmls_ray.training.child_run import run_in_child
from dmls_ray.training.rank import ArtifactOptions, RankInfo
from dmls_ray.util.fork_server import ForkServer
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.grayscale.implementations import ON_A_GPU
from dmls_ray.workloads.grayscale.train import convert_images
from dmls_ray.workloads.grayscale.workload import GrayscaleWorkload
from dmls_ray.workloads.script.config import ScriptConfig
from dmls_ray.workloads.script.workload import ScriptWorkload
from tests.new_processes import run_inline

PROJECT = Path(__file__).parents[1]

Rows = Iterator[dict[str, Any]]


@dataclasses.dataclass(frozen=True)
class Size:
    """How much a part measures."""

    device: DeviceName
    images: int
    batch: int
    rounds: int

    def trial(self, **changes: Any) -> TrialConfig:
        """A training of some steps."""
        given = {
            "model": "convnet", "dataset": f"synthetic:shape=3x32x32,train={self.images},test=16",
            "batch_per_rank": self.batch, "epochs": 1, "warmup_steps": 0, "device": self.device,
        }  # fmt: skip
        return TrialConfig(**{**given, **changes})


SIZES = {"cuda": Size("cuda", 16384, 256, 7), "cpu": Size("cpu", 24, 8, 1)}


def files_of_gpu_tests() -> list[Path]:
    """The files with tests that need a GPU. Others may import Ray."""
    files = sorted((PROJECT / "tests").rglob("test_*.py"))
    return [file for file in files if "@pytest.mark.gpu" in file.read_text() or "[pytest.mark.gpu" in file.read_text()]


def gpu_tests(size: Size) -> Rows:
    """The tests that are marked `gpu`, in the files that need no Ray; on a CPU, those of one file that are not."""
    words = ["-m", "not gpu", "tests/training/test_precision.py"]
    if size.device == "cuda":
        words = ["-m", "gpu", *map(str, files_of_gpu_tests())]
    # The end of the output is kept: the errors, and not what the tests wrote.
    shown = ["--no-header", "-rfE", "-vv", "--tb=short", "--show-capture=no"]
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *shown, *words]
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)  # what has ended is on the page if the time is up
    yield {"tests": line.strip("= \n")}
    sys.exit(process.returncode)


def precisions(size: Size) -> Rows:
    """Each number format, and compile, against the bare loop."""
    names = ["fp32", "amp-bf16"] if size.device == "cpu" else ["fp32", "tf32", "amp-bf16", "amp-fp16"]
    settings = [{"precision": name, "compile": "off"} for name in names]
    if size.device == "cuda":
        settings.append({"precision": "fp32", "compile": "default"})
    for setting in settings:
        # Each round compiles again.
        rounds = size.rounds if setting["compile"] == "off" else 2
        seconds = throughput.measure(size.trial(**setting), rounds, ["resident", "bare"])
        ratios = [bare / ours for ours, bare in zip(seconds["resident"], seconds["bare"], strict=True)]
        steps = size.images / size.batch
        ms = {f"{name} ms a step": with_range([1e3 * value / steps for value in seconds[name]]) for name in seconds}
        yield {**setting, **ms, "resident / bare": with_range(ratios), "n": rounds}


def step_phases(size: Size) -> Rows:
    """Marks of phases in every second step of an odd number of steps."""
    config = size.trial(dataset="synthetic:shape=3x32x32,train=2080,test=16", batch_per_rank=32)
    if size.device == "cpu":
        config = size.trial()
    yield phases.row(config, 6 * size.rounds)


def memory(size: Size) -> Rows:
    """Peaks of a step by kind, and those of the allocator, which also counts workspaces and what it rounds up; and what
    the meters of power and clocks say of the run."""
    names = ["tensor", "parameter", "gradient", "optimizer", "activation", "other", "device"]
    for batch in (size.batch // 8, size.batch):
        result = run_inline(size.trial(batch_per_rank=batch))
        check([result])
        values = {f"{name} MiB": result.values.get(f"{name}_mem_mib") for name in names}
        meters = {name: result.values.get(name) for name in ("power_w", *CLOCK_METRICS)}
        yield {"batch": batch, **values, "reserved MiB": result.values["peak_reserved_mib"], **meters}


SCRIPT = """
import torch

device = "cuda" if torch.cuda.is_available() else "cpu"
model = torch.nn.Linear(256, 256).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(20):
    optimizer.zero_grad()
    model(torch.randn(64, 256, device=device)).square().mean().backward()
    optimizer.step()
print(model.weight.sum().item())
"""


def child(size: Size) -> Rows:
    """A script in a fork of a server that has PyTorch and no CUDA context, and in a new interpreter."""
    entry = ScriptWorkload.entrypoint
    results: list[RankResult] = []
    seconds: dict[str, list[float]] = {"forked child": [], "new interpreter": []}
    server = ForkServer("dmls_ray.training.rank:preload", entry)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "train.py"
        script.write_text(SCRIPT)
        config = ScriptConfig(script=str(script), steps=20, seed_flag="none", device=size.device)
        server.wait_until_ready()
        for number in range(size.rounds):
            device = "cuda:0" if size.device == "cuda" else "cpu"
            rank = RankInfo(device=device, name=f"run {number}", artifacts=ArtifactOptions(folder=folder))
            began = time.perf_counter()
            run_in_child(server, entry, config, rank, rank.name, lambda event: None, results.append)
            seconds["forked child"].append(time.perf_counter() - began)
            began = time.perf_counter()
            subprocess.run([sys.executable, script], capture_output=True, check=True)
            seconds["new interpreter"].append(time.perf_counter() - began)
    server.close()
    check(results)
    if len(results) < size.rounds:
        raise SystemExit("A child ended without a result.")
    seconds["forked child, up to its first step"] = [result.values["setup_s"] for result in results]
    for name, values in seconds.items():
        yield {"process": name, "s a run": with_range(values), "n": size.rounds}


def ranks(size: Size) -> Rows:
    """Two ranks under DDP."""
    if size.device == "cuda" and torch.cuda.device_count() < 2:
        yield {"not run": f"NCCL needs two GPUs, and this machine has {torch.cuda.device_count()}"}
        return
    yield measuring.communication_row(size.trial(world_size=2), size.rounds)


def grayscale(size: Size) -> Rows:
    """Implementations on this device; one that cannot run has its reason."""
    for name in sorted(ON_A_GPU) if size.device == "cuda" else ["numpy"]:
        config = GrayscaleWorkload().schema().make(implementation=name, images=size.batch)
        result = run_inline(config, train=convert_images)
        shown = {
            key: result.run.reported.get(key) for key in ("pass_ms", "gb_per_s", "of_copy", "levels_apart", "prepare_s")
        }
        yield {"implementation": name, **shown, "outcome": result.reason or result.outcome}


PARTS: Mapping[str, tuple[Callable[[Size], Rows], float]] = {
    "tests": (gpu_tests, 200),
    "precisions": (precisions, 150),
    "phases": (step_phases, 50),
    "memory": (memory, 40),
    "child": (child, 50),
    "ranks": (ranks, 50),
    "grayscale": (grayscale, 50),
}
"""Name -> the function of a part, and its limit in seconds; together below ten minutes."""


def run_part(command: Sequence[str], file: Path, limit_s: float) -> dict[str, Any]:
    """The rows that a process writes into a file, and its seconds; and an `error`, if it fails.

    Args:
        command: the process, which is ended after the limit with all that it has started.
        file: where it writes its rows, a line each.
        limit_s: the limit.
    """
    began = time.monotonic()
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, start_new_session=True)
        error = ""
        try:
            if code := process.wait(limit_s):
                error = f"exit code {code}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            error = f"not done after {limit_s:g} s"
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        part = {"seconds": round(time.monotonic() - began, 1), "rows": list(map(json.loads, lines))}
        output.seek(0)
        return {**part, "error": f"{error}\n{_without_places(output.read())[-4000:]}".strip()} if error else part


def _without_places(text: str) -> str:
    """A text without the folders of this machine, since the proof is published."""
    for place in (PROJECT, sys.prefix, sys.base_prefix, tempfile.gettempdir(), Path.home()):
        text = text.replace(f"{place}/", "")
    return text


def page(proof: Mapping[str, Any]) -> str:
    """The page of the folder, of what proof.json has."""
    lines = ["# First measurements on a GPU", "", f"`{proof['command']}`, {proof['started_at']}", ""]
    lines += [proof["machine"], ""]
    if states := [*proof["gpus_before"], *proof["gpus_after"]]:
        lines += ["GPUs before and after:", "", _table(states), ""]
    for name, part in proof["parts"].items():
        doc = " ".join((PARTS[name][0].__doc__ or "").split())
        lines += [f"## {name}", "", f"{doc} {part['seconds']:g} s.", ""]
        if part["rows"]:
            lines += [_table(part["rows"]), ""]
        if "error" in part:
            lines += ["```text", part["error"], "```", ""]
    return "\n".join(lines)


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table with four digits of each number; a cell without a value is empty."""
    frame = pd.DataFrame(rows, dtype=object).fillna("")
    return markdown(frame.map(lambda value: f"{value:.4g}" if isinstance(value, float) else value))


def prove(names: Sequence[str], device: str, folder: Path) -> dict[str, Any]:
    """Run parts one after the other, and write proof.json and README.md after each."""
    folder.mkdir(parents=True, exist_ok=True)
    gpus = open_gpus()
    proof: dict[str, Any] = {
        "command": shlex.join(["python", "benchmarks/gpu_proof.py", "--device", device, "--only", *names]),
        "started_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(*describe_versions()),
        "versions": describe_versions(),
        "git": describe_git(),
        "gpus_before": [dataclasses.asdict(read_gpu(gpu)) for gpu in gpus],
        "parts": {},
    }
    for name in names:
        with tempfile.TemporaryDirectory() as rows:
            file = Path(rows) / "rows.json"
            command = [sys.executable, __file__, "--device", device, "--only", name, "--rows", str(file)]
            proof["parts"][name] = run_part(command, file, PARTS[name][1])
        proof["gpus_after"] = [dataclasses.asdict(read_gpu(gpu)) for gpu in gpus]
        (folder / "proof.json").write_text(json.dumps(proof, indent=1) + "\n", encoding="utf-8")
        (folder / "README.md").write_text(page(proof), encoding="utf-8")
        print(f"{name}: {proof['parts'][name].get('error', 'ok')}", flush=True)
    return proof


def main() -> None:
    """Run all parts, or write the rows of one into a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=tuple(SIZES), default="cuda")
    parser.add_argument("--only", nargs="+", choices=tuple(PARTS), default=list(PARTS), help="parts (default: all)")
    today = PROJECT / "results" / "reference" / "gpu" / datetime.now(UTC).strftime("%Y-%m-%d")
    parser.add_argument("--out", type=Path, default=today, help="the folder (default: results/reference/gpu/<date>)")
    parser.add_argument("--rows", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        parser.error("--device cuda: PyTorch finds no GPU here; --device cpu shows that the parts work.")
    if args.rows is not None:
        (name,) = args.only
        with args.rows.open("w", encoding="utf-8") as file:
            for row in PARTS[name][0](SIZES[args.device]):
                print(json.dumps(row), file=file, flush=True)
        return
    proof = prove(args.only, args.device, args.out)
    print(f"{args.out}: proof.json, README.md")
    sys.exit(any("error" in part for part in proof["parts"].values()))


if __name__ == "__main__":
    main()
