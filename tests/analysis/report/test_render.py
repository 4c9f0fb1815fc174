from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
import random
import re
from pathlib import Path
from typing import Any

import pytest

from dmls_ray.analysis.figures import charts
from dmls_ray.analysis.figures.chart import Chart, Panel, PlotAxis, PlotSeries, Point
from dmls_ray.analysis.findings.question import SweepQuestion
from dmls_ray.analysis.report import render
from dmls_ray.analysis.report.render import pack, render_report, to_json
from dmls_ray.analysis.summary import SweepSummary, summarize
from dmls_ray.records.model import EpochRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.util.text import utf8_safe
from tests.analysis.samples import results

NOISE = ("train_loss", "train_accuracy", "test_loss", "test_accuracy", "train_s", "warmup_s", "eval_s")
EVIL = "<script>alert(1)</script>"
AXES = {"batch_per_rank": [16, 32], "world_size": [1, 2]}


def reading() -> SweepSummary:
    return summarize(results(AXES, lambda values, repeat: 100.0 * values["batch_per_rank"] + repeat))


def hidden(page: str, element: str) -> str:
    found = re.search(rf'<script id="{element}" type="text/plain">([^<]*)</script>', page)
    return found[1]


def unpack(text: str) -> bytes:
    """Decompress what `pack` compressed, as the page does."""
    return gzip.decompress(base64.b64decode(text))


def data_of(page: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(unpack(hidden(page, "data")))
    return data


def test_the_page_has_question_answer_table_and_method_even_without_scripts() -> None:
    sample = reading()
    question = SweepQuestion(text="What does it do?\n\nIt is\nasked here.", axis="batch_per_rank")
    asked = SweepSummary(sample.results, question)
    page = render_report(asked, [])
    assert "What does it do?</p>" in page
    assert "It is\nasked here.</p>" in page
    assert asked.answer.headline in page
    assert page.count('data-trial="') == 4
    assert "1,601 [1,599, 1,603]" in page
    assert "Blocks: 3, with one repeat of every trial each" in page
    assert "What does a change of world_size, batch_per_rank, global_batch do to training?" in render_report(sample, [])


def test_only_the_scripts_of_the_report_may_run_and_nothing_is_fetched() -> None:
    sample = reading()
    page = render_report(sample, charts(sample.table))
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    policy = policy.replace("&#39;", "'")
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    for text in (script.encode(), unpack(hidden(page, "vega")), style.encode()):
        assert f"'sha256-{base64.b64encode(hashlib.sha256(text).digest()).decode()}'" in policy
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    addresses = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert all(address.startswith("#") or address == "data:," for address in addresses), addresses


def test_names_that_look_like_tags_stay_text_everywhere(tmp_path: Path) -> None:
    evil = f"{EVIL}</style><!--"
    sample = results({"model": [evil, "b:c"], "batch_per_rank": 16}, lambda values, repeat: 100.0)
    for record in sample.records:
        record.machine, record.versions = {"cpu": evil, evil: "x"}, {"torch": evil}
    sample.folder = tmp_path
    session = {"command": [evil], "name": evil, "started_at": evil, "git": {"commit": evil}, "question": evil}
    (tmp_path / "sweep.json").write_text(json.dumps({"sessions": [session]}))
    series = PlotSeries(evil, [Point(evil, 1.0, text=evil)])
    panel = Panel(x=PlotAxis(evil, categories=[evil]), y=PlotAxis(evil), series=[series], title=evil)
    page = render_report(summarize(sample), [Chart(name="c", title=evil, panels=[panel], notes=[evil])])
    assert evil not in page
    assert "<script>alert" not in page
    assert page.count("<script") == 3
    assert page.count("&lt;script&gt;alert(1)") > 10


def test_the_report_has_the_command_that_makes_it_again(tmp_path: Path) -> None:
    sample = reading().results
    sample.folder = tmp_path
    session = {"command": ["batch_size.py", "--repeats", "3"], "name": "batch_size", "git": {"commit": "abc"}}
    (tmp_path / "sweep.json").write_text(json.dumps({"sessions": [session]}))
    page = render_report(summarize(sample), [])
    assert "git checkout abc\npython batch_size.py --repeats 3</code>" in page
    assert "<h1>batch_size</h1>" in page


def test_equal_runs_make_equal_reports() -> None:
    assert render_report(reading(), []) == render_report(reading(), [])


def test_a_point_knows_its_runs_by_the_names_that_the_page_has() -> None:
    sample = reading()
    data = data_of(render_report(sample, charts(sample.table)))
    rows = [row for rows in data["charts"][0]["spec"]["datasets"].values() for row in rows]
    assert {name for row in rows for name in row["runs"]} == {run["run_id"] for run in data["runs"]}


def test_more_runs_than_a_page_holds_are_said_to_be_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(render, "MOST_RUNS", 3)
    page = render_report(reading(), [])
    assert "The first 3 runs are here; 9 more are in runs.jsonl" in page
    assert "1 more rows are in table.md" in page
    assert len(data_of(page)["runs"]) == 3


@pytest.mark.slow
def test_two_thousand_runs_of_noise_stay_under_eight_megabytes() -> None:
    # Numbers and texts without any order are the worst that there is to pack.
    draw = random.Random(1)

    def epochs() -> list[EpochRecord]:
        values = [{name: draw.random() for name in NOISE} for _ in range(20)]
        return [EpochRecord(epoch=number, metrics=metrics) for number, metrics in enumerate(values, start=1)]

    axes = {"batch_per_rank": [8, 16, 32, 64], "lr": [draw.random() for _ in range(167)], "world_size": 2}
    sample = results(axes, lambda values, repeat: draw.random())
    for number, record in enumerate(sample.records):
        record.epochs = epochs()
        record.metrics |= {name: draw.random() for name in (*NOISE, "setup_s", "step_ms_p50", "step_ms_p95", "comm_ms")}
        for rank in record.ranks:
            rank.epochs, rank.metrics = epochs(), {name: 100 * value for name, value in record.metrics.items()}
        if number % 10 == 9:
            record.outcome, record.reason = Outcome.ERROR, f"RuntimeError {number}"
            record.traceback = "".join(map(chr, draw.choices(range(32, 127), k=9000)))
    sweep_summary = summarize(sample)
    page = render_report(sweep_summary, charts(sweep_summary.table))
    assert len(page.encode()) < 8e6
    assert len(data_of(page)["runs"]) == 2004
    assert page.count('data-trial="') == len(sweep_summary.table.rows) == 668


def test_packed_text_is_unpacked_unchanged_and_has_no_character_that_html_reads() -> None:
    text = '<script>alert("ä")</script> & \u2028'.encode()
    assert unpack(pack(text)) == text
    assert not set("<>&\"'") & set(pack(text))


def test_json_has_no_number_that_is_none_and_takes_what_files_are_called() -> None:
    assert json.loads(to_json({"a": math.nan, 1: [math.inf, 2.5]})) == {"a": None, "1": [None, 2.5]}
    assert json.loads(to_json({"name": ["\udce4", 2**70]})) == {"name": ["?", 2**70]}
    assert utf8_safe("a\udce4ä") == "a\\udce4ä"
