from __future__ import annotations

import pytest

from dmls_ray import load
from tests.conftest import PROJECT

FOLDERS = sorted(path.parent for path in (PROJECT / "results" / "reference").glob("*/runs.jsonl"))


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_every_reference_run_is_whole_and_says_what_it_ran_on(folder: object) -> None:
    records = load(folder).records  # type: ignore[arg-type]
    assert records
    for record in records:
        assert record.outcome == "ok" or "needs GPUs" in record.reason
        assert record.machine["cpu"]
        assert record.versions["torch"]
        assert record.git["commit"]


def test_cifar10_is_learned_as_the_reports_learned_it() -> None:
    runs = load(PROJECT / "results" / "reference" / "cifar10_convnet").runs
    assert len(runs) == 4
    assert (runs[runs["batch_per_rank"] == 32]["test_accuracy"] > 0.40).all()


def test_every_sweep_of_the_training_core_has_a_table() -> None:
    for name in ("precision", "regularization", "backend", "accumulation", "optimizer", "quantization"):
        assert "| ok " in (PROJECT / "results" / "reference" / name / "table.md").read_text()
