"""Sweeps of results/reference, measured again: each by its command in results/reference/README.md.

    python benchmarks/reference.py batch_size optimizer

Run it on an idle machine, with all changes committed. The runs replace those of the folder. Its figures are drawn, and
tables, sentences and generated pages written again. Without names: all that need neither downloads nor root.
"""

from __future__ import annotations

import argparse
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(PROJECT))

from dmls_ray import load  # noqa: E402
from dmls_ray.analysis.figures import charts  # noqa: E402
from dmls_ray.analysis.figures.drawn import save  # noqa: E402
from dmls_ray.analysis.summary import summarize  # noqa: E402
from tests.regenerate_reference import regenerate  # noqa: E402

REFERENCE = PROJECT / "results" / "reference"
CONSOLE = "console.txt"
"""File of a folder with what its sweep printed, where the README shows it."""


def commands() -> dict[str, list[str]]:
    """Folder -> the words of its command, of the sweeps that need neither data of the user nor other machines."""
    rows = re.findall(r"^\| `(\w+)` \|.*\| `python (sweeps/[^`]*)` \|$", (REFERENCE / "README.md").read_text(), re.M)
    return {name: shlex.split(command) for name, command in rows if "--data-dir" not in command}


def measure(name: str, words: list[str]) -> None:
    """Run a sweep where a new user would, and put its runs into its folder."""
    with tempfile.TemporaryDirectory() as scratch:
        # The recorded command is that of the README: no folder of this machine is in it.
        (Path(scratch) / "sweeps").symlink_to(PROJECT / "sweeps")
        done = subprocess.run(
            [sys.executable, *words], cwd=scratch, env={**os.environ, "PYTHONPATH": str(PROJECT)},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        (out,) = Path(scratch, "results").glob("*") if done.returncode == 0 else [None]
        if out is None:
            sys.exit(f"{name}: exit code {done.returncode}\n{done.stdout}")
        print(done.stdout)
        for file in ("runs.jsonl", "sweep.json"):
            shutil.copyfile(out / file, REFERENCE / name / file)
    if (REFERENCE / name / CONSOLE).exists():
        lines = [line for line in done.stdout.splitlines() if re.match(r"\[ *\d+/\d+\] ", line)]
        (REFERENCE / name / CONSOLE).write_text("\n".join(lines) + "\n")


def draw(name: str) -> None:
    """Draw the figures that the folder has."""
    folder = REFERENCE / name / "figures"
    kept = {path.stem for path in folder.glob("*.png")}
    with tempfile.TemporaryDirectory() as scratch:
        for path in save(charts(summarize(load(folder.parent)).table), scratch):
            if path.suffix == ".png" and path.stem in kept:
                shutil.copyfile(path, folder / path.name)


def main() -> None:
    """Measure, draw and write."""
    known = commands()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", nargs="*", help=f"{', '.join(known)}; all by default")
    names = parser.parse_args().name or list(known)
    if unknown := [name for name in names if name not in known]:
        parser.error(f"{', '.join(unknown)}: unknown; choose from {', '.join(known)}")
    status = ["git", "status", "--porcelain", "--untracked-files=no"]
    if subprocess.run(status, cwd=PROJECT, capture_output=True, text=True, check=True).stdout:
        sys.exit("The records name a commit: commit the changes of this checkout first.")
    for name in names:
        measure(name, known[name])
    for name in names:
        draw(name)
    regenerate()
    runpy.run_path(str(PROJECT / "docs" / "generate.py"), run_name="__main__")


if __name__ == "__main__":
    main()
