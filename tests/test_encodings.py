"""No text file is read or written in the encoding of the locale, which may lack a character of it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.conftest import PROJECT

FOLDERS = ("dmls_ray", "sweeps", "examples", "docs")


def in_the_encoding_of_the_locale(source: str) -> Iterator[int]:
    """Lines of calls that read or write text, and name no encoding."""
    for call in ast.walk(ast.parse(source)):
        if not isinstance(call, ast.Call) or any(keyword.arg == "encoding" for keyword in call.keywords):
            continue
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        keywords = {keyword.arg: getattr(keyword.value, "value", None) for keyword in call.keywords}
        mode = keywords.get("mode", getattr(call.args[1], "value", "") if len(call.args) > 1 else "r")
        opens = name == "fdopen" or (name == "open" and isinstance(call.func, ast.Name))
        if name in ("read_text", "write_text") or (opens and "b" not in str(mode)) or keywords.get("text") is True:
            yield call.lineno


def test_each_text_file_is_opened_with_an_encoding() -> None:
    found = [
        f"{path.relative_to(PROJECT)}:{line}"
        for folder in FOLDERS
        for path in sorted((PROJECT / folder).rglob("*.py"))
        for line in in_the_encoding_of_the_locale(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("line", "found"),
    [("Path('a').read_text()", True), ("path.write_text(x, encoding='utf-8')", False), ("open(path)", True),
     ("open(path, 'rb')", False), ("open(path, mode='w')", True), ("os.fdopen(file, 'w')", True),
     ("os.open(path, os.O_RDONLY)", False), ("Image.open(path)", False), ("run(words, text=True)", True)],
)  # fmt: skip
def test_a_call_without_an_encoding_is_found(line: str, found: bool) -> None:
    assert list(in_the_encoding_of_the_locale(line)) == [1] * found
