"""The sweep of implementations, as a user runs it, and what is refused before it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from dmls_ray import load
from dmls_ray.analysis.figures import charts
from dmls_ray.analysis.summary import summarize
from dmls_ray.execution.planning import make_plan
from dmls_ray.util.errors import ConflictError
from dmls_ray.workloads.grayscale.workload import IMPLEMENTATIONS, ON_A_GPU, GrayscaleConfig, GrayscaleWorkload
from tests.conftest import Command

SMALL = ("--images", "8", "--image-size", "32", "--timed-s", "0", "--repeats", "1", "--device", "auto")


@pytest.mark.slow
def test_a_sweep_of_implementations_fills_its_table_and_says_what_is_missing(
    sweep_command: Command, tmp_path: Path
) -> None:
    names = ("python_loops", "numpy", "torchvision", "cpp", "cuda")
    done = sweep_command("grayscale", "--implementation", *names, *SMALL)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^implementation \S+ vs ", done.stdout, re.MULTILINE)
    results = load(tmp_path / "results" / "grayscale")
    outcomes = {record.config["implementation"]: record for record in results.records}
    assert set(outcomes) == set(names)
    for name in names[:-1]:
        record = outcomes[name]
        assert record.outcome == "ok", record.traceback
        assert record.device == "cpu"
        assert record.metrics["levels_apart"] in (0, 1)
        assert record.picture
    if outcomes["cuda"].outcome == "skipped":
        assert "needs a GPU" in outcomes["cuda"].reason or "needs nvcc" in outcomes["cuda"].reason
        assert "skipped: " in done.stdout
    reading = summarize(results)
    (figure,) = [chart for chart in charts(reading.table) if chart.name == "implementations"]
    assert [panel.picture != "" for panel in figure.panels] == [False, True]
    assert "Conversion of images to gray" in (tmp_path / "results" / "grayscale" / "report.html").read_text()

    again = sweep_command("grayscale", "--implementation", *names[:-1], *SMALL)
    assert again.returncode == 0, again.stderr
    assert "[1/" not in again.stdout, "nothing was missing"


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["ray", "spawn"])
def test_a_relative_folder_of_pictures_is_found_from_where_the_command_was_given(
    sweep_command: Command, tmp_path: Path, launcher: str
) -> None:
    (tmp_path / "mine").mkdir()
    Image.new("RGB", (40, 40), (200, 10, 30)).save(tmp_path / "mine" / "a.png")
    done = sweep_command("grayscale", "--implementation", "numpy", *SMALL, "--pictures", "mine", "--launcher", launcher)
    assert done.returncode == 0, done.stderr
    (record,) = load(tmp_path / "results" / "grayscale").records
    assert record.outcome == "ok", record.reason


def test_each_implementation_goes_where_it_runs() -> None:
    plan = make_plan({"implementation": IMPLEMENTATIONS}, repeats=1, schema=GrayscaleWorkload().schema())
    devices = {run.values["implementation"]: run.values["device"] for run in plan.runs}
    assert devices == {name: "cuda" if name in ON_A_GPU else "cpu" for name in IMPLEMENTATIONS}
    assert {run.config.device for run in plan.runs if run.config} == {"cpu", "cuda"}
    # Told or not, it is the same trial.
    (explicit,) = make_plan(
        {"implementation": "numpy", "device": "cpu"}, repeats=1, schema=GrayscaleWorkload().schema()
    ).runs
    assert explicit.trial_id in {run.trial_id for run in plan.runs}


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"implementation": "numpy", "device": "cuda"}, "implementation=numpy runs on cpu, but device=cuda"),
        ({"implementation": "triton", "device": "cpu"}, "implementation=triton runs on cuda, but device=cpu"),
        ({"implementation": "pillow", "layout": "planar"}, "implementation=pillow takes interleaved images"),
        ({"world_size": 2}, "world_size=2: one rank converts all images"),
        ({"pictures": "nowhere"}, "pictures=nowhere is not a folder with images"),
    ],
)
def test_what_does_not_go_together_is_refused_in_a_line(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        GrayscaleConfig(**values)
    with pytest.raises(ConflictError, match=reason):
        make_plan(values, schema=GrayscaleWorkload().schema())
