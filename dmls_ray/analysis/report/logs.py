"""Tracebacks and the files in the folder of a run, shortened, each with the name of the file that has the full text."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dmls_ray.records.model import RunRecord
from dmls_ray.storage.runs_file import RUNS
from dmls_ray.util.paths import is_inside, open_regular

MOST = 4_000
"""Maximum characters of one text."""
TOGETHER = 600_000
"""Maximum characters of all distinct texts of a report; the texts after these are left out."""

_MOST_FILES = 40
_TEXT = {".err", ".log", ".out", ".txt"}


class TextTable:
    """The distinct texts of a report; many runs often fail with the same text."""

    def __init__(self, most: int = MOST, together: int = TOGETHER) -> None:
        self.texts: list[str] = []
        self._most = most
        self._left = together
        self._indices: dict[str, int] = {}

    def add(self, text: str) -> int | None:
        """Add a text; returns its index in `texts`, or None if it would exceed the total."""
        text = shorten(text, self._most)
        if text not in self._indices:
            if len(text) > self._left:
                return None
            self._left -= len(text)
            self._indices[text] = len(self.texts)
            self.texts.append(text)
        return self._indices[text]


def shorten(text: str, most: int) -> str:
    """The start of a text and three times as much of its end, where an error usually is."""
    if len(text) <= most:
        return text
    left_out = f"\n[... {len(text) - most:,} characters left out ...]\n"
    return text[: most // 4] + left_out + text[-(most - most // 4) :]


def run_logs(record: RunRecord, folder: Path, texts: TextTable) -> list[dict[str, Any]]:
    """The logs of a run: title, location of the full text, and index of the text in `texts`."""
    logs = []
    if record.traceback:
        logs.append(_log("Traceback", f"{RUNS}, run_id {record.run_id}", record.traceback, texts))
    for path in _files(folder, record):
        if path.suffix in _TEXT and (text := _end(path)):
            logs.append(_log(path.name, f"{record.folder}/{path.name}", text, texts))
    return logs


def run_files(record: RunRecord, folder: Path) -> list[dict[str, Any]]:
    """The files of a run with links relative to the results folder."""
    return [
        {
            "name": path.name,
            "bytes": path.stat().st_size,
            "href": f"{record.folder}/{quote(os.fsencode(path.name))}",
        }
        for path in _files(folder, record)
    ]


def _log(title: str, whole: str, text: str, texts: TextTable) -> dict[str, Any]:
    return {"title": title, "whole": whole, "is_short": len(text) > MOST, "text": texts.add(text)}


def _files(folder: Path, record: RunRecord) -> Iterator[Path]:
    """The files of a run, without hidden files, symbolic links and files behind links that leave the results folder."""
    of_run = folder / record.folder
    try:
        if not is_inside(of_run, folder):
            return
        entries = [entry for entry in os.scandir(of_run) if entry.is_file(follow_symlinks=False)]
        names = sorted(entry.name for entry in entries if not entry.name.startswith("."))
    except OSError:
        return
    yield from (of_run / name for name in names[:_MOST_FILES])


def _end(path: Path) -> str:
    """The end of a text file; one character more than is shown if the file is longer."""
    try:
        with open_regular(path) as file:
            file.seek(max(0, path.stat().st_size - 4 * (MOST + 1)))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
