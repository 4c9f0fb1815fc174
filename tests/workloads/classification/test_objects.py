"""Models and data sets that are given to `sweep` as Python objects, as those of a notebook."""

from __future__ import annotations

import functools
import pickle
import sys
import types
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn
from torch.utils.data import Dataset

from dmls_ray import load
from dmls_ray.config.grid import Run
from dmls_ray.config.options import Options
from dmls_ray.config.runtime import Schema
from dmls_ray.execution.planning import make_plan, plan_of
from dmls_ray.execution.run_plan import sweep
from dmls_ray.util.errors import ConfigError, InputError
from dmls_ray.workloads.classification.data.decoded_images import load_decoded
from dmls_ray.workloads.classification.data.sources import cached_source, find_source
from dmls_ray.workloads.classification.model_builder import find_model
from dmls_ray.workloads.classification.workload import ClassificationWorkload
from dmls_ray.workloads.user_function.sent import SentName
from tests.conftest import call

name_objects = ClassificationWorkload().name_objects

MODULE = "tests.workloads.classification.test_objects"

CELL = """
import torch
from torch import nn

WIDTH = 8

class Net(nn.Module):
    def __init__(self, shape, classes):
        super().__init__()
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, WIDTH), nn.Linear(WIDTH, classes))

    def forward(self, images):
        return self.layers(images)

class Points(torch.utils.data.Dataset):
    def __init__(self, split):
        self.targets = [0, 1, 2] * 8
        self.images = torch.arange(24, dtype=torch.uint8).reshape(24, 1, 1, 1).expand(24, 1, 8, 8).clone()

    def __len__(self):
        return len(self.targets)

    def __getitem__(self, index):
        return self.images[index], self.targets[index]
"""


class Linear(nn.Module):
    def __init__(self, shape: tuple[int, int, int], classes: int) -> None:
        super().__init__()
        self.layer = nn.Linear(int(np.prod(shape)), classes)

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.layer(images.flatten(1))
        return outputs


class Grey(Dataset[Any]):
    def __init__(self, split: str, level: int = 1) -> None:
        self.targets = [0, 1] * (6 if split == "train" else 3)
        self.level = level

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        return np.full((4, 4), self.level, "B"), self.targets[index]


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Runs a cell in a new `__main__` without a file, and returns that module."""

    def run(cell: str) -> Any:
        main = types.ModuleType("__main__")
        monkeypatch.setitem(sys.modules, "__main__", main)
        exec(compile(cell, "/tmp/ipykernel_1/1.py", "exec"), vars(main))
        return main

    return run


def test_an_object_that_can_be_imported_is_named_as_on_the_command_line() -> None:
    assert name_objects({"model": Linear, "dataset": [Grey, "digits"], "lr": 1}) == {
        "model": f"{MODULE}:Linear", "dataset": [f"{MODULE}:Grey", "digits"], "lr": 1,
    }  # fmt: skip


def test_a_class_of_a_notebook_is_a_model_in_another_process_and_has_its_name_in_the_records(
    notebook: Callable[[str], Any],
) -> None:
    main = notebook(CELL)
    (run,) = plan({"model": main.Net, "dataset": main.Points})
    assert (run.values["model"], run.values["dataset"]) == ("Net", "Points")
    config: Any = pickle.loads(pickle.dumps(run.seeded()))
    model = find_model(config.model)((1, 8, 8), 3)
    assert [tuple(parameter.shape) for parameter in model.parameters()] == [(8, 64), (8,), (3, 8), (3,)]
    train, test = find_source(config.dataset, None).halves
    assert (len(train), test[5][1]) == (24, 2)


def test_an_edited_object_makes_another_trial(notebook: Callable[[str], Any]) -> None:
    def identity(cell: str) -> tuple[str, Mapping[str, str], Mapping[str, str]]:
        main = notebook(cell)
        axes = name_objects({"model": main.Net, "dataset": main.Points, "batch_per_rank": 4})
        run = plan_of(axes, Options(repeats=1), ClassificationWorkload())[0].runs[0]
        return run.trial_id, run.identity.code, run.identity.data

    trial, code, data = identity(CELL)
    assert code.keys() == {"Net()", "Points()"}
    assert identity(f"\n\n{CELL}") == (trial, code, data)
    edited = identity(CELL.replace("WIDTH = 8", "WIDTH = 9"))
    assert edited[0] != trial
    assert edited[1]["Net()"] != code["Net()"]
    assert edited[1]["Points()"] == code["Points()"]
    other = identity(CELL.replace("[0, 1, 2]", "[0, 2, 1]"))
    assert other[1]["Net()"] == code["Net()"]
    assert other[1]["Points()"] != code["Points()"]
    assert other[2]["Points"] != data["Points"]


def test_what_a_search_proposed_is_the_object_again_when_it_comes_from_a_record(notebook: Callable[[str], Any]) -> None:
    main = notebook(f"{CELL}\ndef other(shape, classes): ...")
    workload = ClassificationWorkload()
    axes = workload.name_objects({"model": [main.Net, main.other], "dataset": main.Points, "batch_per_rank": 4})
    _, space = plan_of(axes, Options(search=True, searcher="optuna"), workload)
    run = space.run_of({"model": "Net"})
    assert run.identity.code.keys() == {"Net()", "Points()"}


@pytest.mark.parametrize("level", [1, 2])
def test_a_dict_of_two_splits_is_a_data_set(level: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLS_RAY_CACHE", str(tmp_path))
    name = name_objects({"dataset": {"train": Grey("train", level), "test": Grey("test")}})["dataset"]
    assert (str(name), type(name)) == ("Grey", SentName)
    cached_source.cache_clear()
    load_decoded.cache_clear()
    data = load_decoded(pickle.loads(pickle.dumps(name)), None, None)
    assert (data.train_images.max(), len(data.train_labels), len(data.test_labels)) == (level, 12, 6)


def make(width: int) -> Callable[..., nn.Module]:
    return lambda shape, classes: nn.Sequential(nn.Flatten(), nn.Linear(width, classes))


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"model": Linear((1, 4, 4), 2)}, "model=<Linear> makes no model for each run"),
        ({"model": 5}, "model=<int> makes no model"),
        ({"model": [make(1), make(2)]}, "<lambda> is the name of two different objects"),
        (
            {"model": lambda shape, classes: Linear(shape, classes), "dataset": lambda split: Grey(split)},
            "dataset=<lambda> is the name of two different",
        ),
        ({"dataset": Grey("train")}, "dataset=<Grey> is not the samples of two splits"),
        ({"dataset": {"train": Grey("train")}}, "dataset=<dict> is not the samples of two splits"),
        ({"model": functools.partial(print, sys.stdout)}, "model=partial cannot be sent to another process"),
    ],
)
def test_what_is_no_model_or_data_set_is_refused_before_anything_starts(
    axes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(InputError, match=message):
        sweep({"batch_per_rank": 4, **axes}, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_an_object_with_the_name_of_a_built_in_one_is_refused(notebook: Callable[[str], Any]) -> None:
    main = notebook("def convnet(shape, classes): ...\ndef digits(split): ...")
    for axes in ({"model": main.convnet}, {"dataset": main.digits}):
        with pytest.raises(ConfigError, match="is the name of a built-in one"):
            name_objects(axes)


@pytest.mark.slow
def test_a_sweep_of_a_notebook_trains_its_model_on_its_data(tmp_path: Path) -> None:
    code = f"""
{CELL}
from dmls_ray import sweep
axes = {{"model": Net, "dataset": Points, "batch_per_rank": 8, "world_size": 2, "epochs": 1, "device": "cpu"}}
axes |= {{"loader": ["resident", "dataloader"], "loader_workers": 1}}
results = sweep(axes, repeats=1, out="kept", oversubscribe=True, tensorboard="off")
print([(record.outcome.value, int(record.metrics["parameters"])) for record in results.records])
"""
    done = call([sys.executable, "-c", code], tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str([("ok", 547)] * 2)
    first, second = load(tmp_path / "kept").records
    assert first.metrics["train_loss"] == second.metrics["train_loss"], "both loaders have the same samples"
    assert first.config["model"] == "Net"


def plan(axes: dict[str, Any]) -> tuple[Run, ...]:
    workload = ClassificationWorkload()
    schema: Schema = workload.schema()
    return make_plan({"batch_per_rank": 4, **workload.name_objects(axes)}, repeats=1, schema=schema).runs
