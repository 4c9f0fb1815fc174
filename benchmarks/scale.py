"""Cost of many runs: 1,000 trivial runs through the worker group.

cost a run         overhead_s, from the 10th run to the last: it must not grow
memory, files      resident set, open file descriptors and threads of driver, broker, Tune's actor and ranks, over time

Reading many runs is measured by reading.py.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.common import machine, print_table
from dmls_ray import load

SWEEP = Path(__file__).parents[1] / "sweeps" / "grid.py"
PARTS = {"broker": "ray::Broker", "Tune's actor": "ray::RunTrainable", "rank": "ray::RayTrainWorker"}
MIB = 2**20


def run_many(folder: Path, runs: int) -> list[dict[str, str]]:
    """Run them; returns the sizes of every process after each tenth of the runs."""
    words = [
        sys.executable, str(SWEEP), "--out", str(folder), "--repeats", str(runs // 2), "--epochs", "1",
        "--dataset", "synthetic:shape=1x8x8,classes=4,train=64,test=32", "--batch-per-rank", "16",
        "--world-size", "1", "2", "--device", "cpu", "--oversubscribe",
    ]  # fmt: skip
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    rows: list[dict[str, str]] = []
    file = folder / "runs.jsonl"
    while process.poll() is None:
        ended = file.read_bytes().count(b"\n") if file.exists() else 0
        if ended >= (len(rows) + 1) * runs // 10 - 1:
            (driver,) = (child for child in psutil.Process(process.pid).children() if str(SWEEP) in child.cmdline())
            rows.append({"runs": str(ended), **sizes_of_parts(driver)})
        time.sleep(0.05)
    if process.returncode:
        raise SystemExit(f"the sweep ended with exit code {process.returncode}")
    return rows


def sizes_of_parts(driver: psutil.Process) -> dict[str, str]:
    """Memory (MiB), file descriptors and threads of each part; of several ranks the largest."""
    seen = {"driver": [sizes(driver)]}
    for child in driver.children(recursive=True):
        try:
            title = " ".join(child.cmdline())
            for part, start in PARTS.items():
                if title.startswith(start):
                    seen.setdefault(part, []).append(sizes(child))
        except psutil.NoSuchProcess:
            continue
    largest = {part: map(max, zip(*values, strict=True)) for part, values in seen.items()}
    return {part: "{} MiB, {} fds, {} threads".format(*values) for part, values in largest.items()}


def sizes(process: psutil.Process) -> tuple[int, int, int]:
    """Resident MiB, file descriptors, threads."""
    return process.memory_info().rss // MIB, process.num_fds(), process.num_threads()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="scale-") as name:
        began = time.monotonic()
        rows = run_many(Path(name) / "many", args.runs)
        seconds = time.monotonic() - began
        records = sorted(load(Path(name) / "many").records, key=lambda record: record.order)
    costs = [record.metrics["overhead_s"] for record in records if "overhead_s" in record.metrics]
    tenth = max((len(costs) - 10) // 10, 1)
    first, last = statistics.median(costs[10 : 10 + tenth]), statistics.median(costs[-tenth:])
    print(f"{len(records)} runs in {seconds:.0f} s, {sum(record.outcome == 'ok' for record in records)} ok")
    print(
        f"cost per run: median {first * 1e3:.1f} ms from the 10th on, {last * 1e3:.1f} ms at the end, "
        f"ratio {last / first:.2f}\n"
    )
    print_table(rows)
    print(f"\n{machine('torch', 'ray')}")


if __name__ == "__main__":
    main()
