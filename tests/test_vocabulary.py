"""The language of the project: words to avoid, and modules that are short or say why not."""

from __future__ import annotations

import re

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

SUFFIXES = (".py", ".js", ".css", ".j2", ".md")
FOLDERS = ("dmls_ray", "sweeps", "examples", "docs")


def test_no_text_uses_a_word_that_readers_stumble_over() -> None:
    files = [path for folder in FOLDERS for path in (PROJECT / folder).rglob("*") if path.suffix in SUFFIXES]
    found = []
    for path in [*files, *PROJECT.glob("*.md")]:
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for pattern, instead in AVOIDED.items():
                if re.search(pattern, line, re.IGNORECASE):
                    found.append(f"{path}:{number}: write {instead} instead: {line.strip()}")
    assert not found, "\n".join(found[:50])


def test_a_module_above_350_lines_says_why_in_its_first_lines() -> None:
    for path in (PROJECT / "dmls_ray").rglob("*.py"):
        text = path.read_text()
        if text.count("\n") > 350:
            assert re.search("above 350 lines|one module because", text.split('"""')[1], re.IGNORECASE), path
