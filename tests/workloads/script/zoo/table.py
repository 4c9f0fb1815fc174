"""Print the table of the zoo in docs/scripts.md: python -m tests.workloads.script.zoo.table."""

from __future__ import annotations

import tempfile
from pathlib import Path

from dmls_ray.util.fork_server import ForkServer
from tests.workloads.script.conftest import ENTRY, Runner
from tests.workloads.script.zoo.zoo import SCRIPTS, run_zoo, shape_of


def main() -> None:
    """Run all scripts, and print a line for each."""
    servers = [ForkServer("dmls_ray.training.rank:preload", ENTRY) for _ in range(2)]
    print("| shape | samples of a step | stated |\n|---|---|---|")
    for name in SCRIPTS:
        with tempfile.TemporaryDirectory() as folder:
            seen = run_zoo(Runner(servers, Path(folder)), name)
        stated = seen.stated.samples_per_step
        text = f"not known: {seen.record.facts['samples_unknown']}" if stated is None else f"{stated:.4g}"
        if "time_unknown" in seen.record.facts:
            text += "; times are not known"
        print(f"| {shape_of(name)} | {seen.truth.samples_per_step:.4g} | {text} |")
    for server in servers:
        server.close()


if __name__ == "__main__":
    main()
