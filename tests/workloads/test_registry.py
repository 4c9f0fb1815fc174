"""Which workload a configuration belongs to, and mistakes in workloads of other packages: one line, or a warning."""

from __future__ import annotations

from pathlib import Path

import pytest

from dmls_ray.analysis.table.presentation import Presentation
from dmls_ray.config.options import Options
from dmls_ray.execution.planning import minimizes
from dmls_ray.records.metrics import LEARNED
from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads import registry
from dmls_ray.workloads.grayscale.train import turn_grey
from dmls_ray.workloads.grayscale.workload import RECORDED_NAME
from tests.workloads.conftest import Install, sweep


def test_the_entry_of_a_metric_gives_its_direction_and_a_custom_loss_is_minimized() -> None:
    assert [registry.metric_direction(name) for name in LEARNED] == ["min", "max"] * 3
    assert registry.metric_direction("peak_mem_mib") == "min"
    assert registry.metric_direction("valid_loss") == "min"
    assert registry.metric_direction("bleu") == "none"


def test_a_search_minimizes_what_its_goal_or_the_entry_of_its_metric_says() -> None:
    assert minimizes(Options(search=True, metric="levels_apart"))
    assert minimizes(Options(search=True, metric="test_accuracy", goal="min"))
    assert not minimizes(Options(search=True, metric="test_loss", goal="max"))


def test_recorded_configurations_find_their_workload() -> None:
    assert registry.workload_of({"batch_per_rank": 32}).name == "classification"
    assert registry.workload_of({"train": "char_lm:train", "workload": 3}).name == "char_lm:train"
    assert registry.workload_of({"train": RECORDED_NAME}).name == "grayscale"


def test_a_training_function_is_a_workload_of_its_name() -> None:
    assert registry.workload_of_function("char_lm:train").name == "char_lm:train"
    assert registry.workload_of_function(turn_grey).name == "dmls_ray.workloads.grayscale.train:turn_grey"
    assert registry.workload_of_function(RECORDED_NAME).name == "grayscale"


GOOD = """
from dataclasses import dataclass
from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.workloads.base import Workload

@dataclass(frozen=True, kw_only=True)
class Config(RuntimeConfig):
    width: int = 8

@dataclass(frozen=True, kw_only=True)
class Reserved(RuntimeConfig):
    train: str = ""

@dataclass(frozen=True)
class Plain:
    width: int = 8

def run(config, rank, emit):
    return {}

class Odd(Workload):
    name = "odd"
    config = Config
    entrypoint = "PACKAGE:run"
"""


MISTAKES = [
    ({"reference": "odd.nomodule:X"}, "entry point odd=odd.nomodule:X: odd=odd.nomodule:X: no module named 'odd'"),
    ({"reference": "{package}:Absent"}, "has no function Absent"),
    ({"source": "1 / 0\n"}, "ZeroDivisionError: division by zero"),
    ({"reference": "{package}:run"}, "it is no class of this name that extends dmls_ray.workloads.base.Workload"),
    ({"source": GOOD + "    name = 'even'\n"}, "it is no class of this name that extends"),
    ({"source": GOOD + "del Odd.name\n"}, "it is no class of this name"),
    ({"source": GOOD + "    config = Plain\n"}, "has to extend RuntimeConfig"),
    ({"source": GOOD + "    config = Reserved\n"}, "without the fields"),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_a_workload_with_a_mistake_is_refused_in_one_line_that_names_its_package(
    mistake: dict[str, str], message: str, install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install(**{"source": GOOD, **mistake})
    assert sweep("--workload", "odd", "--dry-run") == 2
    line = capsys.readouterr().err
    assert message in line
    assert "workload odd of the installed package package-1" in line
    assert line.count("\n") == 1


def test_a_package_cannot_replace_a_workload_of_dmls_ray(install: Install) -> None:
    install(GOOD, "classification")
    assert type(registry.workload("classification")).__name__ == "ClassificationWorkload"


def test_a_presentation_that_cannot_be_loaded_is_refused_where_it_is_needed(install: Install) -> None:
    install(GOOD + "    presentation = 'odd.nomodule:X'\n")
    with pytest.raises(ConfigError, match="workload odd: its presentation odd.nomodule:X cannot be loaded"):
        Presentation.of(registry.workload("odd"))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("    entrypoint = 'odd_absent:run'\n", "workload odd: its entrypoint=odd_absent:run: no module named"),
        ("    entrypoint = 'PACKAGE:absent'\n", "has no function absent"),
    ],
)
@pytest.mark.parametrize("dry_run", [["--dry-run"], []], ids=["plan", "sweep"])
def test_what_only_a_run_needs_is_checked_before_anything_starts(
    dry_run: list[str], body: str, message: str, install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install(GOOD + body)
    assert sweep("--workload", "odd", *dry_run) == 2
    output = capsys.readouterr()
    assert message in output.err
    assert output.err.count("\n") == 1
    assert output.out == ""
    assert not Path("results").exists()


def test_results_of_a_workload_that_is_not_installed_are_refused() -> None:
    with pytest.raises(ConfigError, match="unknown workload; installed are classification, command, grayscale"):
        registry.workload_of({"workload": "odd"})
