from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dmls_ray.analysis.report import content
from dmls_ray.analysis.report.content import TRACEBACK, build_payload, run_files, shorten
from dmls_ray.analysis.table.build import make_table
from dmls_ray.records.model import EpochRecord
from tests.analysis.samples import results, set_value
from tests.conftest import jpeg
from tests.records.test_model import record as made


def first_run(**changes: Any) -> dict[str, Any]:
    sample = results({"batch_per_rank": [16, 32]}, lambda values, repeat: 100.0 + repeat, repeats=2)
    for name, value in changes.items():
        set_value(sample.records[0], name, value)
    run: dict[str, Any] = build_payload(sample.records, Path("nowhere"))["runs"][0]
    return run


def test_what_a_run_does_not_say_is_left_out() -> None:
    assert "int8_test_accuracy" not in first_run()["record"]
    assert first_run(int8_test_accuracy=0.5)["record"]["int8_test_accuracy"] == 0.5
    assert first_run(images_per_s=float("nan"))["record"].keys() == first_run(images_per_s=None)["record"].keys()


def test_a_run_that_a_search_stopped_is_not_ok_on_the_page() -> None:
    assert first_run(stopped_epoch=1)["record"]["outcome"] == "stopped"


def test_a_picture_is_there_once_and_those_beyond_the_total_are_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = results({"batch_per_rank": [16, 32]}, lambda values, repeat: 100.0, repeats=2)
    one, other = jpeg(8), jpeg(16)
    for record, picture in zip(sample.records, ("", one, other, one), strict=True):
        record.picture = picture
    shown = build_payload(sample.records, Path("nowhere"))
    assert ([run["picture"] for run in shown["runs"]], shown["pictures"]) == ([None, 0, 1, 0], [one, other])
    assert (json.dumps(shown).count(one), json.dumps(shown).count(other)) == (1, 1)
    monkeypatch.setattr(content, "PICTURES", len(one) + 10)
    shown = build_payload(sample.records, Path("nowhere"))
    assert ([run["picture"] for run in shown["runs"]], shown["pictures"]) == ([None, 0, -1, 0], [one])


def test_epochs_and_ranks_are_there_with_their_values() -> None:
    sample = results({"batch_per_rank": 16, "world_size": 2}, lambda values, repeat: 100.0, repeats=1)
    sample.records[0].ranks[1].utilization = {"at_s": [0.0, 0.5], "cpu_percent": [10.0, 30.0]}
    (run,) = build_payload(sample.records, Path("nowhere"))["runs"]
    assert [epoch["epoch"] for epoch in run["epochs"]] == [1, 2]
    assert [rank["rank"] for rank in run["ranks"]] == [0, 1]
    assert [[epoch["train_loss"] for epoch in epochs] for epochs in run["rank_epochs"]] == [[0.5], [0.5]]
    assert run["ranks"][1]["mean cpu_percent"] == 20


def test_long_runs_show_every_kth_epoch_and_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    sample = results({"batch_per_rank": 16}, lambda values, repeat: 100.0, repeats=1)
    (record,) = sample.records
    record.epochs = [EpochRecord(epoch=number) for number in range(1, 101)]
    monkeypatch.setattr(content, "EPOCH_ROWS", 20)
    (run,) = build_payload(sample.records, Path("nowhere"))["runs"]
    assert [epoch["epoch"] for epoch in run["epochs"]] == [*range(10, 101, 10)]
    assert run["left_out"] == 90


def test_a_long_text_keeps_its_beginning_and_more_of_its_end() -> None:
    cut = shorten("b" * 5000 + "e" * 5000, 400)
    assert cut.startswith("b" * 100 + "\n[... 9,600 characters left out")
    assert cut.endswith("e" * 300)
    assert shorten("as it is", 400) == "as it is"
    assert len(first_run(traceback="x" * 10_000)["traceback"]) < TRACEBACK + 100


def test_what_a_run_left_in_its_folder_is_listed(tmp_path: Path) -> None:
    assert run_files(made(), tmp_path) == []
    folder = tmp_path / "runs" / "a-0"
    folder.mkdir(parents=True)
    (folder / ".hidden").write_text("of no interest to a reader")
    (folder / "weights.pt").write_bytes(b"\0" * 7)
    (folder / "rank 0.log").write_text("began")
    assert run_files(made(), tmp_path) == [
        {"name": "rank 0.log", "bytes": 5, "href": "runs/a-0/rank%200.log"},
        {"name": "weights.pt", "bytes": 7, "href": "runs/a-0/weights.pt"},
    ]


def test_the_ends_of_logs_are_shown_up_to_their_total(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "runs" / "a-0"
    folder.mkdir(parents=True)
    for name, text in {"a.log": "began", "b.txt": "x" * TRACEBACK + "ended", "c.pt": "weights"}.items():
        (folder / name).write_text(text)

    def ends() -> list[Any]:
        return [file.get("end") for file in build_payload([made()], tmp_path)["runs"][0]["files"]]

    assert ends() == ["began", "x" * (TRACEBACK - 5) + "ended", None]
    monkeypatch.setattr(content, "LOGS", 5)
    assert ends() == ["began", None, None]


AXES = {"batch_per_rank": [16, 32]}


def rate(values: dict[str, Any], repeat: int) -> float | None:
    return None if (values["batch_per_rank"], repeat) == (32, 2) else 100.0


def test_how_it_was_measured_names_order_and_seeds() -> None:
    sample = results(AXES, rate)
    assert content.run_counts(sample) == "6 runs: 5 ok, 1 oom"
    text = " ".join(content.methodology(sample, make_table(sample)))
    assert "Blocks: 3, with one repeat of every trial each, shuffled by seed 0" in text
    assert "Mean of n repeats and its 95% interval" in text


def test_a_search_is_not_said_to_have_run_alone() -> None:
    sample = results(AXES, rate)
    for record in sample.records:
        record.mode = "search"
    text = " ".join(content.methodology(sample, make_table(sample)))
    assert "share the machine" in text
    assert "to itself" not in text


def test_each_machine_is_described_once_with_its_versions() -> None:
    sample = results(AXES, rate)
    sample.records[0].machine = {"host": "other", "gpus": ["H200", "H200"], "memory_mib": 131072}
    other, lab = content.environments(sample.records)
    assert (other["runs"], other["machine"]) == (1, {"host": "other", "gpus": "2 x H200", "memory_mib": "131,072"})
    assert (lab["runs"], lab["versions"]["torch"], lab["code"]) == (5, "2", {})


def test_the_commands_are_those_that_a_shell_takes() -> None:
    words, git = ["batch_size.py", "--out", "my results"], {"commit": "abc", "dirty": True}
    session = {"started_at": "2026-01-02", "command": words, "git": git}
    lines = "git checkout abc  # the files had changes that this commit lacks\npython batch_size.py --out 'my results'"
    found = content.commands([session, {"command": ["dmls-ray", "sweep"]}, {"command": []}, {}])
    assert found == [("2026-01-02", lines), ("", "dmls-ray sweep")]
