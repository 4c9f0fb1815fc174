"""Play scenarios of faults, and print what came of them: `python -m benchmarks.chaos --seeds 1-10`."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from dataclasses import asdict, fields, replace
from pathlib import Path

from benchmarks.chaos.faults import KINDS
from benchmarks.chaos.places import PLACES, empty_folder
from benchmarks.chaos.runner import References, play
from benchmarks.chaos.scenario import SHORT, Size, make_scenario
from benchmarks.chaos.table import by_kind, by_scenario, read_played, totals
from dmls_ray.analysis.export.text_tables import markdown
from dmls_ray.records.provenance import describe_machine, describe_versions


def seeds_of(text: str) -> list[int]:
    """`7` or `3-5`."""
    first, _, last = text.partition("-")
    return [*range(int(first), int(last or first) + 1)]


def main() -> int:
    """Play and print; returns 1 if a scenario fails."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="*", default=[], metavar="N|N-M", help="scenarios to play")
    parser.add_argument("--place", choices=[*PLACES], default="", help="by default each seed chooses")
    parser.add_argument("--kinds", nargs="*", default=[], choices=[*KINDS], metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--short", action="store_true", help=f"size of the test: {SHORT}")
    parser.add_argument("--runs", type=int, help=f"per scenario, a multiple of 4 (default: {Size.runs})")
    parser.add_argument("--faults", type=int, help=f"per scenario (default: {Size.faults})")
    parser.add_argument("--pause-s", type=float, help=f"how long a process is stopped (default: {Size.pause_s:g})")
    parser.add_argument("--undisturbed", type=Path, help="folder that keeps the undisturbed sweep for the next call")
    parser.add_argument("--record", type=Path, help="file that gets a line per scenario")
    parser.add_argument("--table", action="store_true", help="print the tables of all scenarios in --record")
    args = parser.parse_args()
    given = {field.name: getattr(args, field.name) for field in fields(Size)}
    size = replace(SHORT if args.short else Size(), **{name: value for name, value in given.items() if value})
    began = time.monotonic()

    def note(text: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {text}", file=sys.stderr, flush=True)

    played = []
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        references = References((args.undisturbed or Path(name) / "undisturbed").resolve(), note)
        for seed in (seed for text in args.seeds for seed in seeds_of(text)):
            scenario = make_scenario(seed, size, place=args.place, kinds=args.kinds)
            note(f"seed {seed}: {scenario.place}, {', '.join(strike.kind for strike in scenario.strikes)}")
            one = play(scenario, empty_folder(Path(name), "scenario"), references, note)
            played.append(one)
            for problem in [*one.counts.examples, *one.hung, *one.gave_up, *one.left]:
                note(f"  {problem}")
            note(f"seed {seed}: {'passes' if one.passes else 'FAILS'} after {one.took_s:.0f} s")
            if not one.passes:
                note(one.output)
            if args.record:
                with open(args.record, "a") as file:
                    file.write(json.dumps({**asdict(one), "output": ""}) + "\n")
    fails = not all(one.passes for one in played)
    if args.table:
        played = read_played(args.record)
    for frame in (totals(played), by_kind(played), by_scenario(played)):
        print(markdown(frame), end="\n\n")
    machine, versions = describe_machine(), describe_versions()
    print(f"{machine['cpu']}, {machine['cores']} cores; torch {versions['torch']}, ray {versions['ray']}")
    return int(fails)


if __name__ == "__main__":
    sys.exit(main())
