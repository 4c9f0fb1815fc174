"""Of the values that a rank reports, those that are plain or can be made so are kept, whatever the others are."""

from __future__ import annotations

import datetime
import enum
import json
import math
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from dmls_ray.records.plain import describe_left_out, plain_entries


class Level(enum.IntEnum):
    HIGH = 3


class Kind(enum.StrEnum):
    GOOD = "good"


class Colour(enum.Enum):
    RED = 1


class Broken:
    """Raises whatever is asked of it, with a text that differs each time."""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("__"):
            return super().__getattribute__(name)
        raise RuntimeError(f"at {id(self)}")

    def __float__(self) -> float:
        raise RuntimeError(f"at {id(self)}")

    def __repr__(self) -> str:
        raise RuntimeError

    __str__ = __repr__


class Unhashable(dict[str, Any]):
    def items(self) -> Any:
        raise KeyError("closed")


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.float64(0.5), 0.5),
        (np.bool_(True), True),
        (np.array([[3]]), 3),
        (np.ma.array([3.5]), 3.5),
        (np.str_("a"), "a"),
        (torch.tensor(0.5, requires_grad=True), 0.5),
        (torch.tensor([7]), 7),
        (pd.Series([2.5]), 2.5),
        (Decimal("0.25"), 0.25),
        (Fraction(1, 4), 0.25),
        (Level.HIGH, 3),
        (Kind.GOOD, "good"),
        (None, None),
        (math.inf, math.inf),
        ((1, [np.int64(2)]), [1, [2]]),
        ({1: {"a": Decimal(2)}}, {"1": {"a": 2.0}}),
        (np.array(Decimal(2), dtype=object), 2.0),
    ],
)
def test_a_value_that_is_one_number_or_text_becomes_it(value: Any, plain: Any) -> None:
    entries = plain_entries({"value": value})
    assert (entries.values, entries.left_out) == ({"value": plain}, {})
    assert type(entries.values["value"]) is type(plain), "so that it can be read where its class is unknown"


RECURSIVE: list[Any] = []
RECURSIVE.append([RECURSIVE, RECURSIVE])
WIDE: Any = 1
for _ in range(9):
    WIDE = [WIDE] * 9


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (datetime.datetime.now(), "is of type datetime; give .isoformat()"),
        (datetime.timedelta(1), "is of type timedelta; give .total_seconds()"),
        (np.datetime64("2026-01-01"), "is of type date; give .isoformat()"),
        (np.eye(3), "is of type ndarray with 9 elements; give one number, or .tolist()"),
        (np.ma.masked, "is masked; give a number"),
        (np.ma.array([3.0], mask=[True]), "is masked; give a number"),
        (torch.zeros(0), "is of type Tensor with 0 elements; give one number, or .tolist()"),
        (torch.zeros(1, device="meta"), "is of type Tensor and cannot be read (RuntimeError); give a number or a text"),
        (1 + 2j, "is of type complex; give .real and .imag"),
        (torch.tensor(1j), "is of type complex; give .real and .imag"),
        (b"abc", "is of type bytes; give base64.b64encode() of it as a text"),
        ({1, 2}, "is of type set; give sorted() of it"),
        (Path("a"), "is of type PosixPath; give str() of it"),
        (Colour.RED, "is of type Colour; give .value"),
        (lambda: 1, "is of type function; give numbers, texts, lists or dicts of them"),
        ((item for item in (1, 2)), "is of type generator; give numbers, texts, lists or dicts of them"),
        (int, "is of type type; give numbers, texts, lists or dicts of them"),
        (2**63, "has more than 64 bits; give a float"),
        (Fraction(10**400), "is of type Fraction and cannot be read (OverflowError); give a number or a text"),
        (Broken(), "is of type Broken and cannot be read (RuntimeError); give a number or a text"),
        (Unhashable(), "is of type Unhashable and cannot be read (KeyError); give a number or a text"),
        ([1, {2}], "is of type set; give sorted() of it"),
        (RECURSIVE, "contains itself; give a copy that does not"),
        (WIDE, "has more than 1,000 numbers and characters; write it to a file"),
        ("a" * 1001, "has more than 1,000 numbers and characters; write it to a file"),
        ({"a": "b", "c": 600 * "d", "e": 600 * "f"}, "has more than 1,000 numbers and characters; write it to a file"),
    ],
)
def test_a_value_that_is_not_plain_is_left_out_with_what_to_give_instead(value: Any, why: str) -> None:
    entries = plain_entries({"before": 1, "value": value, "after": 2.0}, most=1000)
    assert entries.values == {"before": 1, "after": 2.0}
    assert entries.left_out == {"value": why}


def test_the_other_entries_of_a_dict_are_kept() -> None:
    entries = plain_entries({"scores": {"f1": 0.5, "roc": {"at": np.zeros(2), "auc": Decimal(1)}, Broken(): 3}})
    assert entries.values == {"scores": {"f1": 0.5, "roc": {"auc": 1.0}, "a key of type Broken": 3}}
    assert entries.left_out == {"scores.roc.at": "is of type ndarray with 2 elements; give one number, or .tolist()"}


def test_of_two_keys_with_one_text_the_first_is_kept() -> None:
    entries = plain_entries({1: "a", "1": "b", "in": {2: "c", "2": "d"}})
    assert entries.values == {"1": "a", "in": {"2": "c"}}
    assert entries.left_out == dict.fromkeys(["1", "in.2"], "is the name of two values; give them two names")


@pytest.mark.parametrize("value", [float("nan"), -math.inf, Decimal("NaN"), "\ud800", "\0", ""])
def test_numbers_that_are_not_finite_and_any_text_are_plain(value: Any) -> None:
    assert plain_entries({"value": value}).left_out == {}
    json.dumps(plain_entries({"value": value}).values)


def test_numbers_within_a_value_that_are_not_finite_become_none_and_are_named_where_they_are_to_be_finite() -> None:
    value = {"recall": [0.5, np.float32("nan"), torch.tensor(math.inf)], "rate": {"best": -math.inf, "mean": 1.5}}
    entries = plain_entries(value, finite=True)
    assert entries.values == {"recall": [0.5, None, None], "rate": {"best": None, "mean": 1.5}}
    assert entries.left_out == {
        "recall": "has the value inf; give a finite number",
        "rate.best": "has the value -inf; give a finite number",
    }


def test_many_values_and_long_names_make_one_short_line() -> None:
    assert describe_left_out({}) == ""
    line = describe_left_out({f"{'n' * 99}\n{number}": "is of type set" for number in range(9)})
    assert line == "; ".join([f"{'n' * 60}... is of type set"] * 5 + ["and 4 more"])
