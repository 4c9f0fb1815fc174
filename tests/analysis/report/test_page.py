"""The report as a reader has it, in Chromium without a window; skipped where there is none."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dmls_ray import load
from dmls_ray.analysis.figures import charts
from dmls_ray.analysis.findings.question import SweepQuestion
from dmls_ray.analysis.report.render import render_report
from dmls_ray.analysis.summary import SweepSummary, summarize
from dmls_ray.records.outcome import Outcome
from tests.analysis.samples import results
from tests.conftest import PROJECT, jpeg

sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed (pip install -e '.[dev]')")

PICTURE = jpeg(120, 40)
EVIL = "<script>document.title = 'broken into'</script><b>bold</b>"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="there is no chromium on the PATH to open the report in")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a report with runs that failed, and a run that left a file."""
    folder = tmp_path_factory.mktemp("results")
    sample = results({"batch_per_rank": [8, 16, 32, 64], "world_size": [1, 2]}, _rate)
    sample.folder = folder
    for record in sample.records:
        if record.outcome is Outcome.OOM:
            record.reason, record.traceback = f"no room {EVIL}", f"Traceback {EVIL}"
    sample.records[0].picture = PICTURE
    kept = folder / "runs" / sample.records[0].run_id
    kept.mkdir(parents=True)
    (kept / "rank0.log").write_text(f"hello {EVIL}")
    reading = SweepSummary(sample, SweepQuestion(text=f"What about {EVIL}?", axis="batch_per_rank"))
    return write(render_report(reading, charts(reading.table)), folder)


def write(report: str, folder: Path) -> str:
    """Write a report; returns its address."""
    (folder / "report.html").write_text(report, encoding="utf-8")
    return (folder / "report.html").as_uri()


def _rate(values: dict[str, Any], repeat: int) -> float | None:
    return None if values["batch_per_rank"] == 64 else 100.0 * values["batch_per_rank"] * values["world_size"] + repeat


@pytest.fixture(scope="module")
def opened(report: str) -> Iterator[Reader]:
    """The report in a browser, once for all tests: reading the script that draws takes a second."""
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield Reader(browser.new_page(), report)
        browser.close()


@pytest.fixture
def reader(opened: Reader) -> Iterator[Reader]:
    """The report as it was opened, but for the order of its rows."""
    opened.reset()
    yield opened
    assert opened.trouble == []


class Reader:
    """Opens the report, and holds it to saying nothing on the console and asking for nothing else."""

    def __init__(self, page: Any, address: str) -> None:
        self.trouble: list[str] = []
        self.page = page
        self.page.on("console", lambda message: self.trouble.append(f"{message.type}: {message.text}"))
        self.page.on("pageerror", lambda error: self.trouble.append(str(error)))
        self.page.on("request", lambda asked: asked.url in (address, "data:,") or self.trouble.append(asked.url[:200]))
        self.page.goto(address)
        self.until(lambda: self.page.evaluate("() => 'vegaEmbed' in globalThis"))

    def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for something; the page's policy leaves playwright no way to do that in the page."""
        deadline = time.monotonic() + 20
        while not is_so():
            assert time.monotonic() < deadline, "it did not come about in 20 s"
            self.page.wait_for_timeout(50)

    def reset(self) -> None:
        self.page.set_viewport_size({"width": 1280, "height": 900})
        self.page.emulate_media(media="screen", color_scheme="light")
        self.page.keyboard.press("Escape")
        self.page.evaluate("scrollTo(0, 0)")
        for number in range(2):
            self.page.get_by_label("Filter").nth(number).fill("")
        self.page.select_option("#run-outcome", "")

    def column(self, table: str, head: str) -> list[str]:
        """The texts of a table's column, from top to bottom."""
        heads = [text.strip() for text in self.page.locator(f"{table} thead th").all_text_contents()]
        place = heads.index(head) + 1
        return list(self.page.locator(f"{table} tbody tr td:nth-child({place})").all_text_contents())

    def draw(self, number: int) -> Any:
        """A figure, in view and drawn."""
        figure = self.page.locator(".plot").nth(number)
        figure.scroll_into_view_if_needed()
        figure.locator("svg .role-axis-label text").first.wait_for()
        return figure

    def panel(self) -> str:
        """What the run's panel says; nothing where it is closed."""
        panel = self.page.locator("#run")
        return str(panel.inner_text()) if panel.is_visible() else ""


def points(figure: Any) -> Any:
    """The marks of the points of a figure."""
    return figure.locator(".mark-symbol.role-mark path")


def test_the_table_sorts_by_numbers_both_ways_also_by_keyboard_and_what_is_empty_comes_last(reader: Reader) -> None:
    head = reader.page.locator("#trials th", has_text="images/s [95%]")
    upwards = ["801", "1,601", "1,601", "3,201", "3,201", "6,401"]
    head.locator("button").click()
    assert head.get_attribute("aria-sort") == "ascending"
    texts = reader.column("#trials", "images/s [95%]")
    assert [text.split(" ")[0] for text in texts] == [*upwards, "oom", "oom"]
    head.locator("button").press("Enter")
    assert head.get_attribute("aria-sort") == "descending"
    texts = reader.column("#trials", "images/s [95%]")
    assert [text.split(" ")[0] for text in texts] == [*reversed(upwards), "oom", "oom"]


def test_the_table_filters_by_columns_and_by_words_and_runs_by_outcome(reader: Reader) -> None:
    typed = reader.page.get_by_label("Filter").first
    typed.fill("world_size=2 batch_per_rank>8")
    assert sorted(reader.column("#trials", "batch_per_rank")) == ["16", "32", "64"]
    assert set(reader.column("#trials", "world_size")) == {"2"}
    assert reader.page.locator("#trial-count").inner_text() == "3 of 8 trials"
    typed.fill("oom")
    assert reader.column("#trials", "batch_per_rank") == ["64", "64"]
    typed.fill("nothing like it")
    assert reader.column("#trials", "batch_per_rank") == []
    reader.page.select_option("#run-outcome", "oom")
    assert reader.page.locator("#run-count").inner_text() == "6 of 24 runs"
    assert set(reader.column("#run-list", "outcome")) == {"oom"}


def test_a_click_on_a_point_shows_its_runs(reader: Reader) -> None:
    point = points(reader.draw(0)).nth(1).bounding_box()
    reader.page.mouse.click(point["x"] + point["width"] / 2, point["y"] + point["height"] / 2)
    reader.page.wait_for_selector("#run[open]")
    assert "world_size=1 batch_per_rank=16" in reader.panel()
    assert reader.page.locator("#run-others button").count() == 3
    reader.page.locator("#run-others button").nth(2).click()
    assert "repeat 2 ·" in reader.panel()
    assert "images_per_s\n1,602" in reader.panel()


def test_a_click_on_a_cross_shows_why_there_is_no_value(reader: Reader) -> None:
    cross = points(reader.draw(0)).last.bounding_box()
    reader.page.mouse.click(cross["x"] + cross["width"] / 2, cross["y"] + cross["height"] / 2)
    reader.page.wait_for_selector("#run[open]")
    assert f"no room {EVIL}" in reader.panel()


def test_a_run_opens_and_closes_by_the_keyboard_and_the_focus_comes_back(reader: Reader) -> None:
    reader.page.get_by_label("Filter").first.fill("batch_per_rank=8")
    button = reader.page.locator("#trials tbody button").first
    button.focus()
    reader.page.keyboard.press("Enter")
    assert reader.page.locator("#run-title").evaluate("element => element === document.activeElement")
    assert "batch_per_rank=8" in reader.panel()
    reader.page.keyboard.press("Escape")
    assert reader.panel() == ""
    assert button.evaluate("element => element === document.activeElement")


def test_the_values_of_a_figure_open_the_same_runs_from_the_keyboard(reader: Reader) -> None:
    reader.page.locator("details.values summary").first.press("Enter")
    row = reader.page.locator("details.values tbody tr").nth(1)
    assert row.inner_text().split("\t")[:6] == [
        "world_size 1", "batch_per_rank (samples)", "16", "throughput (images/s)", "1,601", "[1,599, 1,603]",
    ]  # fmt: skip
    row.locator("button").press("Enter")
    assert "world_size=1 batch_per_rank=16" in reader.panel()


def test_the_first_stop_of_the_keyboard_skips_to_the_answer(reader: Reader, tmp_path: Path) -> None:
    page = reader.page.context.browser.new_page()
    plain = SweepSummary(results({"batch_per_rank": [8]}, _rate), SweepQuestion())
    page.goto(write(render_report(plain, []), tmp_path))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the answer"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.close()


def test_text_with_tags_in_it_stays_text(reader: Reader) -> None:
    assert f"What about {EVIL}?" in reader.page.locator(".question").inner_text()
    reader.page.select_option("#run-outcome", "oom")
    reader.page.locator("#run-list tbody button").first.click()
    assert f"Traceback {EVIL}" in reader.page.locator("#run-body pre").first.inner_text()
    assert reader.page.locator("#run-body b, #run-list b").count() == 0
    assert "broken into" not in reader.page.title()


def test_what_a_run_left_is_linked_and_the_end_of_its_log_is_shown(reader: Reader, report: str) -> None:
    reader.page.locator("#run-list tbody button").first.click()
    link = reader.page.locator("#run-body a", has_text="rank0.log")
    address = report.rpartition("/")[0] + "/" + link.get_attribute("href")
    assert Path(address.removeprefix("file://")).read_text() == f"hello {EVIL}"
    reader.page.locator("#run-body summary", has_text="End of rank0.log").click()
    assert reader.page.locator("#run-body details pre").inner_text() == f"hello {EVIL}"


def test_the_page_follows_a_dark_setting_and_its_change(reader: Reader) -> None:
    reader.draw(0)
    for scheme, paper, ink in (("dark", "rgb(20, 23, 28)", "rgb(227, 230, 234)"),
                               ("light", "rgb(255, 255, 255)", "rgb(28, 33, 40)")):  # fmt: skip
        reader.page.emulate_media(color_scheme=scheme)
        assert reader.page.evaluate("getComputedStyle(document.body).backgroundColor") == paper
        colour = "() => getComputedStyle(document.querySelector('.plot .role-axis-label text')).fill"
        reader.until(lambda colour=colour, ink=ink: reader.page.evaluate(colour) == ink)


def test_the_picture_of_a_run_is_shown_with_it_and_runs_without_one_show_none(reader: Reader) -> None:
    reader.page.locator("#run-list tbody button").first.click()
    image = reader.page.locator("#run-body img")
    assert image.get_attribute("src") == f"data:image/jpeg;base64,{PICTURE}"
    assert "picture" in image.get_attribute("alt")
    reader.until(lambda: image.evaluate("image => [image.naturalWidth, image.naturalHeight]") == [120, 40])
    assert "Picture" in reader.panel()
    reader.page.locator("#run-list tbody button").nth(1).evaluate("button => button.click()")
    assert image.count() == 0
    assert "Picture" not in reader.panel()


def test_a_narrow_page_has_no_sideways_scrolling_and_stacks_its_panels(reader: Reader) -> None:
    reader.page.set_viewport_size({"width": 390, "height": 844})
    reader.until(lambda: reader.page.evaluate("document.documentElement.scrollWidth") == 390)
    figure = reader.draw(1)
    reader.until(lambda: figure.locator("svg").first.bounding_box()["width"] < 390)
    above, below = (figure.locator(".role-scope .background").nth(number).bounding_box() for number in range(2))
    assert below["y"] > above["y"] + above["height"] * 0.8


def test_all_figures_are_on_paper_though_they_were_never_in_view(report: str, opened: Reader) -> None:
    page = opened.page.context.browser.new_page(color_scheme="dark")
    page.goto(report)
    opened.until(lambda: page.evaluate("() => 'vegaEmbed' in globalThis"))
    page.emulate_media(media="print", color_scheme="dark")
    # As in a browser, the page is looked at in the task after that of the event.
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    for number in range(2):
        assert page.locator(".plot").nth(number).locator(".role-mark path").count() > 0
    first = "getComputedStyle(document.querySelector('.plot .role-mark path')).fill"
    assert page.evaluate(first) == "rgb(0, 114, 178)", "colours for paper"
    assert page.locator("#trial-filter").is_hidden()
    assert page.pdf(format="A4").startswith(b"%PDF")
    page.close()


@pytest.mark.parametrize("name", ["batch_size", "quantization", "regularization", "launcher", "grayscale"])
def test_the_table_of_a_committed_sweep_fits_a_page_of_1200_pixels(opened: Reader, tmp_path: Path, name: str) -> None:
    reading = summarize(load(PROJECT / "results" / "reference" / name))
    page = opened.page.context.browser.new_page()
    page.set_viewport_size({"width": 1200, "height": 900})
    page.goto(write(render_report(reading, []), tmp_path))
    widths = "table => [table.scrollWidth, table.parentElement.clientWidth]"
    table, box = page.locator("table").first.evaluate(widths)
    page.close()
    assert table <= box
