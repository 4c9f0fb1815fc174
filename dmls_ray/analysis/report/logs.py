"""Tracebacks, and the files that a run left in `runs/<run_id>/`: shortened, with the file named that has the whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dmls_ray.records.model import RunRecord
from dmls_ray.storage.folder import RUNS, is_inside

MOST = 4_000
"""Characters of one text."""
TOGETHER = 600_000
"""Characters of all different texts of a report; those after them are named only."""

_MOST_FILES = 40
_TEXT = {".err", ".log", ".out", ".txt"}


class TextTable:
    """The different texts of a report, each once: a hundred runs often fail alike."""

    def __init__(self, most: int = MOST, together: int = TOGETHER) -> None:
        self.texts: list[str] = []
        self._most = most
        self._left = together
        self._places: dict[str, int] = {}

    def add(self, text: str) -> int | None:
        """Its place in `texts`; None where there is no more room."""
        text = shorten(text, self._most)
        if text not in self._places:
            if len(text) > self._left:
                return None
            self._left -= len(text)
            self._places[text] = len(self.texts)
            self.texts.append(text)
        return self._places[text]


def shorten(text: str, most: int) -> str:
    """The beginning and, since that is where the error stands, three times as much of the end."""
    if len(text) <= most:
        return text
    left_out = f"\n[... {len(text) - most:,} characters left out ...]\n"
    return text[: most // 4] + left_out + text[-(most - most // 4) :]


def run_logs(record: RunRecord, folder: Path, texts: TextTable) -> list[dict[str, Any]]:
    """What there is to read of a run: title, the file that has the whole, and the place of the text in `texts`."""
    told = []
    if record.traceback:
        told.append(_log("Traceback", f"{RUNS}, run_id {record.run_id}", record.traceback, texts))
    for path in _files(folder, record):
        if path.suffix in _TEXT and (text := _end(path)):
            told.append(_log(path.name, f"runs/{record.run_id}/{path.name}", text, texts))
    return told


def run_files(record: RunRecord, folder: Path) -> list[dict[str, Any]]:
    """The run's files, with addresses that lead from the results folder to them."""
    return [
        {"name": path.name, "bytes": path.stat().st_size, "href": f"runs/{record.run_id}/{_quoted(path)}"}
        for path in _files(folder, record)
    ]


def _log(title: str, whole: str, text: str, texts: TextTable) -> dict[str, Any]:
    return {"title": title, "whole": whole, "is_short": len(text) > MOST, "text": texts.add(text)}


def _quoted(path: Path) -> str:
    return quote(os.fsencode(path.name))


def _files(folder: Path, record: RunRecord) -> Iterator[Path]:
    """The files of a run; what is a link, or lies behind one that leads out of the results folder, is none of them."""
    of_run = folder / "runs" / record.run_id
    try:
        if not is_inside(of_run, folder):
            return
        names = sorted(entry.name for entry in os.scandir(of_run) if entry.is_file(follow_symlinks=False))
    except OSError:
        return
    yield from (of_run / name for name in names[:_MOST_FILES])


def _end(path: Path) -> str:
    """The last of a text file, and one character more than is shown where there is more."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, path.stat().st_size - 4 * (MOST + 1)))
            return file.read().decode(errors="replace")
    except OSError:
        return ""
