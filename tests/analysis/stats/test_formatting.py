from __future__ import annotations

import math

import pytest

from dmls_ray.analysis.stats.formatting import (
    ACCURACY,
    GENERIC,
    INTEGER,
    POINTS,
    RATE,
    RATIO,
    SECONDS,
    NumberFormat,
    change_text,
    format_interval,
    format_value,
    ratio_text,
    with_sign,
)
from dmls_ray.analysis.stats.intervals import Interval


@pytest.mark.parametrize(
    ("form", "interval", "text"),
    [
        (RATE, Interval(19_572, 15_971, 23_985), "19,600 [16,000, 24,000]"),
        (RATE, Interval(19_572, 19_570, 19_574), "19,572 [19,570, 19,574]"),
        (SECONDS, Interval(0.423, 0.2, 0.7), "0.42 [0.20, 0.70]"),
        (RATIO, Interval(1.5, 1.5, 1.5), "1.50 [1.50, 1.50]"),
        (RATIO, Interval(1.52, 0.4, 9.1), "1.5 [0.4, 9.1]"),
        (ACCURACY, Interval(0.9694, 0.9301, 0.9721), "0.969 [0.930, 0.972]"),
        (INTEGER, Interval(1234, 1000, 1500), "1,230 [1,000, 1,500]"),
        (GENERIC, Interval(2.05432, 2.0, 2.1), "2.054 [2.000, 2.100]"),
        (RATE, Interval(5.0, 1.0, math.inf), "5.0 [1.0, inf]"),
        (RATE, Interval(1.0, None, None), "1.0"),
    ],
)
def test_numbers_have_the_digits_that_their_interval_supports(
    form: NumberFormat, interval: Interval, text: str
) -> None:
    assert format_interval(interval, form) == text
    assert format_value(interval, form) == text.partition(" ")[0]


@pytest.mark.parametrize(
    ("form", "null", "interval", "text"),
    [
        (RATIO, 1.0, Interval(1.0022, 1.0019, 1.0025), "1.002 [1.002, 1.002]"),
        (RATIO, 1.0, Interval(0.91, 0.835, 0.998), "0.910 [0.835, 0.998]"),
        (RATIO, 1.0, Interval(1.0, 0.998, 1.002), "1.000 [0.998, 1.002]"),
        (RATIO, 1.0, Interval(0.92, 0.846, 1.0004), "0.9200 [0.8460, 1.0004]"),
        (RATIO, 1.0, Interval(0.92, 0.846, 1.0), "0.92 [0.85, 1.00]"),
        (POINTS, 0.0, Interval(0.813, -0.013, 1.638), "+0.81 [-0.01, +1.64]"),
        (POINTS, 0.0, Interval(-0.813, -1.638, 0.013), "-0.81 [-1.64, +0.01]"),
        (POINTS, 0.0, Interval(0.0, 0.0, 0.0), "+0.0 [+0.0, +0.0]"),
        (POINTS, 0.0, Interval(0.5, -2e-9, 1.0), "+0.500000 [-0.000001, +1.000000]"),
        (RATIO, 1.0, Interval(1.5, 1 + 1e-9, 2.0), "1.500000 [1.000001, 2.000000]"),
        (with_sign(ACCURACY), 0.0, Interval(0.0004, 0.0001, 0.0007), "+0.0004 [+0.0001, +0.0007]"),
    ],
)
def test_an_interval_is_written_with_no_difference_in_it_if_and_only_if_it_contains_it(
    form: NumberFormat, null: float | None, interval: Interval, text: str
) -> None:
    assert format_interval(interval, form, null=null) == text


@pytest.mark.parametrize(
    ("form", "null", "interval", "text"),
    [
        (GENERIC, None, Interval(1.0, 1e-3, 5e9), "1 [<0.1, >10]"),
        (RATE, None, Interval(401.0, 0.0, 5_214_501_904_720_901_120.0), "400 [<50, >4,000]"),
        (RATIO, 1.0, Interval(1.0, 0.0002, 4545.0), "1 [<0.1, >10]"),
        (RATIO, 1.0, Interval(39_947.0, 12.3, 1.3e8), "40,000 [12.30, >300,000]"),
        (RATIO, 1.0, Interval(12.0, 1.00004, 144.0), "12 [1.00004, >100]"),
        (SECONDS, None, Interval(0.01, 1e-9, 1e5), "0.01 [<0.001, >0.1]"),
        (RATIO, 1.0, Interval(2.0, 0.21, 19.9), "2.0 [0.2, 19.9]"),
        (RATIO, 1.0, Interval(0.05, 0.0028, 0.9), "0.05 [<0.005, 0.90]"),
        (RATIO, 1.0, Interval(0.05, 0.0028, 1.2), "0.05 [<0.005, 1.20]"),
        (RATIO, 1.0, Interval(4e-5, 1e-7, 0.02), "4e-05 [<4e-06, 0.02]"),
    ],
)
def test_ends_that_are_more_than_10_times_away_are_bounds_and_no_end_hides_whether_there_is_a_difference(
    form: NumberFormat, null: float | None, interval: Interval, text: str
) -> None:
    assert format_interval(interval, form, null=null) == text


@pytest.mark.parametrize(
    ("form", "null", "interval", "text"),
    [
        (RATIO, 1.0, Interval(1.0022, 1.0019, 1.0025), "1.002"),
        (RATIO, 1.0, Interval(1.0022, 0.9999, 1.0045), "1.00"),
        (RATIO, 1.0, Interval(1.0022, None, None), "1.00"),
        (POINTS, 0.0, Interval(-0.02, -0.03, -0.01), "-0.02"),
    ],
)
def test_a_value_whose_interval_leaves_no_difference_out_is_not_written_as_no_difference(
    form: NumberFormat, null: float, interval: Interval, text: str
) -> None:
    assert format_value(interval, form, null=null) == text


def test_a_number_of_which_nothing_is_known_has_four_digits() -> None:
    texts = list(map(GENERIC, [3.0, 2.0543, 12345.6, 2.1e-7]))
    assert texts == ["3", "2.054", "12,346", "2.100e-07"]


def test_nothing_is_not_negative_and_a_sign_stands_before_what_is_more() -> None:
    assert RATIO(-0.001) == "0.00"
    assert with_sign(ACCURACY)(0.0301) == "+0.030"
    assert with_sign(ACCURACY)(-0.0301) == "-0.030"
    assert format_interval(Interval(4.8e-7, 4.7e-7, 4.9e-7), with_sign(GENERIC)) == "+4.80e-07 [+4.70e-07, +4.90e-07]"


def test_a_ratio_is_written_alone_or_with_an_x_after_the_number() -> None:
    ratio = Interval(2.83, 2.26, 3.54)
    assert ratio_text(ratio) == "2.83 [2.26, 3.54]"
    assert ratio_text(ratio, x=True) == "2.83x [2.26, 3.54]"
    assert ratio_text(ratio, x=True, interval=False) == "2.83x"
    assert ratio_text(Interval(2.83, None, None), x=True) == "2.83x"
    assert ratio_text(Interval(1.0022, 1.0019, 1.0025), x=True) == "1.002x [1.002, 1.002]"
    assert ratio_text(None, x=True) == ratio_text(None) == ""


def test_a_change_is_a_ratio_or_a_difference_with_its_sign() -> None:
    assert change_text(Interval(1.5, 1.4, 1.6), ACCURACY, is_ratio=True) == "1.50 [1.40, 1.60]"
    assert change_text(Interval(0.0004, 0.0001, 0.0007), ACCURACY, is_ratio=False) == "+0.0004 [+0.0001, +0.0007]"
    assert change_text(None, ACCURACY, is_ratio=False) == ""
