from __future__ import annotations

import pandas as pd
import pytest

from dmls_ray import load
from tests.conftest import PROJECT

FOLDERS = sorted(path.parent for path in (PROJECT / "results" / "reference").glob("*/runs.jsonl"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_reference_run_is_whole_and_says_what_it_ran_on(folder: object) -> None:
    records = load(folder).records  # type: ignore[arg-type]
    assert records
    for record in records:
        assert record.outcome == "ok" or "needs GPUs" in record.reason or "launcher=inline" in record.reason
        assert record.machine["cpu"]
        assert record.versions["torch"]
        assert record.git["commit"]


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
    published = pd.read_csv(PROJECT / "results" / "published" / "published_epochs.csv")
    curve = published[(published.experiment == "cifar10-convnet-2gpu-gloo-bs256") & (published["rank"] == 0)]
    assert len(record.epochs) == 6
    for epoch, theirs in list(zip(record.epochs, curve.itertuples(), strict=False))[1:]:
        assert epoch.train_accuracy is not None
        assert epoch.test_accuracy is not None
        assert abs(100 * epoch.train_accuracy - float(theirs.train_accuracy)) < 3
        assert abs(100 * epoch.test_accuracy - float(theirs.test_accuracy)) < 3
