"""The language of the project: words to avoid, and modules that are short or say why not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import PROJECT

AVOIDED = {
    r"\btold\b|(?<!\.)\btells?\b": "reported, described, notified, `distinguishable`",
    r"\bmend(s|ed|ing)?\b": "fix, repair",
    r"\banew\b": "again",
    r"(?<![a-z\"`])beside(?![a-z])": "next to, in addition to, with",
    r"\bnobody\b": "no user, no process, none",
    r"(?<![a-z])alike(?![a-z])": "equal, equally",
    r"\b(house|roof|rooms)\b|(?<!math\.)(?<!np\.)(?<!torch\.)\bfloors?\b(?!\()": "package, layer, module",
    r"\b(user's|users'|one's|ones|your) own\b|\bown_(?!output)\w+|\w_own\b": "user-defined, custom",
    r"\bheld to\b|\bholds? \w+ to\b|\.held\b": "tested against, checked against",
    r"\btold apart\b|\bso that none\b|\bat[ _]worst\b": "distinguishable; rephrase",
}
"""Pattern -> what to write instead."""

SUFFIXES = {".py", ".js", ".css", ".j2", ".md"}
PLACES = ("dmls_ray", "sweeps", "examples", "docs", "README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")


def texts() -> list[Path]:
    roots = [PROJECT / place for place in PLACES]
    files = [path for root in roots for path in (root.rglob("*") if root.is_dir() else [root])]
    return sorted(path for path in files if path.suffix in SUFFIXES and path.is_file())


@pytest.mark.parametrize("pattern", AVOIDED)
def test_no_text_uses_a_word_that_readers_stumble_over(pattern: str) -> None:
    found = [
        f"{path.relative_to(PROJECT)}:{number}: {line.strip()}"
        for path in texts()
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(pattern, line, re.IGNORECASE)
    ]
    assert not found, f"write {AVOIDED[pattern]} instead:\n" + "\n".join(found[:50])


def test_a_module_above_350_lines_says_why_in_its_first_lines() -> None:
    long = {
        path.relative_to(PROJECT): path.read_text().partition('"""')[2].partition('"""')[0].lower()
        for path in (PROJECT / "dmls_ray").rglob("*.py")
        if len(path.read_text().splitlines()) > 350
    }
    assert not [
        path
        for path, docstring in long.items()
        if "above 350 lines" not in docstring and "one module because" not in docstring
    ]
