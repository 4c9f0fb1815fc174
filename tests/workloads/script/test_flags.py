"""The flags of a script, and how their values reach it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmls_ray.workloads.registry import workload_of_script
from dmls_ray.workloads.script.workload import ScriptConfig

SCRIPT = """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--shuffle", action=argparse.BooleanOptionalAction, default=True)
parser.add_argument("--pin", type=lambda text: {"true": True, "none": None}[text])
parser.add_argument("--layers", nargs="+", type=int, choices=[2, 4])
parser.add_argument("--lr", type=float)
parser.add_argument("--script")
parser.parse_args()
"""


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("shuffle", "true", ["--shuffle"]),
        ("shuffle", "false", ["--no-shuffle"]),
        ("pin", "true", ["--pin", "true"]),  # what is no number stays as it was typed
        ("pin", "none", ["--pin", "none"]),
        ("layers", "2 4", ["--layers", "2", "4"]),
        ("lr", "1e-3", ["--lr", "0.001"]),
        ("script_script", "x", ["--script", "x"]),  # not the script of the record
    ],
)
def test_a_value_reaches_the_script_as_its_flag_takes_it(
    tmp_path: Path, name: str, text: str, words: list[str]
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    schema = workload_of_script(str(script), []).schema()
    config = schema.make(**{name: schema.specs[name].parse(text)})
    assert isinstance(config, ScriptConfig)
    assert config.words() == words
    assert config.canonical()["script"] == str(script)


def test_a_name_in_braces_is_replaced_by_what_was_typed(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("")
    schema = workload_of_script(str(script), ["--amp={amp}", "--lr={lr}"]).schema()
    values = {name: schema.specs[name].parse(text) for name, text in (("amp", "true"), ("lr", "1e-3"))}
    config = schema.make(**values)
    assert isinstance(config, ScriptConfig)
    assert config.words() == ["--amp=true", "--lr=0.001"]
