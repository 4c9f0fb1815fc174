"""Cost of many runs: 1,000 trivial runs through the worker group, and 100,000 rows read back.

cost a run         overhead_s, from the 10th run to the last: it must not grow
memory, files      resident set, open file descriptors and threads of driver, broker, Tune's actor and ranks, over time
loading            seconds and peak memory of `dmls_ray.load`, of its frames and of the table
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas as pd
import psutil

from dmls_ray import load
from dmls_ray.analysis.export.text_tables import markdown
from dmls_ray.records.provenance import describe_machine, describe_versions

SWEEP = Path(__file__).parents[1] / "sweeps" / "grid.py"
PARTS = {"broker": "ray::Broker", "Tune's actor": "ray::RunTrainable", "rank": "ray::RayTrainWorker"}
MIB = 2**20


def run_many(folder: Path, runs: int) -> list[dict[str, Any]]:
    """Run them; returns a look at every process after each tenth of the runs."""
    words = [
        sys.executable, str(SWEEP), "--out", str(folder), "--repeats", str(runs // 2), "--epochs", "1",
        "--dataset", "synthetic:shape=1x8x8,classes=4,train=64,test=32", "--batch-per-rank", "16",
        "--world-size", "1", "2", "--device", "cpu", "--oversubscribe",
    ]  # fmt: skip
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    looks: list[dict[str, Any]] = []
    while process.poll() is None:
        ended = count_lines(folder / "runs.jsonl")
        if ended >= (len(looks) + 1) * runs // 10 - 1:
            (driver,) = (child for child in psutil.Process(process.pid).children() if str(SWEEP) in child.cmdline())
            looks.append({"runs": ended, **look(driver.pid)})
        time.sleep(0.05)
    if process.returncode:
        raise SystemExit(f"the sweep ended with exit code {process.returncode}")
    return looks


def count_lines(path: Path) -> int:
    """Rows so far."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


def look(pid: int) -> dict[str, str]:
    """Memory (MiB), file descriptors and threads of each part; of several ranks the largest."""
    seen: dict[str, list[tuple[int, int, int]]] = {"driver": [sizes(psutil.Process(pid))]}
    for child in psutil.Process(pid).children(recursive=True):
        try:
            title = " ".join(child.cmdline())
            for part, start in PARTS.items():
                if title.startswith(start):
                    seen.setdefault(part, []).append(sizes(child))
        except psutil.NoSuchProcess:
            continue
    return {
        part: "{} MiB, {} fds, {} threads".format(*map(max, zip(*values, strict=True))) for part, values in seen.items()
    }


def sizes(process: psutil.Process) -> tuple[int, int, int]:
    """Resident MiB, file descriptors, threads."""
    return process.memory_info().rss // MIB, process.num_fds(), process.num_threads()


def make_rows(model: Path, folder: Path, count: int) -> None:
    """A results folder of so many runs, each as a real one but for its identity."""
    lines = [json.loads(line) for line in model.read_text().splitlines()]
    folder.mkdir()
    with open(folder / "runs.jsonl", "w") as file:
        for number in range(count):
            row = lines[number % len(lines)]
            trial, repeat = divmod(number, 10)
            row |= {"trial_id": f"{trial:012x}", "repeat": repeat, "run_id": f"{trial:012x}-{repeat}", "order": number}
            row["config"] |= {"lr": 1e-3 + trial * 1e-7}
            file.write(json.dumps(row, separators=(",", ":")) + "\n")  # as the store does


READ = """
import resource, sys, time
began = time.perf_counter()
from dmls_ray import load
from dmls_ray.analysis.table.build import make_table
results = load(sys.argv[1]); loaded = time.perf_counter()
runs = results.runs; framed = time.perf_counter()
table = make_table(results, ["lr"]); tabled = time.perf_counter()
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(len(runs), len(table.rows), loaded - began, framed - loaded, tabled - framed, tabled - began, peak)
"""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=100_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="scale-") as name:
        folder = Path(name)
        began = time.monotonic()
        looks = run_many(folder / "many", args.runs)
        seconds = time.monotonic() - began
        records = sorted(load(folder / "many").records, key=lambda record: record.order)
        costs = [record.metrics["overhead_s"] for record in records if record.metrics.get("overhead_s") is not None]
        tenth = max((len(costs) - 10) // 10, 1)
        first, last = statistics.median(costs[10 : 10 + tenth]), statistics.median(costs[-tenth:])
        print(f"{len(records)} runs in {seconds:.0f} s, {sum(record.outcome == 'ok' for record in records)} ok")
        print(f"cost per run: median {first * 1e3:.1f} ms from the 10th on, {last * 1e3:.1f} ms at the end, ratio "
              f"{last / first:.2f}\n")  # fmt: skip
        print(markdown(pd.DataFrame(looks).fillna("")))
        make_rows(folder / "many" / "runs.jsonl", folder / "large", args.rows)
        done = subprocess.run(
            [sys.executable, "-c", READ, str(folder / "large")], capture_output=True, text=True, check=True
        )
        rows, trials, *parts, peak = done.stdout.split()
        heads = ("load s", "runs frame s", "table s", "all s")
        row = {
            "rows": rows,
            "trials": trials,
            **dict(zip(heads, (f"{float(part):.1f}" for part in parts), strict=True)),
        }
        row["peak MiB"] = f"{float(peak):,.0f}"
        row["file MiB"] = f"{(folder / 'large' / 'runs.jsonl').stat().st_size / MIB:,.0f}"
    print("\n" + markdown(pd.DataFrame([row])))
    machine, versions = describe_machine(), describe_versions()
    print(f"\n{machine['cpu']}, {machine['cores']} cores; torch {versions['torch']}, ray {versions['ray']}")


if __name__ == "__main__":
    main()
