"""Saved weights, opened by the lines of weights.json."""

from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dmls_ray.records.run_events import RankResult
from dmls_ray.training.rank import ArtifactOptions
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.workload import ClassificationWorkload
from tests.conftest import PROJECT, call
from tests.new_processes import run_inline

MODULE = """
import numpy
from torch import nn

class Nets:
    @staticmethod
    def wide(classes):
        return nn.Sequential(nn.Flatten(), nn.LazyLinear(32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, classes))

class Floats(list):
    classes = ("zero", "one")

def floats(split):
    return Floats((numpy.full((4, 4), 3 * label, dtype="float32"), label) for label in (0, 1, 0, 1))
"""

DIGITS = """
import json, sys, numpy, torch
from sklearn.datasets import load_digits
exec("\\n".join(json.load(open("weights.json"))["python"]))
digits = load_digits()
pixels = numpy.rint(digits.images * 255 / 16).astype("uint8")[4::5, None]
right = predict(torch.from_numpy(pixels)) == torch.from_numpy(digits.target[4::5])
print(right.double().mean().item(), *{name.partition(".")[0] for name in sys.modules} & {"ray", "dmls_ray"})
"""
"""Opens saved weights, and prints their accuracy on the digits and which of ray and dmls_ray it has loaded."""


def trained(folder: Path, **changes: Any) -> RankResult:
    config = TrialConfig(**{"batch_per_rank": 32, "epochs": 2, "device": "cpu", **changes})
    result = run_inline(config, artifacts=ArtifactOptions(folder=str(folder), weights=True))
    assert result.outcome == "ok", result.traceback
    return result


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "saved_nets.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "saved_nets", raising=False)
    return "saved_nets"


@pytest.mark.parametrize(
    ("changes", "loaded"),
    [
        ({"model": "saved_nets:Nets.wide", "early_stopping": "test_accuracy", "epochs": 4, "lr": 0.1}, []),
        ({"batch_norm": "on", "dropout": 0.2}, ["dmls_ray"]),
        pytest.param({"quantization": "qat", "epochs": 1}, ["dmls_ray"], marks=pytest.mark.slow),
    ],
)
def test_another_process_reaches_the_recorded_accuracy_with_the_saved_weights(
    changes: dict[str, Any], loaded: list[str], tmp_path: Path, module: str
) -> None:
    if "quantization" in changes:
        pytest.importorskip("torchao")
    run = trained(tmp_path, **changes).run
    opened = call([sys.executable, "-c", DIGITS], tmp_path, env={"PYTHONPATH": f"{tmp_path}:{PROJECT}"})
    accuracy, *modules = opened.stdout.split()
    best = run.epochs[int(run.metrics.get("best_epoch", 0)) - 1].metrics["test_accuracy"]
    expected = run.metrics.get("fp32_test_accuracy", best)
    assert modules == loaded, opened.stderr
    assert float(accuracy) == pytest.approx(expected, abs=1e-9)
    about = json.loads((tmp_path / "weights.json").read_text())
    assert about["metrics"]["test_accuracy"] == pytest.approx(expected, abs=1e-9)


def test_float_images_are_not_scaled_and_the_classes_have_their_names(tmp_path: Path, module: str) -> None:
    trained(tmp_path, model=f"{module}:Nets.wide", dataset=f"{module}:floats", batch_per_rank=4, epochs=40, lr=0.1)
    opened = predictions(tmp_path, torch.tensor([3.0, 0.0]).repeat_interleave(16).reshape(2, 1, 4, 4))
    about = json.loads((tmp_path / "weights.json").read_text())
    assert [about["classes"][index] for index in opened] == ["one", "zero"]


def predictions(folder: Path, pixels: torch.Tensor, **names: Any) -> list[int]:
    lines = json.loads((folder / "weights.json").read_text())["python"]
    with contextlib.chdir(folder):
        exec("\n".join(lines), names)
    found: list[int] = names["predict"](pixels).tolist()
    return found


def test_a_torchvision_model_is_built_by_torchvision_and_one_of_a_notebook_is_given_again(tmp_path: Path) -> None:
    def local(classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))

    trained(tmp_path / "own", **ClassificationWorkload().name_objects({"model": local}), epochs=1)
    assert len(predictions(tmp_path / "own", torch.zeros(3, 1, 8, 8), net=local)) == 3
    trained(tmp_path, model="torchvision:squeezenet1_1", dataset="synthetic:shape=3x32x32,train=32,test=8", epochs=1)
    assert len(predictions(tmp_path, torch.zeros(2, 3, 32, 32))) == 2
