from __future__ import annotations

import json
import shlex
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from dmls_ray.analysis.results import Results
from dmls_ray.analysis.summary import summarize
from dmls_ray.cli.sweep_output import (
    _show_best,
    confirming_flags,
    describe_estimate,
    describe_saved_weights,
    training_command,
    weights_flags,
)
from dmls_ray.config.options import Options
from dmls_ray.config.runtime import Schema
from dmls_ray.execution.planning import FolderState, make_plan
from dmls_ray.execution.view import ProgressConsole
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.workload import ClassificationWorkload
from dmls_ray.workloads.user_function.schema import user_function_schema
from tests.analysis.samples import results
from tests.conftest import SMALL, Command

FUNCTIONS = "tests.workloads.user_function.test_schema"
MODULE = "tests.cli.test_sweep_output"
BEST = TrialConfig(model="simplecnn", dropout=0.25, batch_per_rank=8, seed=7).canonical()


@dataclass(frozen=True)
class Values:
    one_or_several: int | list[int] = 0
    truth_or_number: Literal[1, True] = 1
    numbers: tuple[int, ...] = ()
    texts: tuple[str, ...] = ()
    mixed: tuple[int, str, float] = (1, "a", 2.0)
    text: str = ""


def of_values(config: Values, rank: Any, emit: Any) -> None: ...


def of_a_rate(config: dict[str, Any], rank: Any, emit: Any) -> None:
    emit({"train_loss": config["rate"]})


def command_of(
    config: dict[str, Any] | None = None, schema: Schema | None = None, name: str = "classification", **changes: Any
) -> str:
    config, schema = config or BEST, schema or ClassificationWorkload().schema()
    asked = {
        "options": Options(mode="search", searcher="random", samples=4, oversubscribe=True, run_timeout=60),
        "workload": SimpleNamespace(name=name, schema=lambda: schema),
        "script_fields": {"epochs", "augmentation"}, "set_fields": (), **changes,
    }  # fmt: skip
    return training_command(SimpleNamespace(**asked), config, "sweeps/search.py")  # type: ignore[arg-type]


def test_the_best_configuration_is_trained_again_with_seeds_that_the_search_has_not_used() -> None:
    assert command_of() == (
        "python sweeps/search.py --workload classification --mode bench --model simplecnn --batch-per-rank 8 "
        "--epochs 5 --dropout 0.25 --augmentation none --oversubscribe true --run-timeout 60.0"
    )
    flags = confirming_flags(BEST, 2, "s3://bucket/lr search/")
    assert flags == ["--seed", "20007", "--repeats", "5", "--out", "s3://bucket/lr search-best"]


@pytest.mark.parametrize("where", ["results/lr search", "s3://bucket/lr search/"])
def test_its_weights_are_those_of_the_seed_that_won_and_lie_in_a_folder(where: str) -> None:
    flags = ["--seed", "7", "--repeats", "1", "--save-weights", "--out", "results/lr search-weights"]
    assert weights_flags(BEST, where) == flags


def test_a_field_of_a_dict_is_given_as_what_it_was() -> None:
    schema = user_function_schema(f"{FUNCTIONS}:of_a_dict", ["x", "name"])
    config = schema.make(x=0.5, name="12").canonical()
    name = f"{FUNCTIONS}:of_a_dict"
    command = command_of(config, schema, name, set_fields=("x", "name"), script_fields=(), options=Options())
    words = shlex.split(command)
    assert words[1:4] == ["sweeps/search.py", "--train", f"{FUNCTIONS}:of_a_dict"]
    assert words[6:12] == ["--set", "x", "0.5", "--set", "name", '"12"']
    assert schema.specs["name"].parse(words[11]) == "12"


@pytest.mark.parametrize(
    ("given", "texts"),
    [
        ({"one_or_several": [1]}, ["--one-or-several", "[1]"]),
        ({"one_or_several": 1}, ["--one-or-several", "1"]),
        ({"truth_or_number": True}, ["--truth-or-number", "true"]),
        ({"numbers": [-1, 2]}, ["--numbers", "[-1, 2]"]),
        ({"numbers": [1]}, ["--numbers", "1"]),
        ({"texts": ["a b", "c"]}, ["--texts", "a b,c"]),
        ({"texts": ["[x]"]}, ["--texts", '["[x]"]']),
        ({"texts": ["a,b"]}, ["--texts", '["a,b"]']),
        ({"text": "-x"}, ["--text", '"-x"']),
        ({"texts": [" a"]}, ["--texts", '[" a"]']),
        ({"texts": ["a", "", "'b'"]}, ["--texts", "a,,'b'"]),
        ({"mixed": (1, "b", 2.5)}, ["--mixed", "1,b,2.5"]),
        ({"mixed": (1, "a,b", 2.0)}, ["--mixed", '[1, "a,b", 2.0]']),
    ],
)
def test_each_flag_of_the_command_is_read_as_the_value_that_won(given: dict[str, Any], texts: list[str]) -> None:
    schema = user_function_schema(f"{MODULE}:of_values")
    config = json.loads(json.dumps(schema.make(**given).canonical()))
    words = shlex.split(command_of(config, schema, script_fields=(), options=Options()))
    assert words[6:] == texts


def test_a_search_by_a_metric_that_no_run_reported_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    summary = summarize(results({"batch_per_rank": [16, 32]}, lambda values, repeat: 100.0))
    request: Any = SimpleNamespace(options=Options(mode="search", metric="absent"))
    _show_best(summary, make_plan({"batch_per_rank": [16, 32]}), request, ProgressConsole())
    assert "No run that ended ok reported absent" in capsys.readouterr().out


def test_weights_are_said_to_be_where_they_are_or_to_be_missing(tmp_path: Path) -> None:
    found = Results(tmp_path, results({"batch_per_rank": [16]}, lambda values, repeat: 100.0, repeats=2).records)
    assert describe_saved_weights(found).startswith("no run has any")
    folder = tmp_path / found.records[-1].folder
    folder.mkdir(parents=True)
    (folder / "weights.json").write_text('{"python": ["first", "    second"]}')
    where, named, *lines = describe_saved_weights(found).splitlines()
    assert str(tmp_path / "runs") in where
    assert (named, lines) == (f"In {folder}:", ["first", "    second"])


@pytest.mark.parametrize(
    ("options", "measured", "estimate"),
    [
        ({"repeats": 3}, 2, "About 55 s, start-up included, by the runs measured here."),
        ({}, 2, "About 55 s, up to 115 s with further repeats, start-up included, by the runs measured here."),
        ({"budget": None, "max_repeats": 4}, 2, "About 55 s, up to 95 s with further repeats"),
        ({}, 0, "No run was measured here yet: no estimate."),
        ({"mode": "search"}, 2, ""),
    ],
)
def test_a_plan_has_an_estimate_by_the_runs_that_were_measured(
    options: dict[str, Any], measured: int, estimate: str
) -> None:
    axes, asked = {"batch_per_rank": [16, 32]}, Options(**options)
    records = results(axes, lambda values, repeat: 100.0, repeats=2).records[: 2 * measured]
    state = FolderState(make_plan(axes, repeats=asked.blocks), asked, records, lambda: Results(Path(), []))
    assert describe_estimate(state).startswith(estimate)
    assert bool(describe_estimate(state)) == bool(estimate)


@pytest.mark.slow
def test_the_commands_at_the_end_of_a_search_can_be_pasted(sweep_command: Command) -> None:
    flags = ["--dataset", SMALL, "--device", "cpu", "--oversubscribe", "--samples", "2", "--epochs", "1"]
    searched = sweep_command("search", *flags, "--batch-per-rank", "8", "16", "--scheduler", "none")
    assert searched.returncode == 0, searched.stderr
    commands = [line for line in searched.stdout.splitlines() if line.startswith("  python ")]
    assert len(commands) == 2
    for command in commands:
        script, *words = shlex.split(command)[1:]
        assert script.endswith("sweeps/search.py")
        done = sweep_command("search", *words)
        assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_range_of_a_key_of_a_dict_is_searched_and_its_best_value_can_be_pasted(sweep_command: Command) -> None:
    flags = ["--train", f"{MODULE}:of_a_rate", "--device", "cpu"]
    how = ["--searcher", "random", "--samples", "2", "--metric", "train_loss", "--scheduler", "none"]
    searched = sweep_command("search", *flags, *how, "--log-range", "rate", "0.01", "1")
    assert searched.returncode == 0, searched.stderr
    (command,) = [line for line in searched.stdout.splitlines() if line.startswith("  python ")]
    words = shlex.split(command)[2:]
    assert words[words.index("rate") - 1] == "--set"
    assert sweep_command("search", *words).returncode == 0
