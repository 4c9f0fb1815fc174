"""What `dmls-ray ab` says of revisions that are known: equal ones, and such that wait 10% and 1% longer in a step."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.common import json_of, machine, print_table

SCRIPT = """
import time
import torch

WAIT_MS = 10.0
model = torch.nn.Linear(256, 256)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
while True:
    optimizer.zero_grad()
    model(torch.randn(64, 256)).square().mean().backward()
    time.sleep(WAIT_MS / 1000)
    optimizer.step()
"""
"""It waits as for a device, so that a verdict is one on the program and not on the noise of two cores."""
WAIT_MS = {"main": 10.0, "equal": 10.0, "one-percent": 10.1, "ten-percent": 11.1}
"""Revision -> milliseconds of a step that it waits, which are most of its time."""


def make_repository(folder: Path) -> None:
    """A git repository with a tag for each revision."""
    git = ["git", "-c", "user.name=benchmark", "-c", "user.email=benchmark@localhost"]
    subprocess.run([*git, "init", "--quiet"], cwd=folder, check=True)
    for name, wait_ms in WAIT_MS.items():
        source = SCRIPT.replace("WAIT_MS = 10.0", f"WAIT_MS = {wait_ms}")
        (folder / "train.py").write_text(f"# {name}\n{source}")
        for words in (["add", "train.py"], ["commit", "--quiet", "-m", name], ["tag", name]):
            subprocess.run([*git, *words], cwd=folder, check=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--equal", type=int, default=20, help="comparisons of equal revisions (default: 20)")
    parser.add_argument("--planted", type=int, default=5, help="comparisons of each slower one (default: 5)")
    args = parser.parse_args()
    counts = {"equal": args.equal, "ten-percent": args.planted, "one-percent": args.planted}
    rows, sweep = [], ["--", "sweep", "train.py"]
    with tempfile.TemporaryDirectory() as folder:
        make_repository(Path(folder))
        for revision, count in counts.items():
            words: Counter[str] = Counter()
            repeats = []
            for number in range(count):
                found = json_of(["ab", "main", revision, *sweep, "--out", f"{revision}-{number}"], Path(folder))
                (speed,) = found["speed"]
                repeats.append(speed["n"])
                words[found["verdict"]] += 1
                print(
                    f"{revision}: {found['verdict']}, {speed['value']:.3f} [{speed['low']:.3f}, {speed['high']:.3f}]",
                    flush=True,
                )
            said = ", ".join(f"{word} {times}" for word, times in words.items())
            rows.append({"revision": revision, "said": said, "repeats": f"{min(repeats)} to {max(repeats)}"})
    print_table(rows)
    print(f"\n{machine('torch')}")


if __name__ == "__main__":
    main()
