"""How often `dmls-ray tune` finds a gain where there is none: scripts whose flags do nothing, and one planted gain.

Each script has another width, so that its steps take other times. The planted one waits a millisecond for each sample
in a loader without workers.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.common import json_of, machine, print_table

SCRIPT = """
import argparse, time
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--workers", type=int, default=1)
parser.add_argument("--compile", action="store_true")
parser.add_argument("--pin-memory", action="store_true")
given = parser.parse_args()

class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 10**6

    def __getitem__(self, index):
        time.sleep(WAIT)
        return torch.randn(WIDTH)

model = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for batch in torch.utils.data.DataLoader(Samples(), 16, num_workers=WORKERS):
    optimizer.zero_grad()
    model(batch).square().mean().backward()
    optimizer.step()
"""


def tune(source: str, budget: int) -> dict[str, Any]:
    """What `dmls-ray tune` finds for a script."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "train.py").write_text(source)
        words = ["tune", "train.py", "--budget", f"{budget}s", "--flag", "threads=none", "--out", "out"]
        return json_of(words, Path(folder))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scripts", type=int, default=20, help="scripts whose flags do nothing (default: 20)")
    parser.add_argument("--budget", type=int, default=40, help="seconds of each search (default: 40)")
    args = parser.parse_args()
    rows = []
    for number in range(args.scripts + 1):
        is_planted = number == args.scripts
        values = ("0.001", "64", "given.workers") if is_planted else ("0", str(64 * (1 + number % 5)), "0")
        source = SCRIPT
        for name, value in zip(("WAIT", "WIDTH", "WORKERS"), values, strict=True):
            source = source.replace(name, value)
        if is_planted:
            source = source.replace("default=1", "default=0")
        found = tune(source, args.budget)
        gain = found["gain"]
        rows.append({
            "script": "planted" if is_planted else f"nothing {number}",
            "tried": str(len(found["kept"]) + len(found["lost"])),
            "withdrawn": str(0 if found["is_faster"] else len(found["kept"])),
            "faster": str(found["is_faster"]),
            "gain": f"{gain['value']:.2f} [{gain['low']:.2f}, {gain['high']:.2f}]" if gain else "",
        })  # fmt: skip
        print(rows[-1], flush=True)
    print_table(rows)
    print(f"\n{machine('torch')}; budget {args.budget} s")


if __name__ == "__main__":
    main()
