from __future__ import annotations

import pandas as pd

from tests.conftest import PROJECT

PUBLISHED = PROJECT / "results" / "published"


def test_the_published_figures_are_all_here() -> None:
    runs = pd.read_csv(PUBLISHED / "published_runs.csv")
    epochs = pd.read_csv(PUBLISHED / "published_epochs.csv")
    assert (len(runs), len(epochs)) == (26, 344)
    assert set(epochs["experiment"]) <= set(runs["experiment"])


def test_they_give_the_reports_own_sentence_on_two_gpus_against_one() -> None:
    total = pd.read_csv(PUBLISHED / "published_runs.csv").set_index("experiment")["total_s"]
    for batch, ratio in ((32, 3.95), (256, 1.40)):
        measured = total[f"cifar10-convnet-2gpu-gloo-bs{batch}"] / total[f"cifar10-convnet-1gpu-bs{batch}"]
        assert round(measured, 2) == ratio
