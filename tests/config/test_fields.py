"""Fields of a configuration: from a flag and from Python a value is the same, or both refuse it."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NewType, Optional

import numpy as np
import pytest
from msgspec import Meta

from dmls_ray.config.fields import PositiveNumber, field_specs, setting
from dmls_ray.config.value_texts import as_flag_value
from dmls_ray.execution.planning import make_plan
from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.user_function.schema import user_function_schema


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
    limit: PositiveNumber = setting(60.0, reads=lambda text: float(text.removesuffix("s")))


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("lr", 0, "lr=0: expected float > 0.0."),
        ("lr", "-1e-3", "lr=-1e-3: expected float > 0.0."),
        ("lr", None, "lr=none: expected float."),
        ("share", 1.0, "share=1.0: expected float < 1.0."),
        ("share", "much", "share=much: expected float | none."),
        ("limit", "soon", "limit=soon: could not convert string to float: 'soon'."),
        ("limit", "-5s", "limit=-5s: expected float > 0.0."),
    ],
)
def test_a_wrong_value_is_refused_with_field_value_and_way_out(name: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        field_specs(Bounded)[name].check(value)
    assert str(refused.value) == message


def test_a_number_is_read_from_a_text_as_people_type_it() -> None:
    assert field_specs(Bounded)["limit"].parse("90s") == field_specs(Bounded)["limit"].check("90s") == 90.0


if TYPE_CHECKING:
    import torch


class Act(enum.Enum):
    RELU = "relu"
    GELU = "gelu"
    DEFAULT = RELU


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


Count = NewType("Count", int)


@dataclass(frozen=True, slots=True)
class Base:
    depth: int = 2


@dataclass(frozen=True, slots=True)
class Config(Base):
    widths: list[int] = field(default_factory=lambda: [64, 32])
    ids: list[str] = field(default_factory=lambda: ["007"])
    size: tuple[int, int] = (2, 3)
    pick: Literal[1, 2, "auto", True] = "auto"
    act: Act = Act.RELU
    act_or_none: Act | None = None
    acts: tuple[Act, ...] = (Act.RELU,)
    level: Level = Level.LOW
    root: Path = Path("data")
    paths: Optional[list[Path]] = None  # noqa: UP045 - as users write it, too
    nested: tuple[tuple[int, ...], ...] = ((1, 2), (3,))
    mixed: tuple[int, str, bool] = (1, "a", True)
    names: frozenset[str] = frozenset({"a", "b"})
    rates: Sequence[float] = field(default_factory=lambda: [0.1, 0.2])
    holes: tuple[int | None, ...] = (None, 3)
    number_or_text: int | str = "x"
    rate_or_auto: float | Literal["auto"] = "auto"
    one_or_several: int | list[int] = 3
    any_number: int | float = 3
    text_or_path: str | Path | None = None
    single: float = np.float32(0.5)
    steps: int = 1000
    flag: bool = False
    plain: Any = None
    label: str = None  # type: ignore[assignment]
    count: Count = Count(5)
    derived: int = field(init=False, default=8)
    table: dict[str, int] = field(default_factory=dict)
    base: Base = field(default_factory=Base)
    rights: Rights = Rights.READ | Rights.WRITE
    function: Callable[..., Any] | None = None
    dtype: torch.dtype | None = None
    array: np.ndarray[Any, Any] = field(default_factory=lambda: np.zeros(3))


def train(config: Config, rank: Any, emit: Any) -> None: ...


FIXED = {"table", "base", "rights", "function", "dtype", "array"}

SAME = [
    ("widths", "64,32", [64, 32]),
    ("widths", "[64, 32]", (64, 32)),
    ("ids", "007,1e5", ["007", "1e5"]),
    ("ids", '["a", "none"]', ("a", "none")),
    ("widths", "[]", np.array([], int)),
    ("size", "4, 5", (4, 5)),
    ("pick", "2", np.int64(2)),
    ("pick", "auto", "auto"),
    ("pick", "true", True),
    ("act", "gelu", Act.GELU),
    ("act", "GELU", "gelu"),
    ("act", "DEFAULT", Act.RELU),
    ("act_or_none", "none", None),
    ("act_or_none", "relu", "RELU"),
    ("acts", "relu,GELU", [Act.RELU, "gelu"]),
    ("level", "2", Level.HIGH),
    ("level", "HIGH", 2),
    ("root", "a/b/", Path("a/b")),
    ("paths", "a,b", [Path("a"), "b"]),
    ("paths", "none", None),
    ("nested", "[[1,2],[3]]", ((1, 2), (3,))),
    ("mixed", "2,b,false", (2, "b", False)),
    ("names", "z,a,z", {"a", "z"}),
    ("rates", "1,2", [1, 2]),
    ("holes", "1,none", (1, None)),
    ("number_or_text", "5", 5),
    ("number_or_text", "007", "007"),
    ("number_or_text", '"5"', "5"),
    ("rate_or_auto", "auto", "auto"),
    ("one_or_several", "5,6", [5, 6]),
    ("any_number", "5", 5),
    ("text_or_path", "a", Path("a")),
    ("single", "0.25", np.float32(0.25)),
    ("steps", "1e5", 1e5),
    ("flag", "true", np.True_),
    ("plain", "007", "007"),
    ("plain", '"1e5"', "1e5"),
    ("plain", "none", None),
    ("label", "none", "none"),
    ("count", "3", 3),
]


NATIVE = {
    "widths": list, "act": Act, "level": Level, "text_or_path": str, "root": type(Path()),
    "nested": tuple, "names": frozenset, "rates": list,
}  # fmt: skip
"""Field -> the type that the function gets."""


@pytest.mark.parametrize(("name", "text", "value"), SAME)
def test_a_value_is_the_same_from_a_flag_and_from_python(name: str, text: str, value: Any) -> None:
    schema = user_function_schema(train)
    made: list[Any] = [
        schema.make(**{name: schema.specs[name].parse(text)}),
        schema.make(**{name: schema.check(name, value)}),
    ]
    assert repr(made[0].canonical()[name]) == repr(made[1].canonical()[name])
    native = getattr(made[0].for_function(Config), name)
    assert schema.specs[name].plain(native) == made[0].canonical()[name]
    assert type(native) is NATIVE.get(name, type(native))
    if not text.startswith('"'):  # a command line needs quotation marks here
        assert schema.specs[name].parse(as_flag_value(made[0].canonical()[name])) == made[0].canonical()[name]


def test_without_any_value_the_function_gets_the_defaults_of_its_dataclass() -> None:
    config: Any = user_function_schema(train).make()
    given = config.for_function(Config)
    expected = Config()
    for item in dataclasses.fields(Config):
        if item.name != "array":
            assert getattr(given, item.name) == getattr(expected, item.name)
    assert given.derived == 8


REFUSED = [
    ("widths", "64 32", "widths=64 32: expected int"),
    ("widths", "[64", "widths=[64: expected values separated by commas"),
    ("widths", "64,,32", "widths=64,,32: expected int"),
    ("size", "4,5,6", "size=4,5,6: expected array of length 2"),
    ("pick", "nonsense", "pick=nonsense is unknown; choose from 1, 2, auto, true."),
    ("act", "tanh", "act=tanh is unknown; choose from RELU, GELU."),
    ("level", "3", "level=3 is unknown; choose from LOW, HIGH."),
    ("nested", "1,2", "nested=1,2: expected array"),
    ("rate_or_auto", "fast", "rate_or_auto=fast is unknown; choose from auto, or give float."),
    ("steps", "1.5", "steps=1.5: expected int."),
    ("steps", "1e30", "steps=1e30: expected int."),
    ("single", "1e400", "single=1e400: expected a finite number"),
    ("plain", "nan", "plain=nan: expected a finite number"),
    ("flag", "maybe", "flag=maybe: expected bool."),
]


@pytest.mark.parametrize(("name", "text", "message"), REFUSED)
def test_a_wrong_text_is_refused_with_field_value_and_way_out(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        field_specs(Config)[name].parse(text)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("widths", 64), ("widths", "64"), ("widths", [1.5]), ("size", (4, 5, 6)), ("pick", 1.5),
        ("act", 3), ("acts", [3]), ("level", True),
        ("root", 3), ("nested", [1, 2]), ("number_or_text", True), ("steps", True),
        ("steps", 1.5), ("steps", 1e300), ("single", 10**400), ("flag", 2), ("plain", object()),
        ("plain", Act.RELU),
    ],
)  # fmt: skip
def test_a_wrong_value_is_refused_by_its_name(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=f"^{name}="):
        field_specs(Config)[name].check(value)


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ({"widths": [64, 32]}, [(64, 32)]),
        ({"widths": [[64, 32], (1,)]}, [(64, 32), (1,)]),
        ({"widths": (64, 32)}, [(64, 32)]),
        ({"ids": ["a", "b"]}, [("a", "b")]),
        ({"size": [4, 5]}, [(4, 5)]),
        ({"names": [{"b", "a"}, {"c"}]}, [("a", "b"), ("c",)]),
        ({"one_or_several": [1, [2, 3]]}, [1, (2, 3)]),
        ({"act": list(Act)}, ["RELU", "GELU"]),
        ({"acts": list(Act)}, [("RELU", "GELU")]),
        ({"root": [Path("a"), "a/", "b"]}, ["a", "b"]),
    ],
)
def test_parts_of_one_value_are_no_values_of_an_axis(given: dict[str, Any], values: list[Any]) -> None:
    plan = make_plan(given, repeats=1, schema=user_function_schema(train))
    assert list(*plan.axes.values()) == values


def test_fields_without_plain_values_stay_at_their_defaults_and_are_refused_as_axes() -> None:
    assert {item.name for item in dataclasses.fields(Config)} - field_specs(Config).keys() == {"derived", *FIXED}
    with pytest.raises(ConfigError, match="^table is no field of the configuration of .*the fields are"):
        make_plan({"table": [1]}, repeats=1, schema=user_function_schema(train))


def test_a_field_that_needs_a_value_and_can_have_none_is_refused_with_the_function() -> None:
    @dataclass
    class Needs:
        table: dict[str, int]

    with pytest.raises(ConfigError, match="table of Needs has a type that no flag .*; give it a default"):
        field_specs(Needs)


def test_a_field_without_a_default_is_given_and_not_none() -> None:
    @dataclass
    class Needs:
        width: int
        depth: int | None

    specs = field_specs(Needs)
    assert [spec.is_required for spec in specs.values()] == [True, True]
    assert specs["depth"].check(None) is None
    with pytest.raises(ConfigError, match=r"^width=none: expected int\.$"):
        specs["width"].check(None)


@pytest.mark.parametrize(
    ("annotation", "default", "message"),
    [
        (float, "fast", "the default in Odd: x=fast: expected float."),
        (bool, 2, "the default in Odd: x=2: expected bool."),
        (tuple[int, int], (1,), "the default in Odd: x=1: expected array of length 2."),
        (Any, float("inf"), "the default in Odd: x=inf: expected a finite number."),
    ],
)
def test_a_default_that_is_no_value_of_its_field_is_refused(annotation: Any, default: Any, message: str) -> None:
    odd = dataclasses.make_dataclass("Odd", [("x", annotation, field(default=default))])
    with pytest.raises(ConfigError, match=message):
        field_specs(odd)
