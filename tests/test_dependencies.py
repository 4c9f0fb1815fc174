"""What pyproject.toml lets pip install."""

from __future__ import annotations

import tomllib
from itertools import chain

import pytest
from packaging.requirements import Requirement

from tests.conftest import PROJECT

PYPROJECT = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
EXTRAS = PYPROJECT["optional-dependencies"]
REQUIREMENTS = [Requirement(text) for text in chain(PYPROJECT["dependencies"], *EXTRAS.values())]

WITHDRAWN = {"lightning": ("2.6.2", "2.6.3")}
"""Versions that were withdrawn as malicious (GHSA-w37p-236h-pfx3); a mirror may still have them."""


@pytest.mark.parametrize("name", WITHDRAWN)
def test_no_extra_admits_a_version_that_was_withdrawn_as_malicious(name: str) -> None:
    bounds = [requirement.specifier for requirement in REQUIREMENTS if requirement.name == name]
    assert bounds
    for bound in bounds:
        assert not [version for version in WITHDRAWN[name] if version in bound]


def test_all_has_each_extra_that_adds_to_the_product() -> None:
    (everything,) = map(Requirement, EXTRAS["all"])
    assert everything.extras == EXTRAS.keys() - {"all", "dev", "examples"}
