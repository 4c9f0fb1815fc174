"""Documented names of version 0.1 are accepted with a warning."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import dmls_ray
from dmls_ray.analysis.summary.sweep_summary import summarize
from dmls_ray.util.errors import UnavailableError
from dmls_ray.util.former_names import FORMER_MODULES


@pytest.fixture(autouse=True)
def _not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in FORMER_MODULES:
        monkeypatch.delitem(sys.modules, name, raising=False)


def test_errors_under_their_former_name_are_the_same_classes() -> None:
    with pytest.warns(DeprecationWarning, match="dmls_ray.errors is deprecated; use dmls_ray.util.errors"):
        former = importlib.import_module("dmls_ray.errors")
    assert former.UnavailableError is UnavailableError


def test_a_former_module_is_an_attribute_of_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(vars(dmls_ray), "errors", raising=False)
    with pytest.warns(DeprecationWarning, match="dmls_ray.errors is deprecated"):
        assert dmls_ray.errors.UnavailableError is UnavailableError


def test_read_is_summarize() -> None:
    with pytest.warns(DeprecationWarning, match="use dmls_ray.analysis.summary.sweep_summary"):
        former = importlib.import_module("dmls_ray.analysis.reading")
    assert former.read is summarize


def test_a_module_that_never_existed_is_still_unknown() -> None:
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("dmls_ray.nothing")


def test_an_attribute_under_its_former_name_warns_once_and_is_the_same_object() -> None:
    program = (
        "import warnings\n"
        "with warnings.catch_warnings(record=True) as caught:\n"
        "    warnings.simplefilter('always')\n"
        "    from dmls_ray.cli import main\n"
        "    from dmls_ray.config import TrialConfig\n"
        "import dmls_ray, dmls_ray.cli.sweep_script\n"
        "assert main is dmls_ray.cli.sweep_script.main and TrialConfig is dmls_ray.TrialConfig\n"
        "print(*(warning.message for warning in caught), sep='\\n')\n"
    )
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert output.splitlines() == [
        "dmls_ray.cli.main is deprecated; use main of dmls_ray.cli.sweep_script.",
        "dmls_ray.config.TrialConfig is deprecated; use TrialConfig of dmls_ray.",
    ]
