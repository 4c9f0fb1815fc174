"""Play scenarios of faults, and print what came of them: `python -m benchmarks.chaos --seeds 1-10`."""

from __future__ import annotations

import argparse
import itertools
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import msgspec

from benchmarks.chaos.faults import KINDS
from benchmarks.chaos.places import PLACES, empty_folder
from benchmarks.chaos.runner import Played, References, play
from benchmarks.chaos.scenario import SHORT, Size, make_scenario
from benchmarks.chaos.table import by_kind, by_scenario, totals
from benchmarks.common import machine
from dmls_ray.analysis.export.text_tables import markdown


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
    parser.add_argument("--record", type=Path, help="file that gets a line per scenario")
    parser.add_argument("--table", action="store_true", help="print the tables of all scenarios in --record")
    args = parser.parse_args()
    size = SHORT if args.short else Size()
    began = time.monotonic()

    def note(text: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {text}", file=sys.stderr, flush=True)

    played = []
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        references = References(Path(name) / "undisturbed", note)
        for seed in itertools.chain(*map(seeds_of, args.seeds)):
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
                with open(args.record, "ab") as file:
                    file.write(msgspec.json.encode(replace(one, output="")) + b"\n")
    fails = not all(one.passes for one in played)
    if args.table:
        played = [msgspec.json.decode(line, type=Played) for line in args.record.read_bytes().splitlines()]
    for frame in (totals(played), by_kind(played), by_scenario(played)):
        print(markdown(frame), end="\n\n")
    print(machine("torch", "ray"))
    return int(fails)


if __name__ == "__main__":
    sys.exit(main())
