"""What a sweep over implementations that turn images grey says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from dmls_ray.analysis.advise.rank import advise
from dmls_ray.analysis.figures.style import LIGHT, Styles
from dmls_ray.analysis.figures.vega import vega_lite
from dmls_ray.analysis.findings.answer import Answer
from dmls_ray.analysis.findings.question import answer_on_axis
from dmls_ray.analysis.prices import with_prices
from dmls_ray.analysis.results import Results, load
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.named_layouts import render
from dmls_ray.analysis.words_on_pairs import pair_label
from dmls_ray.analysis.workloads.grayscale import chart
from dmls_ray.execution.planning import make_plan
from dmls_ray.records.aggregate import take_results
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import RankResult, RunResult
from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.grayscale.workload import GrayscaleWorkload
from tests.analysis.samples import MACHINE, results, row_of
from tests.conftest import PROJECT, jpeg

MS = {"python_loops": 1000.0, "numpy": 10.0, "torchvision": 5.0, "opencv": 0.4, "cpp": 0.2}


def sweep(
    axes: dict[str, Any], ms: Callable[[dict[str, Any], int], float | None], *, repeats: int = 3, **measures: Any
) -> Results:
    """A record a run, whose passes took so many milliseconds; None: skipped."""
    records = []
    for run in make_plan(axes, repeats=repeats, schema=GrayscaleWorkload().schema()).runs:
        values = dict(run.values)
        record = RunRecord(
            run_id=run.run_id, trial_id=run.trial_id, repeat=run.repeat, order=run.order, order_seed=0, seed=0,
            outcome=Outcome.OK, config=values, machine=MACHINE, started_at="2026-01-02T03:04:05",
        )  # fmt: skip
        taken = ms(values, run.repeat)
        if taken is None:
            record.outcome, record.reason = Outcome.SKIPPED, "UnavailableError: no nvcc"
        else:
            images = values["images"]
            few = values["implementation"] == "python_loops" and not values["full"]
            returned = {
                "images_per_s": images / taken * 1e3, "pass_ms": taken, "gb_per_s": images / taken,
                "timed_images": min(4, images) if few else images, "levels_apart": 1, **measures,
            }  # fmt: skip
            run = RunResult(device=values["device"], reported=returned)
            take_results(record, [RankResult(rank=0, metrics={"total_s": 1.0}, run=run)])
        records.append(record)
    return Results("results/grayscale", records)


def usual(values: dict[str, Any], repeat: int) -> float | None:
    known = MS.get(values["implementation"])
    return None if known is None else known * (1 + 0.01 * repeat)


ALL = {"implementation": [*MS, "cuda"]}


def test_the_table_goes_from_the_slowest_to_the_fastest_against_the_loops() -> None:
    table = make_table(sweep(ALL, usual))
    frame = table.frame()
    assert frame["implementation"].tolist() == ["python_loops", "numpy", "torchvision", "opencv", "cpp", "cuda"]
    assert list(frame.columns) == [
        "implementation", "device", "ms [95%]", "speed-up [95%]", "GB/s", "levels apart", "n", "outcome"
    ]  # fmt: skip
    assert frame["ms [95%]"].tolist()[0] == "1,010 [985, 1,035]"
    assert frame["speed-up [95%]"].tolist() == [
        "", "100.00 [100.00, 100.00]", "200.0 [200.0, 200.0]", "2,500 [2,500, 2,500]", "5,000 [5,000, 5,000]", ""
    ]  # fmt: skip
    assert frame["ms [95%]"].tolist()[-1] == frame["outcome"].tolist()[-1] == "skipped"
    assert table.numbers()["pass_ms"].tolist()[4] == pytest.approx(0.202, rel=1e-4)


def test_without_the_loops_there_is_no_speed_up_to_speak_of() -> None:
    table = make_table(sweep({"implementation": ["numpy", "cpp"]}, usual))
    assert not any("speed-up" in head for head in table.frame())
    assert not any("Speed-up" in note for note in table.notes)


def answer(results: Results) -> Answer:
    return answer_on_axis(make_table(results), "implementation")


def test_the_fastest_leads() -> None:
    found = answer(sweep(ALL, usual))
    assert (found.headline, pair_label(found.lead[0].pair)) == ("pair", "implementation cpp vs python_loops")
    assert found.lead[0].contrast.centre == pytest.approx(5000)


def test_the_configured_duration_of_a_run_is_no_cost() -> None:
    results = sweep(ALL, usual)
    for record in results.records:
        if record.metrics:
            record.metrics["host_mem_mib"] = 1000.0 if record.config["implementation"] == "cpp" else 500.0
            record.metrics["total_s"] = 1.0 if record.config["implementation"] == "cpp" else 2.0
    advice = advise(results, "throughput")
    assert "host MiB" in advice.frame()
    assert "s/run" not in advice.frame()
    assert not advice.front
    with pytest.raises(ConfigError, match="for as long as --timed-s says; give --for throughput"):
        advise(with_prices(results, ["cpu=1"]), "cost")


def test_of_several_sets_of_images_the_first_leads() -> None:
    results = sweep({**ALL, "images": [200, 4000]}, usual)
    found = answer(results)
    assert row_of(found.lead) == ("implementation cpp vs python_loops", "images 200")
    assert [row.factors["images"] for row in make_table(results).rows] == [200] * 6 + [4000] * 6


def test_notes_say_what_was_scaled() -> None:
    note = "python_loops converted 4 of 200 images, and its time is scaled to all of them; --full converts all."
    assert note in make_table(sweep(ALL, usual)).notes
    large = make_table(sweep({**ALL, "images": 4000, "full": True}, usual, of_copy=0.9, copy_gb_per_s=40.0))
    assert not any("scaled" in note for note in large.notes)
    assert large.frame()["of a copy [95%]"].tolist()[0] == "0.90 [0.90, 0.90]"


def test_the_report_itself_says_so_much() -> None:
    layout = render(load(PROJECT / "results" / "published" / "B_images"), "implementation")
    assert layout.frame.to_dict("list") == {
        "implementation": ["python_loops", "cuda"], "device": ["cpu", "cuda"], "ms": ["205,160", "180.1"],
        "speed-up": ["", "1,139"], "n": ["1", "1"], "outcome": ["ok", "ok"],
    }  # fmt: skip
    assert layout.notes[1:] == [
        "Values; measured on hardware that is not reported.",
        "Speed-up is against python_loops.",
    ]


@pytest.mark.parametrize("changes", [{"images": "many"}, {"images": 0}, {"images": True}, {"image_size": [1]}])
def test_recorded_values_of_another_type_are_refused(changes: dict[str, Any]) -> None:
    record = sweep(ALL, usual).records[0]
    with pytest.raises(ValueError, match=f"{next(iter(changes))} is "):
        GrayscaleWorkload().check_recorded(record.config | changes)


@pytest.mark.parametrize("name", ["pass_ms", "timed_images", "set_mib", "cache_mib", "levels_apart", "own_output"])
@pytest.mark.parametrize("value", ["text", None, [1], float("inf"), 0, -1, 1.7e308, 5e-324, 2**63 - 1])
def test_a_measure_that_is_none_breaks_nothing(name: str, value: Any) -> None:
    table = make_table(sweep(ALL, usual, **{name: value}))
    assert answer_on_axis(table, "implementation").headline
    assert len(table.frame()) == len(table.numbers()) == 6
    figure = chart(table)
    assert figure is None or vega_lite(figure, Styles([figure]), LIGHT)


def test_bars_go_from_the_slowest_to_the_fastest_a_series_a_device_with_what_was_scaled() -> None:
    figure = chart(make_table(sweep(ALL, lambda values, repeat: usual(values, repeat) or 0.01)))
    (panel,) = figure.panels
    assert panel.x.categories == ["python_loops", "numpy", "torchvision", "opencv", "cpp", "cuda"]
    assert panel.y.log
    assert panel.y.label == "a pass over 200 images (ms)"
    processor, gpu = panel.series
    assert (processor.name, gpu.name) == ("on the processor", "on the GPU")
    assert {series.kind for series in panel.series} == {"bar"}
    assert [point.x for point in processor.points] == ["python_loops", "numpy", "torchvision", "opencv", "cpp"]
    assert [(point.x, point.y) for point in gpu.points] == [("cuda", 0.01)]
    assert [round(point.y or 0, 3) for point in processor.points] == [1009.967, 10.1, 5.05, 0.404, 0.202]
    assert any("python_loops converted 4 of 200 images" in note for note in figure.notes)


def test_the_result_of_the_fastest_stands_next_to_them() -> None:
    sample = sweep(ALL, usual)
    for record in sample.records:
        record.picture = jpeg(10 if record.config["implementation"] == "cpp" else 20)
    figure = chart(make_table(sample))
    assert [panel.picture for panel in figure.panels] == ["", jpeg(10)]
    assert figure.panels[1].title == "In colour, and grey by cpp"


def test_sets_of_images_have_a_panel_each_three_at_most() -> None:
    figure = chart(make_table(sweep({**ALL, "images": [100, 200, 300, 400]}, usual)))
    assert [panel.title for panel in figure.panels] == ["images 100", "images 300", "images 400"]
    assert [panel.y.label for panel in figure.panels] == [f"a pass over {n} images (ms)" for n in (100, 300, 400)]
    assert any("sets of images" in note for note in figure.notes)


def test_where_no_images_were_turned_grey_there_is_none() -> None:
    assert chart(make_table(results({"batch_per_rank": [16]}, lambda values, repeat: 100.0))) is None
    assert chart(make_table(sweep(ALL, lambda values, repeat: None))) is None
