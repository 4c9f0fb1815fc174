"""What a sweep takes from Enter to its first row and to the prompt, and which processes take it.

The unit is a launch of torchrun with two ranks that make a gloo group and end: a machine that is twice as slow changes
no ratio. Each pair measures the launch and the sweep one after the other, in turn; with --base FOLDER also the sweep
of another checkout of this project, with --up also while `dmls-ray up` holds what it needs. With --address the sweeps
join a cluster; memory and processor time are then those of the command alone.

    python benchmarks/start.py [--pairs 6] [--cases model script many] [--base FOLDER] [--up] [--address HOST:PORT]
                               [--timeline]
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.common import machine, print_table, with_interval, with_range

PROJECT = Path(__file__).parents[1]
_SAMPLED_EVERY_S = 0.02
_LEAST_CPU_S = 0.05
"""Processes that took less are not shown."""
_MARK = "DMLS_RAY_START"
"""Variable in the environment of all processes of a command."""
_ENVIRONMENT = {**os.environ, _MARK: uuid.uuid4().hex, "PYTHONPATH": str(PROJECT)}
_MIB = 2**20

LAUNCH = """
import torch.distributed as dist
dist.init_process_group("gloo")
dist.destroy_process_group()
"""
SCRIPT = """
import argparse
import os
import torch
import torch.distributed as dist
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
args = parser.parse_args()
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(20):
    optimizer.zero_grad()
    model(torch.ones(args.batch_size, 8)).mean().backward()
    optimizer.step()
dist.destroy_process_group()
"""
_MODEL = ["sweep", "batch_size", "--dataset", "synthetic:shape=1x8x8,classes=4,train=160,test=40", "--epochs", "1"]
CASES = {
    "model": [*_MODEL, "--world-size", "2", "--batch-per-rank", "8", "16", "--repeats", "2"],
    "script": [
        "sweep",
        "train.py",
        "--world-size",
        "2",
        "--batch-size",
        "8",
        "16",
        "--repeats",
        "2",
        "--steps",
        "none",
    ],
    "many": [*_MODEL, "--world-size", "1", "--batch-per-rank", "8", "16", "--repeats", "32"],
}
"""Commands of dmls-ray: four runs of two ranks of a built-in model, the same of a script, and 64 short runs."""


@dataclass
class Seen:
    """A process of a command."""

    name: str
    at_s: float
    """When it was first seen, from Enter."""
    cpu_s: float = 0.0
    """Its time on a processor."""


@dataclass
class Timeline:
    """When what happened, in seconds from Enter."""

    first_row_s: float = 0.0
    last_row_s: float = 0.0
    prompt_s: float = 0.0
    memory_mib: float = 0.0
    """Proportional set size of all processes at the first row."""
    processes: dict[int, Seen] = field(default_factory=dict)
    """Until the first row, by id."""


class Watch:
    """The processes of a command, by a variable in their environment.

    Args:
        began: when the command was given.
    """

    def __init__(self, began: float) -> None:
        self._began = began
        self._others: set[int] = set()
        self.seen: dict[int, Seen] = {}

    def sample(self) -> None:
        """Look for new processes, and at the times of those that are known."""
        for pid in psutil.pids():
            if pid in self._others:
                continue
            try:
                process = psutil.Process(pid)
                if pid not in self.seen:
                    if process.environ().get(_MARK) != _ENVIRONMENT[_MARK]:
                        self._others.add(pid)
                        continue
                    self.seen[pid] = Seen("", time.monotonic() - self._began)
                times = process.cpu_times()
                self.seen[pid].cpu_s = times.user + times.system
                self.seen[pid].name = _name(process)
            except psutil.Error:
                continue  # it has ended, or is of another user

    def memory_mib(self) -> float:
        """The proportional set size of all of them."""
        total = 0
        for pid in self.seen:
            try:
                total += psutil.Process(pid).memory_full_info().pss
            except psutil.Error:
                continue
        return total / _MIB


def _name(process: psutil.Process) -> str:
    """What a process does, as Ray names it: `ray::TrainController`, `gcs_server`."""
    words = process.cmdline()
    if not words:
        return process.name()
    if words[0].startswith("ray::"):
        return words[0].split(".")[0]
    scripts = [Path(word).name for word in words if word.endswith(".py")]
    return next(iter(scripts), Path(words[0]).name)


def dmls_ray(*words: str) -> list[str]:
    """A command of dmls-ray."""
    return [sys.executable, "-m", "dmls_ray", *words]


UP = "up"


@contextmanager
def held(is_held: bool, address: str) -> Iterator[None]:
    """Hold what commands need within the block, or not."""
    if is_held:
        subprocess.run(dmls_ray("up", "--address", address), env=_ENVIRONMENT, check=True, capture_output=True)
    try:
        yield
    finally:
        if is_held:
            subprocess.run(dmls_ray("down"), env=_ENVIRONMENT, check=True, capture_output=True)


def watch(case: str, project: Path, folder: Path, address: str) -> Timeline:
    """Give the command of a case, and watch it to its end.

    Raises:
        SystemExit: it failed.
    """
    (folder / "train.py").write_text(SCRIPT)
    out = folder / f"out-{time.monotonic_ns()}"
    words = dmls_ray(*CASES[case], "--device", "cpu", "--out", str(out), "--address", address)
    env = _ENVIRONMENT | {"PYTHONPATH": str(project)}
    found = Timeline()
    began = time.monotonic()
    watched = Watch(began)
    rows = out / "runs.jsonl"
    size = 0
    with open(folder / "printed.txt", "w+") as printed:
        process = subprocess.Popen(words, cwd=folder, env=env, stdout=printed, stderr=subprocess.STDOUT)
        while process.poll() is None:
            if not size:
                watched.sample()
            grown = rows.stat().st_size if rows.exists() else 0
            if grown > size:
                found.last_row_s = time.monotonic() - began
                if not size:
                    found.first_row_s = found.last_row_s
                    found.memory_mib = watched.memory_mib()
                    found.processes = watched.seen
                size = grown
            time.sleep(_SAMPLED_EVERY_S)
        found.prompt_s = time.monotonic() - began
        printed.seek(0)
        if process.returncode or not size:
            raise SystemExit(printed.read())
    return found


def launch_s(folder: Path) -> float:
    """Seconds of a launch of torchrun."""
    (folder / "launch.py").write_text(LAUNCH)
    began = time.monotonic()
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "launch.py"]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(words, cwd=folder, env=env, check=True, capture_output=True)
    return time.monotonic() - began


def measure(
    case: str, starts: Mapping[str, Path], pairs: int, *, address: str, shows_timeline: bool
) -> list[dict[str, str]]:
    """A row for each way to start: the times of a case, and their ratios to a launch and to the first way.

    Args:
        case: name of the command.
        starts: name of a way -> the checkout that is run; of `UP`, while what it needs is held.
        pairs: how often each is measured.
        address: that of the sweeps.
        shows_timeline: whether the processes of each are printed.
    """
    launches: list[float] = []
    found: dict[str, list[Timeline]] = {name: [] for name in starts}
    for pair in range(pairs):
        with tempfile.TemporaryDirectory() as folder:
            launches.append(launch_s(Path(folder)))
            for name in starts if pair % 2 else reversed(list(starts)):
                with held(name == UP, address):
                    found[name].append(watch(case, starts[name], Path(folder), address))
    rows = []
    first, *_ = starts
    for name, timelines in found.items():
        row = {"case": case, "start": name, "pairs": str(pairs)}
        row["launch s"] = with_range(launches)
        for text, times in {
            "first row": [item.first_row_s for item in timelines],
            "prompt": [item.prompt_s for item in timelines],
            "last row to prompt": [item.prompt_s - item.last_row_s for item in timelines],
        }.items():
            row[f"{text} s"] = with_range(times)
            ratios = [value / launch for value, launch in zip(times, launches, strict=True)]
            row[f"{text}, launches"] = with_interval(ratios)
        if name != first:
            before = [item.first_row_s for item in found[first]]
            ratios = [item.first_row_s / base for item, base in zip(timelines, before, strict=True)]
            row[f"first row, of {first}"] = with_interval(ratios)
        row["MiB"] = with_range([item.memory_mib for item in timelines], 0)
        row["CPU s"] = with_range([sum(seen.cpu_s for seen in item.processes.values()) for item in timelines], 1)
        rows.append(row)
        if shows_timeline:
            print_timeline(timelines[-1])
    return rows


def print_timeline(timeline: Timeline) -> None:
    """Print the processes until the first row, in the order in which they were seen."""
    seen = sorted(timeline.processes.values(), key=lambda item: item.at_s)
    shown = [item for item in seen if item.cpu_s >= _LEAST_CPU_S]
    print_table([{"s": f"{item.at_s:.2f}", "process": item.name, "CPU s": f"{item.cpu_s:.2f}"} for item in shown])
    print(f"{timeline.first_row_s:.2f} s: first row; {timeline.prompt_s:.2f} s: prompt\n", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=6)
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--base", type=Path, metavar="FOLDER", help="another checkout to compare with")
    parser.add_argument("--up", action="store_true", help="also while dmls-ray up holds what is needed")
    parser.add_argument("--address", default="local", help="a cluster to join")
    parser.add_argument("--timeline", action="store_true", help="print the processes of the last sweep")
    args = parser.parse_args()
    starts = {"base": args.base.resolve()} if args.base else {}
    starts |= {"this": PROJECT} | ({UP: PROJECT} if args.up else {})
    rows = []
    for case in args.cases:
        rows += measure(case, starts, args.pairs, address=args.address, shows_timeline=args.timeline)
    print_table(rows)
    print(f"\n{machine('torch', 'ray')}")


if __name__ == "__main__":
    main()
