"""Names, values and texts outside ASCII, in a locale that has none of them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dmls_ray.analysis.results import load
from tests.conftest import PROJECT

FUNCTION = '''
"""Größe."""
from dataclasses import dataclass

@dataclass(frozen=True)
class Words:
    word: str = "äh"
    """Ein Wörtchen."""

def train(config: Words, rank, emit):
    print("für", config.word)
    with open("geschrieben.txt", "w") as file:
        file.write("ü")
    return {"größe": len(config.word), "train_loss": 1.0}
'''

LOCALES = {
    "C without UTF-8 mode": {"LC_ALL": "C", "PYTHONUTF8": "0"},
    "POSIX, and an output in ASCII": {
        "LANG": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii",
    },
    "UTF-8, and an output in ASCII": {"LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "ascii"},
}  # fmt: skip


def run(folder: Path, locale: str, *words: str | bytes) -> subprocess.CompletedProcess[bytes]:
    environment = {name: value for name, value in os.environ.items() if name not in ("LANG", "LC_ALL", "LC_CTYPE")}
    # Without GPUs, a plan needs no PyTorch.
    environment |= {"CUDA_VISIBLE_DEVICES": "", **LOCALES[locale]}
    return subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, check=False)


@pytest.mark.parametrize("locale", ["C without UTF-8 mode", "UTF-8, and an output in ASCII"])
def test_a_plan_with_names_outside_ascii_is_shown_in_any_locale(tmp_path: Path, locale: str) -> None:
    (tmp_path / "größe.py").write_text(FUNCTION, encoding="utf-8")
    script, words = (
        str(PROJECT / "sweeps" / "grid.py"),
        ("--train", "größe:train", "--word", "ß", "föö", "--out", "übung"),
    )
    done = run(tmp_path, locale, script, *words, "--dry-run")
    assert (done.returncode, done.stderr) == (0, b"")
    shown = "word=ß" if "ASCII" not in locale else r"word=\xdf"
    assert shown in done.stdout.decode()
    help_text = run(tmp_path, locale, script, *words, "--help").stdout.decode()
    assert ("Ein Wörtchen" if "ASCII" not in locale else r"Ein W\xf6rtchen") in help_text


@pytest.mark.slow
@pytest.mark.parametrize("locale", ["C without UTF-8 mode", "POSIX, and an output in ASCII"])
def test_a_sweep_with_names_outside_ascii_keeps_all_of_them_in_any_locale(tmp_path: Path, locale: str) -> None:
    folder = tmp_path / "Mappe ä"
    folder.mkdir()
    (folder / "größe.py").write_text(FUNCTION, encoding="utf-8")
    words = ("--train", "größe:train", "--word", "ß", "föö", "--repeats", "1", "--device", "cpu", "--out", "übung")
    done = run(folder, locale, str(PROJECT / "sweeps" / "grid.py"), *words)
    assert (done.returncode, done.stderr) == (0, b""), done.stdout.decode()
    results = load(folder / "übung")
    assert dict(zip(results.runs.word, results.runs.größe, strict=True)) == {"ß": 1, "föö": 3}
    assert "größe" in (folder / "übung" / "table.md").read_text(encoding="utf-8")
    assert (folder / "übung" / "report.html").exists()
    assert (folder / "geschrieben.txt").read_bytes() == "ü".encode()
    for command in (("table", "übung"), ("report", "übung"), ("table", "übung", "--format", "csv")):
        done = run(folder, locale, "-m", "dmls_ray", *command)
        assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("words", [("--out", b"erg-\xfc"), ("--word", b"\xfc")])
def test_a_word_that_is_no_utf_8_is_refused_before_anything_starts(tmp_path: Path, words: tuple[str, bytes]) -> None:
    (tmp_path / "size.py").write_text(FUNCTION, encoding="utf-8")
    done = run(tmp_path, "C without UTF-8 mode", str(PROJECT / "sweeps" / "grid.py"), "--train", "size:train", *words)
    assert done.returncode == 2
    assert r"\udcfc' is not UTF-8; give another name" in done.stderr.decode()
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == ["size.py"]
