"""Report C's table over links of several rates, between virtual hosts on this machine.

    python benchmarks/links.py --out results/reference/machines

Each host is a set of network namespaces with its address and its Ray (tests/multihost/hosts.py); needs root and
iproute2. Hosts share this machine's processors, so more ranks than cores take turns: compare the same row over
different links, not rows. The gradients of mnist_convnet are 17 KB, those of simplecnn 2.7 MB.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pandas as pd

PROJECT = Path(__file__).parents[1]
sys.path.insert(0, str(PROJECT))

from dmls_ray import load  # noqa: E402
from dmls_ray.analysis.export.text_tables import markdown  # noqa: E402
from dmls_ray.analysis.table.named_layouts import render  # noqa: E402
from tests.multihost.hosts import Host, Network, install_folders  # noqa: E402

RATES = ("unshaped", "1gbit", "100mbit")
MODELS = {"mnist_convnet": 3, "simplecnn": 1}
"""The models, and for how many epochs each trains."""

# As report C trained: Adam, no shuffling, batch 32 and test batch 128 a rank; on images of MNIST's shape that need no
# download.
REPORT_C = ("--dataset", "digits", "--image-size", "28", "--lr", "5e-4", "--weight-decay", "5e-4", "--shuffle", "false",
            "--test-batch-per-rank", "128", "--device", "cpu")  # fmt: skip


def sweep(host: Host, out: str, model: str, repeats: str) -> None:
    """One sweep on a host, as a user types it there."""
    flags = ("--model", model, "--epochs", str(MODELS[model]), "--repeats", repeats, "--out", out)
    words = [sys.executable, "sweeps/machines.py", "--address", "auto", *REPORT_C, *flags]
    done = host.run(words, cwd=PROJECT, env={"PYTHONPATH": str(PROJECT)}, timeout=900)
    if done.returncode:
        sys.exit(f"{done.stdout}\n{done.stderr}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, help="folder of the results, below this project")
    parser.add_argument("--repeats", default="auto", help="as of the sweep: a number, or auto, the default")
    args = parser.parse_args()
    tables, notes = [], []
    with Network([PROJECT, *install_folders()]) as network:
        one, two = network.add(2)
        network.cluster(2, 2, env={"PYTHONPATH": str(PROJECT)})
        for rate in RATES:
            if rate != "unshaped":
                two.shape(rate)
            for model in MODELS:
                out = f"{args.out}/{model}-{rate}"
                sweep(one, out, model, args.repeats)
                layout = render(load(out), "scaling")
                frame = layout.frame
                frame.insert(0, "link", rate)
                frame.insert(0, "model", model)
                tables.append(frame)
                notes = list(layout.notes)
                print(markdown(frame), flush=True)
    text = "\n".join([markdown(pd.concat(tables).fillna("")), "", *notes])
    Path(args.out, "links.md").write_text(f"# `python benchmarks/links.py --out {args.out}`\n\n{text}\n")


if __name__ == "__main__":
    main()
