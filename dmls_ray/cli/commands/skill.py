"""The command that gives agents their instructions: `skill`."""

from __future__ import annotations

import argparse
from pathlib import Path

from dmls_ray.cli.console import Console, Parser, say
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.files import atomic_write_text

SKILL = Path(__file__).with_name("SKILL.md")
"""Made of docs/agents.md by docs/generate.py."""

FOLDERS = (".agents/skills/dmls-ray", ".claude/skills/dmls-ray")
"""Where agents look, below a project or a home folder. Most of them read the first, and Claude Code the second; the
last part is the name in the file."""


def skill_arguments(parser: Parser) -> None:
    parser.add_argument("action", metavar="install", nargs="?", choices=["install"], help="Write it where agents look")
    parser.add_argument(
        "folder", metavar="DIR", nargs="?", default=".", help="Project, or home folder for all projects (default: .)"
    )


def skill(given: argparse.Namespace, console: Console) -> None:
    """Print the instructions for agents: how to ask, what each answer allows, and what never to do.

    With install: write them into .agents/skills and .claude/skills of a folder. No other file is overwritten.
    """
    text = SKILL.read_text(encoding="utf-8")
    if not given.action:
        print(text, end="")
        return
    paths = [Path(given.folder, folder, SKILL.name) for folder in FOLDERS]
    for path in paths:
        if path.exists() and path.read_text(encoding="utf-8", errors="replace") != text:
            raise ConfigError(
                f"{path} has another content, of another version or another author; remove it, or name another folder."
            )
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write_text(path, text)
        say(console, str(path))
