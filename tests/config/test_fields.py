from __future__ import annotations

import dataclasses
from typing import ClassVar

import pytest

from dmls_ray.config.fields import Setting, field_specs
from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.classification.config import TrialConfig


def test_every_field_has_help_for_its_flag() -> None:
    assert field_specs(TrialConfig).keys() == {field.name for field in dataclasses.fields(TrialConfig)}
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


def test_inherited_fields_keep_the_order_that_the_class_gives_and_new_fields_follow() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Base:
        lr: float = 0.1
        seed: int = 0

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config(Base):
        model: str = "small"
        depth: int = 2
        FIELD_ORDER: ClassVar[tuple[str, ...]] = ("model", "lr", "seed")

    assert list(field_specs(Config)) == ["model", "lr", "seed", "depth"]


@pytest.mark.parametrize(
    ("bounds", "value", "way_out"),
    [
        ({"at_least": 1}, 0, "give 1 or more"),
        ({"at_least": 0, "below": 1}, 1.0, "give 0 or more and less than 1"),
        ({"above": 0, "at_most": 1}, 0, "give more than 0 and at most 1"),
        ({"at_least": 0, "below": 2**31}, 2**31, "give 0 or more and less than 2147483648"),
        ({"above": 0, "or_none": True}, 0, "give more than 0, or none"),
        ({"not_empty": True}, " ", "give a name"),
        ({"at_least": 1}, None, ""),
        ({"at_least": 1}, 1, ""),
    ],
)
def test_bounds_name_the_way_out(bounds: dict[str, float], value: object, way_out: str) -> None:
    assert Setting(**bounds).range_error(value) == way_out  # type: ignore[arg-type]
