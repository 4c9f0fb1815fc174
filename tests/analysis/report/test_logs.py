from __future__ import annotations

from pathlib import Path

from dmls_ray.analysis.report.logs import MOST, TextTable, run_files, run_logs, shorten
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from tests.records.test_model import record


def failed(traceback: str = "") -> RunRecord:
    return record(outcome=Outcome.ERROR, traceback=traceback)


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
