"""Values of user code become plain, or are named and left out."""

from __future__ import annotations

import decimal
import enum
import math
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dmls_ray.records.plain import NotPlainError, plain
from dmls_ray.records.returned import Reported


class Colour(enum.Enum):
    RED = "red"


class Raises:
    def __float__(self) -> float:
        raise RuntimeError(f"at {id(self)}")


def nested(levels: int) -> Any:
    value: Any = 1.0
    for _ in range(levels):
        value = [value]
    return value


CIRCLE: list[Any] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (np.float32(0.5), 0.5), (np.int64(3), 3), (np.bool_(True), True), (np.array([2.0]), 2.0),
        (torch.tensor(1.5), 1.5), (torch.tensor([2]), 2), (np.float32("inf"), math.inf),
        (decimal.Decimal("1.5"), 1.5), ({"a": (1, np.float64(2))}, {"a": [1, 2.0]}),
        ({1: None}, {"1": None}), (Colour.RED, "red"), (date(2026, 1, 2), "2026-01-02"), ([math.nan], [None]),
        ("x", "x"), (None, None), (nested(50), nested(50)),
    ],
)  # fmt: skip
def test_what_json_can_hold_becomes_plain(value: Any, expected: Any) -> None:
    made = plain(value)
    assert made == expected
    assert type(made) is type(expected)


@pytest.mark.parametrize(
    "value",
    [np.zeros(3), torch.zeros(2), object(), Path("x"), Raises(), CIRCLE, nested(2_000), 2**70, "x" * 5_000_000,
     {(1,): 2}],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_no_record_can_hold_is_refused_with_one_reason_for_one_cause(value: Any) -> None:
    with pytest.raises(NotPlainError, match="; ") as first:
        plain(value)
    with pytest.raises(NotPlainError) as second:
        plain(value)
    assert str(first.value) == str(second.value)
    assert "\n" not in str(first.value)


def test_what_a_function_reports_is_kept_where_it_can_be_recorded_and_named_where_it_cannot() -> None:
    reported = Reported(taken={"width"})
    values = {
        "bits": 2.0, "done": True, "note": "x", "width": 1, "seed": 3, "test_accuracy": "high", "rate": math.inf,
        "val_loss": math.nan, "weights": torch.zeros(2), "picture": "no",
    }  # fmt: skip
    kept = reported.read(values, {"test_accuracy"})
    assert math.isnan(kept.pop("val_loss")), "a loss that is not finite makes the run diverge"
    assert kept == {"bits": 2.0, "done": 1, "note": "x", "measured_width": 1, "measured_seed": 3}
    for text in ("test_accuracy is of type str", "rate has the value inf", "weights is of type Tensor", "no JPEG"):
        assert text in reported.left_out


def test_what_is_no_dict_is_one_value_and_nothing_is_none() -> None:
    assert Reported().read(0.5, ()) == {"returned": 0.5}
    assert Reported().read(None, ()) == {}


def test_only_the_first_values_that_are_left_out_are_named() -> None:
    reported = Reported()
    reported.read({f"m{number}": object() for number in range(7)}, ())
    assert reported.left_out.count("is of type object") == 5
    assert reported.left_out.endswith("; and 2 more")
