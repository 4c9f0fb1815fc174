from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.versions import Versions, split_by_version
from tests.records.test_model import record

OLD, NEW = {"m.py": "old", "util.py": "same"}, {"m.py": "new", "util.py": "same"}


def of(number: int, code: Mapping[str, str], **changes: Any) -> RunRecord:
    return record(run_id=f"a-{number}", repeat=number, code=dict(code), **changes)


def split(records: list[RunRecord], *sessions: Mapping[str, Any]) -> Versions:
    return split_by_version(records, sessions)


def test_runs_of_an_earlier_version_are_left_out_with_a_line_that_names_the_file() -> None:
    records = [of(0, OLD), of(1, OLD), of(0, NEW)]
    versions = split(records)
    assert versions.current == [records[2]]
    assert versions.earlier == records[:2]
    assert versions.note == "2 runs of an earlier version of m.py are not shown; --stale includes them."
    one = split([of(0, OLD), of(1, NEW)])
    assert one.note == "1 run of an earlier version of m.py is not shown; --stale includes it."


def test_runs_without_code_of_the_user_and_runs_of_another_file_stay_current() -> None:
    records = [of(0, OLD), of(1, {}), of(2, {"other.py": "x"}), of(3, NEW)]
    assert split(records).current == records[1:]


def test_edited_data_make_earlier_runs_as_edited_code_does() -> None:
    records = [
        of(0, {}, data={"images in d": "1"}),
        of(0, {}, data={"images in d": "2"}),
        of(1, {}, data={"images in e": "1"}),
    ]
    assert split(records).current == records[1:]
    assert split(records).note == "1 run of an earlier version of images in d is not shown; --stale includes it."


def test_a_version_that_a_later_call_restored_is_current() -> None:
    records = [of(0, OLD), of(0, NEW)]
    assert split(records, {"code": NEW}, {"code": OLD}).current == records[:1]


def test_records_of_older_versions_of_the_package_are_current_until_the_digest_of_their_module_is_known() -> None:
    older = [of(0, {}, config={"model": "m:net"}), of(1, {}, config={"train": "train#0123abcd"})]
    assert split(older).current == older
    assert split([*older, of(2, {"m.py": "x"})]).earlier == older[:1]
    assert split([*older, of(2, {"m/__init__.py": "x"})]).earlier == older[:1]
    assert split([*older, of(2, {"train()": "x"})]).earlier == older[1:]


def test_of_each_run_the_last_current_record_counts() -> None:
    """A file that m.py imports appears; m.py is as it was."""
    records = [of(0, {"m.py": "a"}, outcome=Outcome.KILLED), of(0, {"m.py": "a", "found.py": "b"})]
    assert split(records).current == records[1:]
    assert split(records).note == "1 run of an earlier version of the code is not shown; --stale includes it."


def test_where_all_versions_are_shown_they_are_different_trials() -> None:
    config = {"model": "m:net", "world_size": 1}
    shown = split(
        [of(0, OLD, config=config), of(1, {"m.py": "older"}, config=config), of(0, NEW, config=config)]
    ).distinguished()
    assert [(item.run_id, item.trial_id, item.config["code_version"]) for item in shown] == [
        ("a-v1-0", "a-v1", "1"), ("a-v2-1", "a-v2", "2"), ("a-0", "a", "current"),
    ]  # fmt: skip
    assert config == {"model": "m:net", "world_size": 1}
