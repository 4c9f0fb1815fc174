from __future__ import annotations

import dataclasses

import pytest

from dmls_ray.config.fields import field_specs
from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.classification.config import TrialConfig


def test_every_field_has_help_for_its_flag() -> None:
    assert list(field_specs(TrialConfig)) == [field.name for field in dataclasses.fields(TrialConfig)]
    assert all(spec.help.endswith(".") for spec in field_specs(TrialConfig).values())


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("batch_per_rank", "32", 32),
        ("batch_per_rank", "none", None),
        ("lr", "1e-3", 1e-3),
        ("shuffle", "False", False),
        ("shuffle", "true", True),
        ("optimizer", "sgd", "sgd"),
        ("data_dir", "None", None),
    ],
)
def test_a_flag_is_parsed_by_its_field(name: str, text: str, value: object) -> None:
    assert field_specs(TrialConfig)[name].parse(text) == value


@pytest.mark.parametrize(("name", "text"), [("epochs", "two"), ("shuffle", "maybe"), ("lr", "none"), ("device", "tpu")])
def test_a_flag_that_cannot_be_parsed_is_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{name}={text}"):
        field_specs(TrialConfig)[name].parse(text)
