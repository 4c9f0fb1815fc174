"""Saved weights, opened by the lines of docs/your-code.md."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from dmls_ray.records.run_events import RankResult
from dmls_ray.training.rank import ArtifactOptions
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.workload import ClassificationWorkload
from tests.conftest import PROJECT
from tests.new_processes import run_inline

MODULE = "tests.workloads.classification.test_weights"


class Nets:
    @staticmethod
    def wide(classes: int) -> nn.Module:
        return nn.Sequential(
            nn.Flatten(), nn.LazyLinear(32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, classes)
        )  # fmt: skip


class Named(list[Any]):
    classes = ("zero", "one")


def named(split: str) -> Named:
    return Named((np.full((4, 4), 90 * label, dtype=np.uint8), label) for label in (0, 1, 0, 1))


def trained(folder: Path, **changes: Any) -> RankResult:
    config = TrialConfig(**{"batch_per_rank": 32, "epochs": 2, "device": "cpu", **changes})
    result = run_inline(config, artifacts=ArtifactOptions(folder=str(folder), weights=True))
    assert result.outcome == "ok", result.traceback
    return result


def opened(folder: Path) -> tuple[Any, dict[str, Any]]:
    """The model and the description, as the documentation opens them."""
    text = (PROJECT / "docs" / "your-code.md").read_text()
    lines = text.split("## Saved weights", 1)[1].split("```")[1].removeprefix("text\n")
    names: dict[str, Any] = {}
    with contextlib.chdir(folder):
        exec(lines, names)
    return names["model"], names["about"]


def accuracy_on_digits(model: Any) -> float:
    digits = load_digits()
    pixels = torch.from_numpy(np.rint(digits.images * 255 / 16))[4::5, None]
    with torch.no_grad():
        predicted: Tensor = model((pixels.float() / 255 - 0.5) / 0.5).argmax(1)
    return float((predicted == torch.from_numpy(digits.target[4::5])).double().mean())


@pytest.mark.parametrize(
    "changes",
    [
        {"model": f"{MODULE}:Nets.wide", "early_stopping": "test_accuracy", "patience": 1, "epochs": 4, "lr": 0.1},
        {"batch_norm": "on", "dropout": 0.2},
        pytest.param({"quantization": "qat", "epochs": 1}, marks=pytest.mark.slow),
    ],
)
def test_saved_weights_reach_the_recorded_accuracy(changes: dict[str, Any], tmp_path: Path) -> None:
    if "quantization" in changes:
        pytest.importorskip("torchao")
    run = trained(tmp_path, **changes).run
    model, about = opened(tmp_path)
    best = run["epochs"][(run.get("best_epoch") or 0) - 1]["test_accuracy"]
    expected = run.get("fp32_test_accuracy", best)
    assert about["metrics"]["test_accuracy"] == pytest.approx(expected, abs=1e-9)
    assert accuracy_on_digits(model) == pytest.approx(expected, abs=1e-9)


def test_the_classes_have_their_names_in_the_order_of_the_labels(tmp_path: Path) -> None:
    trained(tmp_path, dataset=f"{MODULE}:named", batch_per_rank=2, epochs=1)
    about = json.loads((tmp_path / "weights.json").read_text())
    assert (about["classes"], about["shape"]) == (["zero", "one"], [1, 4, 4])


def test_weights_of_a_model_of_a_notebook_fit_that_model(tmp_path: Path) -> None:
    def local(classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))

    trained(tmp_path, **ClassificationWorkload().name_objects({"model": local}), epochs=1)
    local(10).load_state_dict(torch.load(tmp_path / "weights.pt", weights_only=True))
    assert json.loads((tmp_path / "weights.json").read_text())["config"]["model"].endswith("local")
