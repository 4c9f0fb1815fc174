from __future__ import annotations

import dataclasses
from typing import Annotated, Any

import pytest
from msgspec import Meta

from dmls_ray.config.fields import PositiveNumber, field_specs, setting
from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.classification.config import TrialConfig


def test_every_field_has_help_for_its_flag() -> None:
    assert field_specs(TrialConfig).keys() == {field.name for field in dataclasses.fields(TrialConfig)}
    assert all(spec.help.endswith(".") for spec in field_specs(TrialConfig).values())


def test_fields_are_ordered_by_group_and_those_of_none_follow() -> None:
    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Base:
        lr: float = setting(0.1, group="optimization")
        seed: int = 0

    @dataclasses.dataclass(frozen=True, kw_only=True)
    class Config(Base):
        model: str = setting("small", group="data")
        depth: int = 2

    assert list(field_specs(Config)) == ["model", "lr", "seed", "depth"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bounded:
    lr: PositiveNumber = 0.1
    share: Annotated[float, Meta(ge=0, lt=1)] | None = None
    limit: float = setting(60.0, reads=lambda text: float(text.removesuffix("s")))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("lr", 0, "lr=0: expected float > 0.0."),
        ("lr", "-1e-3", "lr=-1e-3: expected float > 0.0."),
        ("lr", None, "lr=none: expected float."),
        ("share", 1.0, "share=1.0: expected float < 1.0."),
        ("share", "much", "share=much: expected float | none."),
        ("limit", "soon", "limit=soon: could not convert string to float: 'soon'."),
        ("lr", "x" * 200, f"lr={'x' * 100}...: expected float."),
    ],
)
def test_a_wrong_value_is_refused_with_field_value_and_way_out(name: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        field_specs(Bounded)[name].check(value)
    assert str(refused.value) == message


def test_a_number_is_read_from_a_text_as_people_type_it() -> None:
    assert field_specs(Bounded)["limit"].parse("90s") == field_specs(Bounded)["limit"].check("90s") == 90.0
