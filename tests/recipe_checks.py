"""What the recipes of CONTRIBUTING.md add works: run by test_recipes.py in a copy of the project that has all of it."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
from pathlib import Path
from typing import Any

import pytest

import dmls_ray
from dmls_ray import load
from dmls_ray.analysis.advise.rank import advise
from dmls_ray.analysis.figures import FIGURES, charts
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.tensorboard.writer import TensorBoardWriter
from dmls_ray.cli.sweep_script import main
from dmls_ray.config.options import FLAGS, Options
from dmls_ray.config.sweep_file import Preset
from dmls_ray.execution.planning import make_plan
from dmls_ray.execution.recorder import describe_session
from dmls_ray.launchers.command import run_command
from dmls_ray.records.aggregate import take_results
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.util.fork_server import ForkServer
from dmls_ray.util.importing import import_function
from dmls_ray.workloads.registry import workload
from dmls_ray.workloads.script.workload import ScriptWorkload
from dmls_ray.workloads.user_function.rank_run import run_user_function
from dmls_ray.workloads.user_function.schema import user_function_schema
from docs.generate import metrics as page_of_metrics
from tests.conftest import PROJECT, SMALL
from tests.new_processes import run_inline
from tests.workloads.script.conftest import BEGIN, LOOP, Runner

REFERENCE = PROJECT / "results" / "reference" / "batch_size"


@pytest.fixture
def plan(capsys: pytest.CaptureFixture[str]) -> Any:
    """Function that returns the plan that the command line prints."""

    def dry_run(*flags: str) -> str:
        with pytest.raises(SystemExit):
            main(Preset(name="grid", question="What?", axis=None, axes={}), [*flags, "--dry-run", "--repeats", "1"])
        return capsys.readouterr().out

    return dry_run


def run(name: str = "classification", **values: Any) -> RunRecord:
    """The record of one run of a workload in this process."""
    chosen = workload(name)
    schema = chosen.schema()
    if name == "classification":
        values = {"dataset": SMALL, "batch_per_rank": 8, "epochs": 1, "warmup_steps": 0, **values}
    config = schema.make(device="cpu", **values)
    recorded = {**schema.fixed, **config.canonical()}
    trial_id = schema.hash_of(recorded)
    record = RunRecord(
        run_id=f"{trial_id}-0", trial_id=trial_id, repeat=0, order=0, order_seed=0, seed=0, outcome=Outcome.OK,
        config=recorded, started_at="2026-01-02T03:04:05",
    )  # fmt: skip
    result = run_inline(config, train=import_function(chosen.entrypoint, flag="workload"))
    assert result.outcome == "ok", result.traceback
    take_results(record, [result], chosen.metrics)
    return record


def train(config: dict[str, Any], rank: Any, emit: Any) -> dict[str, float]:
    """A training function."""
    return {"loss": 1.0}


def table(*records: RunRecord) -> Table:
    return make_table(Results(Path("nowhere"), list(records)))


def test_the_copy_is_tested() -> None:
    assert Path(dmls_ray.__file__).is_relative_to(Path.cwd())


def test_a_new_axis_is_a_flag_and_changes_the_hash_and_the_loss(plan: Any) -> None:
    assert plan("--batch-per-rank", "8", "--logit-scale", "1", "4").count("logit_scale=") == 2
    default, scaled = (run(logit_scale=scale) for scale in (1.0, 4.0))
    assert run().trial_id == default.trial_id != scaled.trial_id
    assert default.metrics["train_loss"] != scaled.metrics["train_loss"]


def test_a_new_number_has_a_column_a_panel_a_tag_an_objective_and_a_line_of_the_page_of_metrics(tmp_path: Path) -> None:
    few, many = run(first_weights=4), run(first_weights=8)
    both = table(few, many)
    both.axis = "first_weights"
    assert 0 < few.metrics["weight_norm"] < many.metrics["weight_norm"]
    assert any(column.startswith("weight norm") for column in both.frame())
    (answer,) = (chart for chart in charts(both) if chart.name == "answer")
    assert "weight norm" in [panel.y.label for panel in answer.panels]
    TensorBoardWriter(tmp_path).write_all([few])
    assert any(b"Run/weight_norm" in path.read_bytes() for path in tmp_path.rglob("*tfevents*"))
    results = Results(Path("nowhere"), [few, many])
    assert advise(results, "accuracy", metric="weight_norm", minimizes=True).objective.metric == "weight_norm"
    assert "| weight norm | `weight_norm` | Norm of the first weights. |" in page_of_metrics()


def test_a_new_number_of_each_rank_is_in_the_records_has_a_column_and_is_compared() -> None:
    few, many = run(), run(batch_norm="on")
    assert few.metrics["process_threads"] == few.ranks[0].metrics["process_threads"] > 0
    # What is equal in all runs compares nothing.
    many.metrics["process_threads"] = few.metrics["process_threads"] + 1
    both = table(few, many)
    assert "process threads" in both.frame()
    assert "process_threads" in [measure.name for measure in both.questions.measures(both.rows)]


def test_a_new_number_of_each_rank_is_measured_in_a_function_and_in_a_script(tmp_path: Path) -> None:
    config = user_function_schema(train, ["x"]).make(x=1, device="cpu")
    assert run_inline(config, train=run_user_function).values["process_threads"] > 0
    with contextlib.closing(ForkServer("dmls_ray.training.rank:preload", ScriptWorkload.entrypoint)) as server:
        script = Runner([server], tmp_path).one(BEGIN + LOOP)
    assert script.values["process_threads"] > 0


def test_a_new_model_is_trained() -> None:
    record = run(model="one_layer")
    assert record.metrics["train_loss"] > 0
    assert record.metrics["parameters"] == 64 * 4 + 4


def test_a_new_data_set_is_trained_on() -> None:
    record = run(dataset="stripes")
    assert record.metrics["train_loss"] > 0
    assert (record.metrics["train_samples"], record.metrics["test_samples"]) == (64, 64)


def test_a_new_option_is_a_flag_and_a_keyword_of_sweep(plan: Any) -> None:
    assert plan("--batch-per-rank", "8", "--remark", "first try")
    assert FLAGS["remark"].parse("first try") == "first try"
    assert inspect.signature(dmls_ray.sweep).parameters["remark"].default == ""


def test_a_new_option_has_its_effect() -> None:
    options = dataclasses.replace(Options(), remark="first try")
    assert describe_session(make_plan({"batch_per_rank": [8]}), options)["remark"] == "first try"


def test_a_new_launcher_is_a_choice_and_runs_two_ranks(plan: Any) -> None:
    assert "launcher=shell" in plan("--batch-per-rank", "8", "--launcher", "inline", "shell")
    # Of all workloads, the one that loads the fewest libraries in its ranks.
    chosen = workload("brightness")
    config = chosen.schema().make(launcher="shell", world_size=2, device="cpu")
    results = run_command(
        config, train=chosen.entrypoint, artifacts=None, path=[], cwd=os.getcwd(), emit=lambda event: None,
        end_reason=lambda: "",
    )  # fmt: skip
    assert [(result.rank, result.outcome.value, result.reason) for result in results] == [(0, "ok", ""), (1, "ok", "")]


def test_a_new_workload_has_flags_runs_and_a_table(plan: Any) -> None:
    assert "factor=2" in plan("--workload", "brightness", "--factor", "1", "2")
    records = [run("brightness", factor=factor) for factor in (1.0, 2.0)]
    assert [record.metrics["mean_level"] for record in records] == [100.0, 200.0]
    assert any(column.startswith("mean level") for column in table(*records).frame())


def test_a_new_figure_is_registered_and_shows_recorded_runs() -> None:
    assert "run_counts" in FIGURES
    results = load(REFERENCE)
    drawn = {chart.name: chart for chart in charts(make_table(results))}
    repeats = len({record.repeat for record in results.records})
    assert {point.y for point in drawn["run_counts"].panels[0].series[0].points} == {repeats}
