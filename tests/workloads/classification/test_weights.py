from __future__ import annotations

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from dmls_ray.launchers.inline import run_inline
from dmls_ray.records.run_events import RankResult
from dmls_ray.training.rank import ArtifactOptions
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.workload import ClassificationWorkload
from tests.conftest import PROJECT, call

DIGITS = """
import json, sys, numpy, torch
from sklearn.datasets import load_digits
weights = json.load(open("weights.json"))
exec("\\n".join(weights["python"]))
digits = load_digits()
pixels = numpy.rint(digits.images * 255 / 16).astype("uint8")[4::5, None]
right = predict(torch.from_numpy(pixels)) == torch.from_numpy(digits.target[4::5])
print(right.double().mean().item(), *{name.partition(".")[0] for name in sys.modules} & {"ray", "dmls_ray"})
"""
"""Opens saved weights without dmls_ray, and tests them on the digits."""


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
    chance = numpy.random.default_rng(len(split))
    labels = [index % 2 for index in range(60)]
    return Floats((chance.normal(3.0 * label, 4.0, (4, 4)).astype("float32"), label) for label in labels)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "saved_nets.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "saved_nets", raising=False)
    return "saved_nets"


def trained(folder: Path, **changes: Any) -> RankResult:
    config = TrialConfig(**{"batch_per_rank": 32, "epochs": 2, "device": "cpu", **changes})
    result = run_inline(config, artifacts=ArtifactOptions(folder=str(folder / "run"), weights=True))
    assert result.outcome == "ok", result.traceback
    return result


def opened(folder: Path, script: str, *, path: str = "") -> tuple[float, list[str]]:
    """What a script that opens the weights prints: an accuracy, and which of ray and dmls_ray it has loaded."""
    done = call([sys.executable, "-c", script], folder / "run", env={"PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    accuracy, *loaded = done.stdout.split()
    return float(accuracy), loaded


def description(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "run" / "weights.json").read_text())
    return content


def test_plain_pytorch_reaches_the_recorded_accuracy_with_the_saved_weights(tmp_path: Path, module: str) -> None:
    result = trained(
        tmp_path, model=f"{module}:Nets.wide", early_stopping="test_accuracy", patience=1, epochs=4, lr=0.1
    )
    accuracy, loaded = opened(tmp_path, DIGITS, path=str(tmp_path))
    assert loaded == []
    kept = result.run["epochs"][result.run["best_epoch"] - 1]
    assert 0.5 < accuracy == pytest.approx(kept["test_accuracy"], abs=1e-9)
    assert accuracy == pytest.approx(description(tmp_path)["metrics"]["test_accuracy"], abs=1e-9)


@pytest.mark.parametrize("changes", [{}, {"batch_norm": "on", "dropout": 0.2}], ids=["as it is", "with layers put in"])
def test_a_built_in_model_is_built_with_the_layers_that_were_put_into_it(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    result = trained(tmp_path, **changes)
    accuracy, loaded = opened(tmp_path, DIGITS, path=str(PROJECT))
    assert loaded == ["dmls_ray"]
    assert accuracy == pytest.approx(result.run["epochs"][-1]["test_accuracy"], abs=1e-9)


@pytest.mark.parametrize("loader", ["resident", "dataloader"])
def test_images_that_the_data_set_has_normalised_are_described_as_such(
    loader: str, tmp_path: Path, module: str
) -> None:
    changes = {"loader": loader, "loader_workers": 0} if loader == "dataloader" else {}
    trained(tmp_path, model=f"{module}:Nets.wide", dataset=f"{module}:floats", **changes)
    found = description(tmp_path)
    assert found["classes"] == ["zero", "one"]
    assert found["input"] == {
        "shape": [1, 4, 4], "pixels": "float32, as the data set has them", "image_size": None,
        "divide_by": 1, "mean": [0.0], "std": [1.0],
    }  # fmt: skip


def test_a_model_of_a_notebook_is_to_be_given_again(tmp_path: Path) -> None:
    def local(classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))

    trained(tmp_path, **ClassificationWorkload().name_objects({"model": local}), epochs=1)
    lines = "\n".join(description(tmp_path)["python"])
    names: dict[str, Any] = {"net": local}
    with contextlib.chdir(tmp_path / "run"):
        exec(lines, names)
    assert len(names["predict"](torch.zeros(3, 1, 8, 8))) == 3


def test_a_torchvision_model_is_built_by_torchvision(tmp_path: Path) -> None:
    trained(tmp_path, model="torchvision:squeezenet1_1", dataset="synthetic:shape=3x32x32,train=32,test=8", epochs=1)
    lines = "\n".join(description(tmp_path)["python"])
    assert "torchvision.models.get_model('squeezenet1_1', weights=None, num_classes=10)" in lines
    found = opened(tmp_path, f"{lines}\nprint(len(predict(torch.zeros(2, 3, 32, 32))))")
    assert found == (2.0, [])


@pytest.mark.slow
def test_weights_trained_with_simulated_int8_open_in_the_plain_model(tmp_path: Path) -> None:
    pytest.importorskip("torchao")
    result = trained(tmp_path, quantization="qat", epochs=1)
    accuracy, _ = opened(tmp_path, DIGITS, path=str(PROJECT))
    assert accuracy == pytest.approx(result.run["fp32_test_accuracy"], abs=1e-9)
    assert description(tmp_path)["metrics"] == {"test_accuracy": result.run["fp32_test_accuracy"]}
