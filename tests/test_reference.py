from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dmls_ray import load
from dmls_ray.analysis.export.text_tables import answer_markdown, table_markdown
from dmls_ray.analysis.findings.question import answer_on_axis
from dmls_ray.analysis.summary import summarize
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.words_on_pairs import place_text
from tests.conftest import PROJECT
from tests.reference_values import FOLDERS, NAME, values_of

PUBLISHED = PROJECT / "results" / "published"


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_reference_run_is_whole_and_says_what_it_ran_on(folder: object) -> None:
    records = load(folder).records  # type: ignore[arg-type]
    assert records
    for record in records:
        known = ("needs GPUs", "needs a GPU", "launcher=inline", "takes interleaved images")
        assert record.outcome == "ok" or any(reason in record.reason for reason in known)
        assert record.machine["cpu"]
        assert record.versions["torch"]
        assert record.git["commit"]


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_reference_table_is_what_its_runs_say(folder: Path) -> None:
    reading = summarize(load(folder))
    assert (folder / "table.md").read_text() == f"{table_markdown(reading.table)}\n{answer_markdown(reading.answer)}\n"


def test_the_documents_have_the_times_of_turning_images_grey() -> None:
    folder = PROJECT / "results" / "reference" / "grayscale"
    sweeps = (PROJECT / "docs" / "sweeps.md").read_text()
    assert all(line in sweeps for line in summarize(load(folder)).answer.lines(100))
    numbers = (PROJECT / "docs" / "numbers.md").read_text()
    cells = summarize(load(folder.with_name("grayscale_memory"))).table.frame()
    for name in ("cpp", "opencv"):
        row = cells[(cells["implementation"] == name) & (cells["threads_per_rank"] == "1")]
        assert row["of a copy [95%]"].item() in numbers


@pytest.mark.parametrize("name", ["A", "B", "B_images", "C"])
def test_every_published_table_is_what_its_runs_say(name: str) -> None:
    reading = summarize(load(PUBLISHED / name))
    table = (PUBLISHED / name / "table.md").read_text()
    assert table == f"{table_markdown(reading.table)}\n{answer_markdown(reading.answer)}\n"


def test_the_published_figures_are_all_here() -> None:
    runs = [load(PUBLISHED / name) for name in ("A", "B", "C")]
    assert sum(map(len, runs)) == 26
    assert sum(len(item.rank_epochs) for item in runs) == 344


def published_ratios(name: str, axis: str) -> dict[str, float]:
    """The speed of the most ranks or machines against that of one, by what the trials share."""
    comparisons = answer_on_axis(make_table(load(PUBLISHED / name)), axis).comparisons
    speeds = [comparison[0] for comparison in comparisons if comparison[0].pair.field == axis]
    return {place_text(effect.pair): round(effect.contrast.centre, 2) for effect in speeds}


def test_the_published_figures_give_the_ratios_of_the_reports() -> None:
    assert published_ratios("A", "world_size") == {
        "batch_per_rank 32, backend gloo": 0.25,
        "batch_per_rank 256, backend gloo": 0.71,
    }
    of_b = published_ratios("B", "world_size").values()
    assert (min(of_b), max(of_b)) == (2.05, 2.81)
    assert published_ratios("C", "machines")["1 rank/machine, backend gloo"] == 1.88


def test_the_readme_shows_the_committed_sweep_and_its_picture() -> None:
    readme = (PROJECT / "README.md").read_text()
    results = load(PROJECT / "results" / "reference" / "batch_size")
    reading = summarize(results)
    assert all(line in readme for line in reading.answer.lines(100))
    of_script = summarize(load(PROJECT / "results" / "reference" / "script"))
    assert all(line in readme for line in of_script.answer.lines(100)[:-2])
    for line in re.findall(r"^\[ *\d+/24\] (.*)$", readme, re.M):
        factors = dict(re.findall(r"(\w+)=(\d+)", line))
        (run,) = [
            record
            for record in results.records
            if record.repeat == int(factors["repeat"])
            and all(record.config[name] == int(factors[name]) for name in ("world_size", "batch_per_rank"))
        ]
        assert (
            f"{run.metrics['images_per_s']:,.0f} images/s, test accuracy {run.metrics['test_accuracy']:.3f}, "
            f"{run.metrics['total_s']:.2f} s" in line
        )
    (picture,) = re.findall(r"!\[.*\]\((results/reference/batch_size/.*)\)", readme)
    assert (PROJECT / picture).stat().st_size > 10_000
    assert all(len(row.counted) >= 3 for row in reading.table.rows)


def test_cifar10_is_learned_as_the_reports_learned_it() -> None:
    runs = load(PROJECT / "results" / "reference" / "cifar10_convnet").runs
    assert len(runs) == 12
    assert (runs[runs["batch_per_rank"] == 32]["test_accuracy"] > 0.40).all()


def test_every_sweep_of_the_training_core_has_a_table() -> None:
    names = "precision regularization backend accumulation optimizer quantization launcher backend_mpi"
    for name in names.split():
        assert "| ok " in (PROJECT / "results" / "reference" / name / "table.md").read_text()


def test_the_curve_in_bf16_is_the_published_one_within_three_points_after_the_first_epoch() -> None:
    (record,) = load(PROJECT / "results" / "reference" / "cifar10_convnet_bf16").records
    (theirs,) = [item for item in load(PUBLISHED / "A").records if item.run_id == "cifar10-convnet-2gpu-gloo-bs256"]
    assert len(record.epochs) == 6
    for ours, other in list(zip(record.epochs, theirs.epochs, strict=False))[1:]:
        for name in ("train_accuracy", "test_accuracy"):
            assert abs(ours.metrics[name] - other.metrics[name]) < 0.03


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_runs_of_a_reference_sweep_say_what_they_said(folder: Path) -> None:
    now = json.loads(json.dumps(values_of(folder), default=str))
    assert differences(now, json.loads((folder / NAME).read_text())) == []


def differences(now: Any, before: Any, place: str = "") -> list[str]:
    """Where two values differ, by more than rounding."""
    if isinstance(now, dict) and isinstance(before, dict) and now.keys() == before.keys():
        return [text for name in now for text in differences(now[name], before[name], f"{place}/{name}")]
    if isinstance(now, list) and isinstance(before, list) and len(now) == len(before):
        pairs = enumerate(zip(now, before, strict=True))
        return [text for index, pair in pairs for text in differences(*pair, f"{place}/{index}")]
    if isinstance(now, float) and isinstance(before, float):
        is_equal = now == pytest.approx(before, rel=1e-6, abs=1e-9)
    else:
        is_equal = now == before
    return [] if is_equal else [f"{place}: {before} is now {now}"]
