from __future__ import annotations

import json
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from dmls_ray.analysis.results import Results
from dmls_ray.analysis.summary import summarize
from dmls_ray.cli.console import Parser
from dmls_ray.cli.request import Request, parse_request
from dmls_ray.cli.sweep_output import (
    _show_best,
    describe_estimate,
    describe_further_commands,
    describe_saved_weights,
    describe_winner,
    winner_options,
)
from dmls_ray.config.options import Options
from dmls_ray.config.sweep_file import read_sweep_file, sweep_file_text
from dmls_ray.execution.next_runs import NextRuns
from dmls_ray.execution.planning import make_plan
from dmls_ray.execution.view import ProgressConsole
from dmls_ray.records.outcome import Outcome
from dmls_ray.workloads.base import Workload
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.workload import ClassificationWorkload
from dmls_ray.workloads.user_function.schema import UserFunctionWorkload
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


def asked_again(workload: Workload, config: dict[str, Any], folder: Path) -> Request:
    """What a command line asks that names the file of a recorded configuration."""
    described = describe_winner(workload, json.loads(json.dumps(config)))
    assert described is not None
    asked = Options(search=True, searcher="random", trials=4, oversubscribe=True, run_timeout=60)
    (folder / "best.toml").write_text(sweep_file_text(described, winner_options(asked), repeats=5))
    preset, what = read_sweep_file(str(folder / "best.toml"))
    return parse_request(Parser(), preset, [], what)


def test_the_best_configuration_is_trained_again_as_it_was(tmp_path: Path) -> None:
    request = asked_again(ClassificationWorkload(), BEST, tmp_path)
    assert request.axes == {"model": ("simplecnn",), "dropout": (0.25,), "batch_per_rank": (8,)}
    assert (request.options.search, request.options.repeats, request.options.run_timeout) == (False, 5, 60.0)
    assert request.options.oversubscribe


def test_a_field_of_a_dict_is_given_as_what_it_was(tmp_path: Path) -> None:
    workload = UserFunctionWorkload(f"{FUNCTIONS}:of_a_dict", ["x", "name"])
    config = workload.schema().make(x=0.5, name="12").canonical()
    assert asked_again(workload, config, tmp_path).axes == {"x": (0.5,), "name": ("12",)}


@pytest.mark.parametrize(
    "given",
    [
        {"one_or_several": [1]},
        {"one_or_several": 1},
        {"truth_or_number": True},
        {"numbers": [-1, 2]},
        {"numbers": [1]},
        {"texts": ["a b", "c"]},
        {"texts": ["[x]"]},
        {"texts": ["a,b"]},
        {"text": "-x"},
        {"text": '"quoted" \\ [x]'},
        {"texts": [" a"]},
        {"texts": ["a", "", "'b'"]},
        {"mixed": (1, "b", 2.5)},
        {"mixed": (1, "a,b", 2.0)},
    ],
)
def test_each_value_of_the_file_is_read_as_the_value_that_won(given: dict[str, Any], tmp_path: Path) -> None:
    workload = UserFunctionWorkload(f"{MODULE}:of_values")
    schema = workload.schema()
    ((name, won),) = given.items()
    (value,) = asked_again(workload, schema.make(**given).canonical(), tmp_path).axes.get(name, [0])
    assert repr(value) == repr(schema.check(name, won))


def test_a_search_by_a_metric_that_no_run_reported_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    summary = summarize(results({"batch_per_rank": [16, 32]}, lambda values, repeat: 100.0))
    request: Any = SimpleNamespace(options=Options(search=True, metric="absent"))
    _show_best(summary, make_plan({"batch_per_rank": [16, 32]}), request, ProgressConsole())
    assert "No run that ended ok reported absent" in capsys.readouterr().out


def test_at_the_end_the_command_that_ranks_what_was_measured_and_the_one_that_shows_a_failure_are_named() -> None:
    def commands(*outcomes: Outcome, is_search: bool = False) -> list[list[str]]:
        runs = results({"batch_per_rank": [16, 32]}, lambda values, repeat: 100.0, repeats=1)
        for record, outcome in zip(runs.records, outcomes, strict=True):
            record.outcome = outcome
        found = summarize(Results("a b", runs.records))
        return [
            shlex.split(line.partition(": ")[2])[1:] for line in describe_further_commands(found, is_search=is_search)
        ]

    first = results({"batch_per_rank": [16, 32]}, lambda values, repeat: 100.0, repeats=1).records[0].run_id
    ranked, shown = ["advise", "a b"], ["show", first, "a b"]
    assert commands(Outcome.OK, Outcome.OK) == [ranked]
    assert commands(Outcome.ERROR, Outcome.OK) == [ranked, shown]
    assert commands(Outcome.OOM, Outcome.SKIPPED) == []
    assert commands(Outcome.KILLED, Outcome.SKIPPED) == [shown]
    assert commands(Outcome.OK, Outcome.OK, is_search=True) == []


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
        ({"repeats": 3}, 2, "About 55 s, start-up included, judging by earlier runs here."),
        ({}, 2, "About 55 s, up to 115 s with further repeats, start-up included, judging by earlier runs here."),
        ({"budget": None, "max_repeats": 4}, 2, "About 55 s, up to 95 s with further repeats"),
        ({}, 0, "No estimate: no run has been measured here yet."),
        ({"search": True}, 2, ""),
    ],
)
def test_a_plan_has_an_estimate_by_the_runs_that_were_measured(
    options: dict[str, Any], measured: int, estimate: str
) -> None:
    axes, asked = {"batch_per_rank": [16, 32]}, Options(**options)
    records = results(axes, lambda values, repeat: 100.0, repeats=2).records[: 2 * measured]
    state = NextRuns(make_plan(axes, repeats=asked.blocks), asked, records, lambda: Results(Path(), []))
    assert describe_estimate(state).startswith(estimate)
    assert bool(describe_estimate(state)) == bool(estimate)


def test_an_estimate_says_that_it_is_one_of_other_settings() -> None:
    asked, known = Options(repeats=2), {"batch_per_rank": [16]}
    records = results(known, lambda values, repeat: 100.0, repeats=1).records
    estimates = []
    for axes in (known, {"batch_per_rank": [16, 32]}):
        state = NextRuns(make_plan(axes, repeats=2), asked, records, lambda: Results(Path(), []))
        estimates.append(describe_estimate(state))
    assert estimates[0].endswith("by earlier runs here.")
    assert estimates[1].endswith("here. Settings without a measurement are assumed to be as fast as the others.")


@pytest.mark.slow
def test_the_commands_at_the_end_of_a_search_can_be_pasted(
    sweep_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flags = ["--dataset", SMALL, "--device", "cpu", "--oversubscribe", "--trials", "2", "--epochs", "1"]
    searched = sweep_command("search", *flags, "--batch-per-rank", "8", "16", "--scheduler", "none")
    assert searched.returncode == 0, searched.stderr
    commands = [line for line in searched.stdout.splitlines() if line.startswith("  dmls-ray sweep ")]
    assert len(commands) == 2
    for command in commands:
        done = subprocess.run([sys.executable, "-m", "dmls_ray", *shlex.split(command)[1:]], check=False)
        assert done.returncode == 0


@pytest.mark.slow
def test_a_range_of_a_key_of_a_dict_is_searched_and_its_best_value_can_be_pasted(
    sweep_command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flags = ["--train", f"{MODULE}:of_a_rate", "--device", "cpu"]
    how = ["--searcher", "random", "--trials", "2", "--metric", "train_loss", "--scheduler", "none"]
    searched = sweep_command("search", *flags, *how, "--log-range", "rate", "0.01", "1")
    assert searched.returncode == 0, searched.stderr
    (command,) = [line for line in searched.stdout.splitlines() if line.startswith("  dmls-ray sweep ")]
    words = shlex.split(command)[1:]
    assert "[set]\nrate = 0." in Path(words[1]).read_text()
    assert subprocess.run([sys.executable, "-m", "dmls_ray", *words], check=False).returncode == 0
