from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from dmls_ray.records.identity import Identity
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.versions import Versions, folder_of, replaces, split_by_version
from dmls_ray.util.errors import ConfigError
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


def test_a_class_that_is_a_data_set_as_well_is_named_once_and_as_it_is() -> None:
    records = [of(1, {"Points()": "x"}).replace(data={"Points": "x"}), of(2, {"Points()": "y"}, data={"Points": "y"})]
    assert split(records).note == "1 run of an earlier version of Points is not shown; --stale includes it."


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


def at(minute: int, number: int, code: Mapping[str, str], **changes: Any) -> RunRecord:
    return of(number, code, started_at=f"2026-01-02T03:{minute:02}:00.000+00:00", **changes)


V1, V2, V3 = ({"m.py": digest} for digest in ("1", "2", "3"))


def test_versions_keep_their_numbers_after_an_undo_and_when_records_were_copied_in_another_order() -> None:
    records = [at(1, 0, V1), at(2, 0, V2), at(3, 0, V3)]
    for order in (records, records[::-1]):
        for newest, versions in ((V3, ["1", "2", "current"]), (V1, ["2", "3", "current"])):
            shown = split(order, {"code": newest}).distinguished()
            assert sorted(item.config["code_version"] for item in shown) == versions


def test_the_version_before_is_the_last_that_ran_before_the_current_one() -> None:
    records = [at(1, 0, V1), at(2, 0, V2), at(3, 0, V3)]
    assert split(records).previous() == records[1:2]
    assert split(records, {"code": V2}).previous() == records[:1]
    assert split(records, {"code": V1}).previous() == records[2:], "none ran before it: the last of the others"
    repeated = [*records, at(4, 1, V2)]
    assert split(repeated, {"code": V2}).previous() == records[:1], "more runs of a version do not make it a later one"


def test_models_in_several_files_have_the_versions_of_their_folder() -> None:
    first = [at(1, 0, {"a.py": "1", "util.py": "1"}), at(2, 1, {"b.py": "1", "util.py": "1"})]
    second = [at(3, 1, {"b.py": "2", "util.py": "1"})]
    third = [at(4, 0, {"a.py": "1", "util.py": "2"}), at(5, 1, {"b.py": "2", "util.py": "2"})]
    versions = split([*first, *second, *third])
    assert [versions.number_of(item) for item in versions.all] == [1, 1, 2, 3, 3]
    assert versions.current_number == 3
    edited_once = split([*first, *second])
    assert (edited_once.earlier, edited_once.current) == (first[1:], [first[0], *second])
    assert edited_once.previous() == first[1:]


def test_a_version_is_chosen_by_its_number_or_as_the_current_one() -> None:
    records = [at(1, 0, V1), at(2, 0, V2), at(3, 0, V3)]
    versions = split(records, {"code": V2})
    assert [versions.of_version(name) for name in ("1", "2", "3", "current")] == [
        records[:1], records[1:2], records[2:], records[1:2],
    ]  # fmt: skip
    assert [versions.name_of(versions.of_version(name)) for name in "12"] == [
        "version 1",
        "version 2, the current one",
    ]
    with pytest.raises(ConfigError) as raised:
        versions.of_version("4")
    assert str(raised.value) == (
        "there is no version 4 of your code and data; there are 1 (1 run from 2026-01-02 03:01), 2 (current, 1 run "
        "from 2026-01-02 03:02), 3 (1 run from 2026-01-02 03:03)."
    )


def test_a_run_that_was_skipped_for_its_values_stays_a_row_next_to_runs_of_the_model() -> None:
    skipped = of(0, {}, config={"model": "m:net"}, outcome=Outcome.SKIPPED)
    records = [skipped, of(1, NEW, config={"model": "m:net"})]
    assert split(records).current == records
    assert split(records).current_number == 1


def test_the_folder_of_a_run_has_the_version_in_its_name_also_where_all_versions_are_shown() -> None:
    records = [of(0, OLD), of(0, NEW), of(1, {})]
    folders = [folder_of(item) for item in records]
    assert folders[0] == Identity(code=OLD).folder_of("a-0") == f"runs/a-0-{Identity(code=OLD).digest[:8]}"
    assert len(set(folders)) == 3
    assert folders[2] == "runs/a-1"
    assert [folder_of(item) for item in split(records).distinguished()] == folders


def test_a_failed_run_of_a_search_does_not_take_the_place_of_the_answer_of_a_benchmark() -> None:
    killed = Outcome.KILLED
    assert not replaces(of(0, OLD, mode="search", outcome=killed), of(0, OLD, mode="bench"))
    assert replaces(of(0, OLD, mode="bench", outcome=killed), of(0, OLD, mode="search"))
    assert replaces(of(0, OLD, mode="search"), of(0, OLD, mode="bench", outcome=killed))


def test_an_answer_of_a_search_does_not_take_the_place_of_that_of_a_benchmark() -> None:
    assert not replaces(of(0, OLD, mode="search"), of(0, OLD, mode="bench"))
    assert replaces(of(0, OLD, mode="bench"), of(0, OLD, mode="search"))
