"""A sweep of 300 runs in which a random rank is killed every few seconds, against the same sweep left alone.

Nothing may be lost: every run has exactly one row, and every ok run equals that of the undisturbed sweep, bit for bit.
"""

from __future__ import annotations

import argparse
import random
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
from dmls_ray.records.provenance import describe_machine, describe_versions

SWEEP = Path(__file__).parents[1] / "sweeps" / "grid.py"
METRICS = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")


def command(out: Path, repeats: int, epochs: int) -> list[str]:
    """The sweep: two batches on one and on two ranks."""
    return [
        sys.executable, str(SWEEP), "--out", str(out), "--repeats", str(repeats), "--epochs", str(epochs),
        "--dataset", "synthetic:shape=1x8x8,classes=4,train=512,test=128", "--batch-per-rank", "8", "16",
        "--world-size", "1", "2", "--device", "cpu", "--oversubscribe", "--max-retries", "20",
    ]  # fmt: skip


def ranks_of(process: psutil.Process) -> list[psutil.Process]:
    """The worker group's processes."""
    workers = []
    for child in process.children(recursive=True):
        try:
            if " ".join(child.cmdline()).startswith("ray::RayTrainWorker"):
                workers.append(child)
        except psutil.NoSuchProcess:
            continue
    return workers


def disturbed(words: list[str], every_s: float) -> tuple[float, int, int]:
    """Seconds, kills, and exit code of a sweep whose ranks are killed."""
    began, kills = time.monotonic(), 0
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        time.sleep(random.uniform(0.5, 1.5) * every_s)
        ranks = ranks_of(psutil.Process(process.pid)) if process.poll() is None else []
        if ranks:
            random.choice(ranks).kill()
            kills += 1
    return time.monotonic() - began, kills, process.returncode


def measured(record: Any) -> list[tuple[float, ...]]:
    """What an undisturbed run must give as well."""
    return [tuple(getattr(epoch, name) for name in METRICS) for epoch in record.epochs]


def main() -> None:
    """Soak and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300, help="a multiple of 4 (default: 300)")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--every-s", type=float, default=12.0, help="mean seconds between two kills (default: 12)")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        folder, repeats = Path(name), args.runs // 4
        began = time.monotonic()
        subprocess.run(command(folder / "alone", repeats, args.epochs), check=True, stdout=subprocess.DEVNULL)
        alone_s = time.monotonic() - began
        soak_s, kills, code = disturbed(command(folder / "soaked", repeats, args.epochs), args.every_s)
        alone = {record.run_id: measured(record) for record in load(folder / "alone").records}
        lines = (folder / "soaked" / "runs.jsonl").read_text().splitlines()
        records = load(folder / "soaked").records
    ok = [record for record in records if record.outcome == "ok"]
    results = {
        "runs": len(alone),
        "rows": len(lines),
        "duplicate rows": len(lines) - len({record.run_id for record in records}),
        "ok": len(ok),
        "ok and equal to the undisturbed run": sum(measured(record) == alone[record.run_id] for record in ok),
        "ranks killed": kills,
        "runs tried more than once": sum(record.attempts > 1 for record in records),
        "attempts, most": max(record.attempts for record in records),
        "exit code": code,
        "s, undisturbed": round(alone_s),
        "s, with kills": round(soak_s),
        "s per kill": round((soak_s - alone_s) / kills, 1) if kills else "",
        "s per run, undisturbed (median)": round(statistics.median(record.total_s or 0 for record in ok), 2),
    }
    print(
        pd.DataFrame([(name, str(value)) for name, value in results.items()], columns=["what", ""]).to_markdown(
            index=False, disable_numparse=True
        )
    )
    machine, versions = describe_machine(), describe_versions()
    print(f"\n{machine['cpu']}, {machine['cores']} cores; torch {versions['torch']}, ray {versions['ray']}")


if __name__ == "__main__":
    main()
