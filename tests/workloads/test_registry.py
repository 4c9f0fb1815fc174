"""Which workload a configuration belongs to, recorded by this version or an earlier one."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint

import pytest

from dmls_ray import load
from dmls_ray.config.options import Options
from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.execution.planning import search_minimizes
from dmls_ray.records.metrics import LEARNED
from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads import registry
from dmls_ray.workloads.base import Workload
from dmls_ray.workloads.grayscale.train import turn_grey
from dmls_ray.workloads.grayscale.workload import RECORDED_NAME
from tests.conftest import PROJECT


@dataclass(frozen=True, kw_only=True)
class _Config(RuntimeConfig):
    width: int = 8


class External(Workload):
    """A workload as another package has it."""

    name = "external"
    config = _Config
    entrypoint = "somewhere:run"


@pytest.fixture
def external(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("external", f"{__name__}:External", registry.GROUP)
    installed = {"external": point, **registry.installed()}
    monkeypatch.setattr(registry, "installed", lambda: installed)


def test_the_entry_of_a_metric_gives_its_direction_and_a_custom_loss_is_minimized() -> None:
    assert [registry.metric_direction(name) for name in LEARNED] == ["min", "max"] * 3
    assert registry.metric_direction("peak_mem_mib") == "min"
    assert registry.metric_direction("valid_loss") == "min"
    assert registry.metric_direction("bleu") == "none"


def test_a_search_minimizes_what_its_goal_or_the_entry_of_its_metric_says() -> None:
    assert search_minimizes(Options(mode="search", metric="levels_apart"))
    assert search_minimizes(Options(mode="search", metric="test_accuracy", goal="min"))
    assert not search_minimizes(Options(mode="search", metric="test_loss", goal="max"))


def test_every_reference_record_belongs_to_its_workload() -> None:
    folders = {"batch_size": "classification", "char_lm": "char_lm:train", "grayscale": "grayscale"}
    for folder, name in folders.items():
        path = PROJECT / "results" / "reference" / folder
        if path.exists():
            assert {registry.workload_of(record.config).name for record in load(path).records} == {name}


def test_recorded_configurations_find_their_workload() -> None:
    assert registry.workload_of({"batch_per_rank": 32}).name == "classification"
    assert registry.workload_of({"train": "char_lm:train", "workload": 3}).name == "char_lm:train"
    assert registry.workload_of({"train": RECORDED_NAME}).name == "grayscale"


def test_a_training_function_is_a_workload_of_its_name() -> None:
    assert registry.workload_of_function("char_lm:train").name == "char_lm:train"
    assert registry.workload_of_function(turn_grey).name == "dmls_ray.workloads.grayscale.train:turn_grey"
    assert registry.workload_of_function(RECORDED_NAME).name == "grayscale"


@pytest.mark.usefixtures("external")
def test_a_workload_of_another_package_is_found_by_its_name() -> None:
    schema = registry.workload("external").schema()
    assert registry.workload_of({**schema.fixed, "width": 4}).name == "external"
    assert schema.hash_of({**schema.fixed, "width": 8}) == schema.hash_of({})
    assert schema.hash_of({"width": 4}) != schema.hash_of({})
    assert "external" in registry.installed()


def test_an_unknown_workload_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(ConfigError, match="unknown workload; installed are .*classification"):
        registry.workload("absent")
