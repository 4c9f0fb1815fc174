"""The flags of a script, and how their values reach it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.registry import workload_of_script
from dmls_ray.workloads.script.config import ScriptConfig
from dmls_ray.workloads.script.workload import ScriptWorkload

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


def config_of(tmp_path: Path, arguments: list[str], source: str = "", **values: Any) -> ScriptConfig:
    script = tmp_path / "train.py"
    script.write_text(source)
    config = workload_of_script(str(script), arguments).schema().make(**values)
    assert isinstance(config, ScriptConfig)
    return config


def test_a_setting_in_braces_fills_them_and_stays_the_setting(tmp_path: Path) -> None:
    arguments = ["devices={world_size}", "n={steps}", "nodes={machines}x{ranks_per_machine}", "seed={seed}"]
    config = config_of(tmp_path, arguments, world_size=4, machines=2, steps=7)
    assert (config.world_size, config.steps) == (4, 7)
    assert config.replace(seed=3).words() == ["devices=4", "n=7", "nodes=2x2", "seed=3"]
    assert config.canonical()["world_size"] == 4


def test_a_flag_in_braces_fills_them_and_stays_a_flag(tmp_path: Path) -> None:
    source = SCRIPT.replace('"--lr", type=float', '"--lr", "--rate", type=float, default=0.5').replace(
        "_args", "_known_args"
    )
    config = config_of(tmp_path, ["--name", "lr{lr}-{rate}"], source, rate=0.1)
    assert config.words() == ["--name", "lr0.1-0.1", "--rate", "0.1"]
    assert config_of(tmp_path, ["lr{lr}"], source).words() == ["lr0.5"]


@pytest.mark.parametrize(
    ("argument", "line"),
    [
        ("n={other}", r"\{other\} among the words after -- is filled by nothing; give --set other VALUE"),
        ("n={machines}", r"\{machines\} among the words after -- is filled by nothing"),
        ("n={steps}", r"\{steps\} among the words after -- needs a number of steps; give --steps 50"),
    ],
)
def test_braces_that_nothing_fills_are_refused_by_name(tmp_path: Path, argument: str, line: str) -> None:
    config = config_of(tmp_path, [argument])
    with pytest.raises(ConfigError, match=line):
        ScriptWorkload().check([config])


def test_braces_of_other_programs_and_doubled_ones_stay(tmp_path: Path) -> None:
    arguments = ["lr=${base_lr}", "name={{epoch}}", '{"a": 1}', "${oc.env:HOME}"]
    assert config_of(tmp_path, arguments).words() == ["lr=${base_lr}", "name={epoch}", '{"a": 1}', "${oc.env:HOME}"]


def test_a_variable_with_the_name_of_a_setting_or_a_flag_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    for name in ("seed", "lr"):
        with pytest.raises(ConfigError, match=f"--env {name}: a setting or a flag of .* has this name"):
            workload_of_script(str(tmp_path / "train.py"), [], variables={name: "1"}).schema()


def test_samples_are_said_by_flags_aliases_defaults_given_words_variables_and_braces(tmp_path: Path) -> None:
    source = SCRIPT.replace('"--lr", type=float', '"--batch-size", "--bs", type=int, default=16')
    assert config_of(tmp_path, [], source).said() == {}
    text = "bs * world_size, tokens=batch_size * 2"
    assert config_of(tmp_path, [], source, samples=text).said() == {"samples": 16, "tokens": 32}
    assert config_of(tmp_path, ["--bs=8"], source, samples=text).said() == {"samples": 8, "tokens": 16}
    config = config_of(tmp_path, [], source, samples=text, batch_size=4, world_size=2)
    assert config.said() == {"samples": 8, "tokens": 8}
    script = str(tmp_path / "train.py")
    workload = workload_of_script(script, ["--pin={pin_to}"], variables={"SIZE": "3"})
    config = workload.schema().make(SIZE="3", pin_to=5, samples="SIZE * pin_to")
    assert config.said() == {"samples": 15}  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match="no flag or field batch; did you mean batch_size"):
        ScriptWorkload().check([config_of(tmp_path, [], source, samples="batch")])


def test_any_name_of_a_flag_is_an_axis_from_python(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.replace('"--lr"', '"--learning-rate", "--lr"'))
    workload = workload_of_script(str(tmp_path / "train.py"))
    assert workload.name_objects({"lr": [1, 2], "steps": 3}) == {"learning_rate": [1, 2], "steps": 3}


def test_flags_of_several_names_fill_the_seed(tmp_path: Path) -> None:
    source = SCRIPT.replace('"--lr", type=float', '"--random-generator", "--seed", type=int')
    assert config_of(tmp_path, [], source).seed_flag == "--random-generator"
