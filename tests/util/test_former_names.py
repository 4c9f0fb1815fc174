"""Documented names of version 0.1 are accepted with a warning."""

from __future__ import annotations

import importlib
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
