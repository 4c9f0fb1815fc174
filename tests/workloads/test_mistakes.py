"""Mistakes in the workload of another package: one line where it is asked for, a warning where it is not."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dmls_ray import load
from dmls_ray.analysis.table.presentation import Presentation, installed_presentations
from dmls_ray.cli.main import main
from dmls_ray.cli.sweep_script import Preset
from dmls_ray.cli.sweep_script import main as sweep_main
from dmls_ray.config.grid import build_plan
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.storage.location import open_store
from dmls_ray.util.errors import ConfigError, ConflictError
from dmls_ray.workloads import registry
from tests.analysis.samples import MACHINE

Install = Callable[..., None]

GOOD = """
from dataclasses import dataclass
from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.records.metrics import Metric
from dmls_ray.workloads.base import Workload

@dataclass(frozen=True, kw_only=True)
class Config(RuntimeConfig):
    width: int = 8

@dataclass(frozen=True, kw_only=True)
class Needy(RuntimeConfig):
    width: int

@dataclass(frozen=True, kw_only=True)
class Reserved(RuntimeConfig):
    train: str = ""

@dataclass(frozen=True, kw_only=True)
class Strict(RuntimeConfig):
    width: int = 8
    def __post_init__(self):
        super().__post_init__()
        if self.width == 13:
            raise ValueError("13 brings bad luck")

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


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Install]:
    """Install a package of one module, with an entry point of the group."""
    number = 0

    def add(body: str = "", *, entry: str = "odd", reference: str = "{package}:Odd", source: str = GOOD) -> None:
        nonlocal number
        number += 1
        # A module that another test has imported is not imported again.
        package = f"odd_{abs(hash((request.node.name, number)))}"
        (tmp_path / f"{package}.py").write_text(source.replace("PACKAGE", package) + body)
        info = tmp_path / f"{package}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: package-{number}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{registry.GROUP}]\n{entry} = {reference.format(package=package)}\n")
        registry.installed.cache_clear()

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    registry.warn.cache_clear()
    yield add
    registry.installed.cache_clear()


MISTAKES = [
    ({"reference": "odd.nomodule:X"}, "entry point odd=odd.nomodule:X: odd=odd.nomodule:X: no module named 'odd'"),
    ({"reference": "{package}:Absent"}, "has no function Absent"),
    ({"source": "1 / 0\n"}, "ZeroDivisionError: division by zero"),
    ({"reference": "{package}:run"}, "it is not a class that extends dmls_ray.workloads.base.Workload"),
    ({"body": "    name = 'even'\n"}, "its class Odd has the name 'even'; give the class and the entry point one name"),
    ({"body": "del Odd.name\n"}, "its class Odd has no name; set it"),
    ({"body": "    config = Plain\n"}, "has to extend RuntimeConfig"),
    ({"body": "    config = Reserved\n"}, "may not have the fields"),
    (
        {"body": "    metrics = (Metric(name='seed', label='', kind='value', direction='max', scope='run'),)\n"},
        "its metric seed has the name of an entry",
    ),
    ({"body": "    throughput = 'nope'\n"}, "its throughput 'nope' is no metric of kind rate; name one of "),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES, ids=[message for _, message in MISTAKES])
def test_a_workload_with_a_mistake_is_refused_in_one_line_that_names_its_package(
    mistake: dict[str, str], message: str, install: Install, capsys: pytest.CaptureFixture[str]
) -> None:
    install(**mistake)
    assert sweep("--workload", "odd", "--dry-run") == 2
    line = capsys.readouterr().err
    assert message in line
    assert "workload odd of the installed package package-1" in line
    assert line.count("\n") == 1


def test_a_workload_with_a_mistake_costs_other_workloads_one_warning(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    install(body="    throughput = 'nope'\n")
    assert "images_per_s" in registry.registered_metrics()
    assert [type(item).__name__ for item in installed_presentations()] == [
        "ClassificationPresentation", "GrayscalePresentation",
    ]  # fmt: skip
    (warning,) = warnings_of(caplog)
    assert "workload odd of the installed package package-1" in warning


def test_a_package_cannot_replace_a_workload_of_dmls_ray(install: Install) -> None:
    install(entry="classification")
    assert type(registry.workload("classification")).__name__ == "ClassificationWorkload"


def test_a_presentation_that_cannot_be_loaded_is_refused_where_it_is_needed(
    install: Install, caplog: pytest.LogCaptureFixture
) -> None:
    install("    presentation = 'odd.nomodule:X'\n")
    with pytest.raises(ConfigError, match="workload odd: its presentation odd.nomodule:X cannot be loaded"):
        Presentation.of(registry.workload("odd"))
    assert len(list(installed_presentations())) == 2
    assert len(list(installed_presentations())) == 2
    assert len(warnings_of(caplog)) == 1


def test_a_field_without_a_default_needs_a_value(install: Install) -> None:
    install("    config = Needy\n")
    schema = registry.workload("odd").schema()
    assert schema.make(width=4).canonical()["width"] == 4
    with pytest.raises(ConfigError, match="odd needs a value of width; give one"):
        build_plan({"seed": [1]}, schema, repeats=1, order_seed=0)


def test_values_that_a_configuration_refuses_are_a_conflict(install: Install) -> None:
    install("    config = Strict\n")
    with pytest.raises(ConflictError, match="odd refuses its values: ValueError: 13 brings bad luck"):
        registry.workload("odd").schema().make(width=13)


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
    install("", source=GOOD + body)
    assert sweep("--workload", "odd", *dry_run) == 2
    output = capsys.readouterr()
    assert message in output.err
    assert output.err.count("\n") == 1
    assert output.out == ""
    assert not Path("results").exists()


@pytest.fixture
def orphaned(install: Install, tmp_path: Path) -> Path:
    """A results folder of a workload whose package is not installed any more."""
    install()
    schema = registry.workload("odd").schema()
    with open_store(tmp_path / "orphaned", print) as store:
        for order, (width, repeat) in enumerate([(width, repeat) for width in (8, 16) for repeat in range(2)]):
            values = {**schema.fixed, **schema.defaults, "width": width}
            trial = schema.hash_of(values)
            record = RunRecord(
                run_id=f"{trial}-{repeat}", trial_id=trial, repeat=repeat, order=order, order_seed=0, seed=repeat,
                outcome=Outcome.OK, config=values, machine=MACHINE, metrics={"total_s": 1.0 + repeat, "oddness": 3.5},
                started_at="2026-01-02T03:04:05",
            )  # fmt: skip
            store.append(record)
    for info in tmp_path.glob("*.dist-info"):
        (info / "entry_points.txt").unlink()
    registry.installed.cache_clear()
    return tmp_path / "orphaned"


@pytest.mark.parametrize("words", [["table"], ["ls"], ["show"], ["export"], ["report"], ["advise"], ["figures"]])
def test_results_of_a_workload_that_is_not_installed_are_read_by_the_defaults(
    words: list[str], orphaned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_id = load(orphaned).records[0].run_id
    with pytest.raises(SystemExit) as ended:
        main([*words, *([run_id] if words == ["show"] else []), str(orphaned)])
    output = capsys.readouterr()
    assert not ended.value.code, output.err
    if words == ["table"]:
        assert "width" in output.out
        assert "oddness" in output.out
        assert "The workload odd is not installed here" in output.out


@pytest.mark.parametrize("dry_run", [["--dry-run"], []], ids=["plan", "sweep"])
def test_a_folder_of_another_workload_is_refused(
    dry_run: list[str], orphaned: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sweep("--batch-per-rank", "8", "--out", str(orphaned), *dry_run) == 2
    assert "holds runs of odd; name another folder, or pass --fresh." in capsys.readouterr().err


def sweep(*words: str) -> int:
    with pytest.raises(SystemExit) as ended:
        sweep_main(Preset(name="sweep", question="Why?", axis=None, axes={}), [*words, "--launcher", "inline"])
    return int(ended.value.code or 0)


def warnings_of(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
