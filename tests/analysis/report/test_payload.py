from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dmls_ray.analysis.report import payload
from dmls_ray.analysis.report.payload import MOST, TextTable, build_payload, run_files, run_logs, shorten
from dmls_ray.records.epoch_and_rank import EpochRecord
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from tests.analysis.report.samples import many
from tests.analysis.samples import own_results, results, set_value
from tests.conftest import jpeg
from tests.records.test_model import record as made


def payload_of(**changes: Any) -> dict[str, Any]:
    sample = results({"batch_per_rank": [16, 32]}, lambda values, repeat: 100.0 + repeat, repeats=2)
    for name, value in changes.items():
        set_value(sample.records[0], name, value)
    return build_payload(sample.records, Path("nowhere"))


def test_the_unit_or_kind_of_a_metric_decides_its_decimals() -> None:
    decimals = payload_of(bits_loss=1.0, width=2.0, wait_s=1.5)["decimals"]
    assert decimals.items() >= {"total_s": 3, "test_accuracy": 4, "bits_loss": 4, "wait_s": 3}.items()
    assert not decimals.keys() & {"images_per_s", "peak_mem_mib", "width"}


def test_a_field_in_which_no_run_says_anything_is_left_out() -> None:
    assert "int8_test_accuracy" not in payload_of()["record"]
    assert "test_accuracy" in payload_of()["record"]
    assert payload_of(int8_test_accuracy=0.5)["record"]["int8_test_accuracy"]["each"] == [0.5, None, None, None]


def test_a_run_that_a_search_stopped_is_not_ok_on_the_page() -> None:
    assert payload_of(stopped_epoch=1)["record"]["outcome"] == {"each": ["stopped", "ok", "ok", "ok"]}


def test_a_picture_is_there_once_however_many_runs_left_it_and_in_no_column() -> None:
    sample = results({"batch_per_rank": [16, 32]}, lambda values, repeat: 100.0, repeats=2)
    one, other = jpeg(8), jpeg(16)
    for record, picture in zip(sample.records, ("", one, other, one), strict=True):
        record.picture = picture
    shown = build_payload(sample.records, Path("nowhere"))
    assert (shown["picture"], shown["pictures"]) == ({"each": [None, 0, 1, 0]}, [one, other])
    assert (json.dumps(shown).count(one), json.dumps(shown).count(other)) == (1, 1)
    assert "picture" not in shown["record"]


def test_pictures_beyond_the_total_are_said_to_be_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = jpeg(8), jpeg(16)
    monkeypatch.setattr(payload, "PICTURES", len(one) + 10)
    sample = results({"batch_per_rank": [16]}, lambda values, repeat: 100.0, repeats=2)
    for record, picture in zip(sample.records, (one, other), strict=True):
        record.picture = picture
    shown = build_payload(sample.records, Path("nowhere"))
    assert (shown["picture"], shown["pictures"]) == ({"each": [0, -1]}, [one])


def test_epochs_and_ranks_are_there_measure_by_measure() -> None:
    sample = many(2, epochs=3)
    shown = build_payload(sample.records, Path("nowhere"))
    assert shown["epochs"]["epoch"] == [[1, 2, 3], [1, 2, 3]]
    assert shown["ranks"]["rank"] == [[0, 1], [0, 1]]
    assert [len(rank) for rank in shown["rank_epochs"]["train_loss"][0]] == [3, 3]
    busy = sample.records[0].ranks[1].utilization["cpu_percent"]
    assert shown["ranks"]["mean cpu_percent"][0][1] == pytest.approx(sum(busy) / 240, rel=1e-4)


def test_long_runs_show_every_kth_epoch_and_those_that_have_a_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = many(1, epochs=0, ranks=1)
    (record,) = sample.records
    record.epochs = [EpochRecord(epoch=number) for number in range(1, 101)]
    record.metrics["best_epoch"] = 42
    monkeypatch.setattr(payload, "EPOCH_ROWS", 20)
    shown = build_payload(sample.records, Path("nowhere"))
    assert shown["epochs"]["epoch"][0] == [1, 11, 21, 31, 41, 42, 51, 61, 71, 81, 91, 100]
    assert shown["left_out"] == [88]


def test_runs_of_a_user_function_show_its_configuration_and_metrics() -> None:
    sample = own_results({"width": [8, 16]}, lambda values, repeat: (1.0, {"perplexity": 3.0 + repeat}))
    shown = build_payload(sample.records, Path("nowhere"))
    assert set(shown["config"]["width"]["each"]) == {8, 16}
    assert set(shown["record"]["perplexity"]["each"]) == {3, 4, 5}


def failed(traceback: str = "") -> RunRecord:
    return made(outcome=Outcome.ERROR, traceback=traceback)


def test_a_long_text_keeps_its_beginning_and_more_of_its_end() -> None:
    cut = shorten("b" * 5000 + "e" * 5000, 400)
    assert cut.startswith("b" * 100 + "\n[... 9,600 characters left out")
    assert cut.endswith("e" * 300)
    assert shorten("as it is", 400) == "as it is"


def test_a_long_traceback_is_shortened_and_says_where_the_whole_is(tmp_path: Path) -> None:
    texts = TextTable()
    (log,) = run_logs(failed("x" * 10_000), tmp_path, texts)
    assert (log["is_short"], log["whole"]) == (True, "runs.jsonl, run_id a-0")
    assert len(texts.texts[log["text"]]) < MOST + 100


def test_beyond_the_total_only_the_file_is_named(tmp_path: Path) -> None:
    texts = TextTable(together=10)
    assert texts.add("0123456789") == 0
    (log,) = run_logs(failed("one more"), tmp_path, texts)
    assert log["text"] is None
    assert log["whole"] == "runs.jsonl, run_id a-0"


def test_what_a_run_left_in_its_folder_is_listed_and_its_logs_are_shown(tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "a-0"
    folder.mkdir(parents=True)
    (folder / ".hidden").write_text("of no interest to a reader")
    (folder / "weights.pt").write_bytes(b"\0" * 7)
    (folder / "rank 0.log").write_text("began\n" + "." * 20_000 + "\nended")
    assert run_files(failed(), tmp_path) == [
        {"name": "rank 0.log", "bytes": 20_012, "href": "runs/a-0/rank%200.log"},
        {"name": "weights.pt", "bytes": 7, "href": "runs/a-0/weights.pt"},
    ]
    texts = TextTable()
    (log,) = run_logs(failed(), tmp_path, texts)
    assert (log["title"], log["is_short"], log["whole"]) == ("rank 0.log", True, "runs/a-0/rank 0.log")
    assert texts.texts[0].endswith("ended")


def test_a_run_that_left_nothing_has_no_logs(tmp_path: Path) -> None:
    assert run_logs(failed(), tmp_path, TextTable()) == run_files(failed(), tmp_path) == []
