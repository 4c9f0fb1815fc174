"""Time to read a large sweep: its table in the terminal, its report, a comparison, advice.

Each command is timed from Enter to prompt, over a folder whose runs are copies of real runs with new ids and 5% of
noise on their rates.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.common import machine, print_table

MODEL = Path(__file__).parents[1] / "results" / "reference" / "batch_size" / "runs.jsonl"
REPEATS = 10


def make_sweep(folder: Path, count: int, seed: int) -> Path:
    """A results folder of so many runs, ten of each trial."""
    noise = random.Random(seed)
    lines = [json.loads(line) for line in MODEL.read_text().splitlines()]
    folder.mkdir()
    with open(folder / "runs.jsonl", "w") as file:
        for number in range(count):
            trial, repeat = divmod(number, REPEATS)
            row = dict(lines[trial % len(lines)])
            row |= {"trial_id": f"{trial:012x}", "repeat": repeat, "run_id": f"{trial:012x}-{repeat}", "order": number}
            row["config"] = row["config"] | {"lr": 1e-3 + trial * 1e-7}
            images_per_s = row["metrics"]["images_per_s"] * noise.lognormvariate(0, 0.05)
            row["metrics"] = row["metrics"] | {"images_per_s": images_per_s}
            row["started_at"] = f"2026-01-01T00:00:{seed:02d}"
            file.write(json.dumps(row, separators=(",", ":")) + "\n")  # as the store does
    return folder


def timed(words: list[str], repeats: int) -> tuple[list[float], int]:
    """Seconds of a command, and the size of what it wrote to the terminal."""
    seconds, size = [], 0
    for _ in range(repeats):
        began = time.perf_counter()
        done = subprocess.run([sys.executable, "-m", "dmls_ray", *words], capture_output=True, check=True)
        seconds.append(time.perf_counter() - began)
        size = len(done.stdout)
    return seconds, size


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2_000, help="of the report, the comparison and the advice")
    parser.add_argument("--rows", type=int, default=100_000, help="of the table")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="reading-") as name:
        sweep_a, sweep_b = (make_sweep(Path(name) / f"some-{seed}", args.runs, seed) for seed in (1, 2))
        many = make_sweep(Path(name) / "many", args.rows, 3)
        for what, runs, words in (
            ("table", args.rows, ["table", str(many)]),
            ("report", args.runs, ["report", str(sweep_a)]),
            ("compare", args.runs, ["compare", str(sweep_a), str(sweep_b)]),
            ("advise", args.runs, ["advise", str(sweep_a), "--for", "throughput"]),
        ):
            seconds, size = timed(words, args.repeats)
            written = sweep_a / "report.html" if what == "report" else None
            peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
            rows.append(
                {
                    "command": f"dmls-ray {what}",
                    "runs": f"{runs:,}",
                    "s, median": f"{statistics.median(seconds):.1f}",
                    "min": f"{min(seconds):.1f}",
                    "max": f"{max(seconds):.1f}",
                    "n": str(len(seconds)),
                    "written MB": f"{(written.stat().st_size if written else size) / 1e6:.1f}",
                    "peak MiB so far": f"{peak:,.0f}",
                }
            )
            print(rows[-1], file=sys.stderr)
    print_table(rows)
    print(f"\n{machine('python')}")


if __name__ == "__main__":
    main()
