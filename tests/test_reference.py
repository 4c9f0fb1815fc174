from __future__ import annotations

import re
from pathlib import Path

import pytest

from dmls_ray import load
from dmls_ray.analysis.published.data import published
from dmls_ray.analysis.summary.sweep_summary import summarize
from dmls_ray.cli.main import main
from tests.conftest import PROJECT

FOLDERS = sorted(path.parent for path in (PROJECT / "results" / "reference").glob("**/runs.jsonl"))


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
    assert (folder / "table.md").read_text() == f"{reading.table.markdown()}\n{reading.sentence}\n"


def test_turning_images_grey_stands_beside_the_published_times(capsys: pytest.CaptureFixture[str]) -> None:
    folder = PROJECT / "results" / "reference" / "grayscale"
    with pytest.raises(SystemExit):
        main(["table", str(folder), "--published", "--format", "markdown"])
    shown = capsys.readouterr().out
    assert (folder / "published.md").read_text() == shown
    assert "| 205,160 |" in re.sub(r" +", " ", shown)
    readme = (PROJECT / "README.md").read_text()
    assert summarize(load(folder)).sentence in readme
    cells = summarize(load(folder.with_name("grayscale_memory"))).table.frame()
    for name in ("cpp", "opencv"):
        row = cells[(cells["implementation"] == name) & (cells["threads_per_rank"] == "1")]
        assert row["of a copy [95%]"].item() in readme
    assert "| 180.1 |" in re.sub(r" +", " ", shown)


def test_the_published_tables_are_what_the_figures_say(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["published", "--format", "markdown"])
    shown = [line for line in capsys.readouterr().out.splitlines() if line]
    kept = (PROJECT / "results" / "published" / "tables.md").read_text().replace("## ", "").splitlines()
    assert [line for line in kept if line][2:] == shown


def test_the_readme_shows_the_committed_sweep_and_its_picture() -> None:
    readme = (PROJECT / "README.md").read_text()
    reading = summarize(load(PROJECT / "results" / "reference" / "batch_size"))
    assert reading.sentence in readme
    for cells in reading.table.frame().itertuples(index=False):
        assert re.search(r" +".join(re.escape(cell) for cell in cells if cell), readme)
    (picture,) = re.findall(r"!\[.*\]\((results/reference/batch_size/.*)\)", readme)
    assert (PROJECT / picture).stat().st_size > 10_000
    assert all(len(row.counted) >= 3 for row in reading.table.rows)


def test_cifar10_is_learned_as_the_reports_learned_it() -> None:
    runs = load(PROJECT / "results" / "reference" / "cifar10_convnet").runs
    assert len(runs) == 4
    assert (runs[runs["batch_per_rank"] == 32]["test_accuracy"] > 0.40).all()


def test_every_sweep_of_the_training_core_has_a_table() -> None:
    for name in (
        "precision",
        "regularization",
        "backend",
        "accumulation",
        "optimizer",
        "quantization",
        "launcher",
        "backend_mpi",
    ):
        assert "| ok " in (PROJECT / "results" / "reference" / name / "table.md").read_text()


def test_the_curve_in_bf16_is_the_published_one_within_three_points_after_the_first_epoch() -> None:
    (record,) = load(PROJECT / "results" / "reference" / "cifar10_convnet_bf16").records
    (theirs,) = [item for item in published().records if item.run_id == "cifar10-convnet-2gpu-gloo-bs256"]
    assert len(record.epochs) == 6
    for ours, other in list(zip(record.epochs, theirs.epochs, strict=False))[1:]:
        for name in ("train_accuracy", "test_accuracy"):
            assert abs(getattr(ours, name) - getattr(other, name)) < 0.03
