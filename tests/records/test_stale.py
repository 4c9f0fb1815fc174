"""Runs with other code or data of the user than the last sweep had are left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.stale import SplitRecords, describe_stale, replaces, split_stale
from tests.records.test_model import record

OLD, NEW = {"m.py": "old", "util.py": "same"}, {"m.py": "new", "util.py": "same"}


def of(name: str, code: Mapping[str, str], **changes: Any) -> RunRecord:
    return record(run_id=f"{name}-0", trial_id=name, code=dict(code), **changes)


def split(records: list[RunRecord], *sessions: Mapping[str, Any]) -> SplitRecords:
    return split_stale(records, sessions)


def note(records: list[RunRecord]) -> str:
    found = split(records)
    return describe_stale(found.stale, found.newest)


def test_runs_of_other_code_are_stale_with_a_line_that_names_the_file() -> None:
    records = [of("a", OLD), of("b", OLD), of("c", NEW)]
    found = split(records)
    assert (found.current, found.stale) == (records[2:], records[:2])
    assert note(records) == "2 runs of other versions of m.py left out; --stale includes them."
    assert note(records[1:]) == "1 run of other versions of m.py left out; --stale includes them."
    many = [of(name, dict.fromkeys(["a.py", "b.py", "c.py", "d.py"], name)) for name in "ab"]
    assert note(many) == "1 run of other versions of a.py, b.py, c.py, ... left out; --stale includes them."


def test_runs_without_code_of_the_user_and_runs_of_another_file_stay_current() -> None:
    records = [of("a", OLD), of("b", {}), of("c", {"other.py": "x"}), of("d", NEW)]
    assert split(records).current == records[1:]
    assert note(records[1:]) == ""


def test_edited_data_make_runs_stale_as_edited_code_does() -> None:
    records = [
        of("a", {}, data={"images in d": "1"}),
        of("b", {}, data={"images in d": "2"}),
        of("c", {}, data={"images in e": "1"}),
    ]
    assert split(records).current == records[1:]
    assert note(records) == "1 run of other versions of images in d left out; --stale includes them."


def test_a_class_that_is_a_data_set_as_well_is_named_once_and_as_it_is() -> None:
    records = [of("a", {"Points()": "x"}, data={"Points": "x"}), of("b", {"Points()": "y"}, data={"Points": "y"})]
    assert note(records) == "1 run of other versions of Points left out; --stale includes them."


def test_trials_that_the_latest_call_asked_for_are_current_whatever_the_order_of_sessions() -> None:
    records = [of("a", OLD), of("b", NEW)]
    sessions = [{"started_at": "2026-01-02", "code": OLD}, {"started_at": "2026-01-01", "code": NEW}]
    assert split(records, *sessions).current == records[:1]


def test_where_stale_runs_are_shown_the_field_code_says_which_they_are() -> None:
    config = {"model": "m:net", "world_size": 1}
    shown = split([of(name, code, config=config) for name, code in (("a", OLD), ("b", {"m.py": "x"}), ("c", NEW))])
    codes = [item.config["code"] for item in shown.distinguished()]
    assert codes[2] == "current"
    assert len(set(codes)) == 3
    assert config == {"model": "m:net", "world_size": 1}


@pytest.mark.parametrize(
    ("later", "earlier", "takes_the_place"),
    [
        ({"mode": "search", "outcome": Outcome.KILLED}, {}, False),
        ({}, {"mode": "search", "outcome": Outcome.KILLED}, True),
        ({"mode": "search"}, {"outcome": Outcome.KILLED}, True),
        ({"mode": "search"}, {}, False),
        ({}, {"mode": "search"}, True),
    ],
)
def test_neither_a_failure_nor_a_run_of_a_search_takes_the_place_of_the_answer_of_a_benchmark(
    later: dict[str, Any], earlier: dict[str, Any], takes_the_place: bool
) -> None:
    assert replaces(of("a", OLD, **later), of("a", OLD, **earlier)) is takes_the_place
