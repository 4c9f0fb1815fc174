"""Find the fastest of some settings, as a program does: by JSON and exit codes alone.

    python examples/agent.py examples/train.py --batch-size 16 32 64 128

It repeats runs until all that is slower than the best one is so beyond chance, or until more repeats would be in vain.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

MOST_REPEATS = 24


def ask(command: str, what: str, *words: str) -> dict[str, Any]:
    """The object that a command of dmls_ray prints; another exit code than 0 ends this program with the same one."""
    command_line = [sys.executable, "-m", "dmls_ray", command, what, "--format", "json", *words]
    done = subprocess.run(command_line, stdout=subprocess.PIPE, encoding="utf-8", check=False)
    if done.returncode:
        sys.exit(done.returncode)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main() -> None:
    """Ask, and print the best setting with those that it may be equal to, as JSON."""
    what, *words = sys.argv[1:]
    repeats = 3
    while True:
        # The same command continues: only the runs that are missing are made.
        answer = ask("sweep", what, "--max-repeats", str(repeats), *words)
        advice = ask("advise", answer["folder"], "--for", "throughput")
        best, *others = advice["trials"]
        open_ones = [trial["config"] for trial in others if trial["verdict"] == "not distinguished"]
        wanted = answer["repeats_wanted"]
        if not open_ones or wanted is None or repeats >= MOST_REPEATS:
            break
        repeats = min(max(wanted, repeats + 1), MOST_REPEATS)
    speed = best["objective"]
    print(json.dumps({"best": best["config"], "speed": speed, "not_distinguished": open_ones}))


if __name__ == "__main__":
    main()
