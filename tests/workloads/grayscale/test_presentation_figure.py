from __future__ import annotations

from dmls_ray.analysis.table.build import make_table
from dmls_ray.workloads.grayscale import presentation_figure as implementations
from tests.analysis.samples import results
from tests.conftest import jpeg
from tests.workloads.grayscale.test_presentation import ALL, sweep, usual


def test_bars_go_from_the_slowest_to_the_fastest_a_series_a_device_with_what_was_scaled() -> None:
    chart = implementations.chart(make_table(sweep(ALL, lambda values, repeat: usual(values, repeat) or 0.01)))
    assert chart is not None
    (panel,) = chart.panels
    assert panel.x.categories == ["python_loops", "numpy", "torchvision", "opencv", "cpp", "cuda"]
    assert panel.y.log
    assert panel.y.label == "a pass over 200 images (ms)"
    processor, gpu = panel.series
    assert (processor.name, gpu.name) == ("on the processor", "on the GPU")
    assert {series.kind for series in panel.series} == {"bar"}
    assert list(processor.x) == ["python_loops", "numpy", "torchvision", "opencv", "cpp"]
    assert (list(gpu.x), list(gpu.y)) == (["cuda"], [0.01])
    assert [round(value or 0, 3) for value in processor.y] == [1010, 10.1, 5.05, 0.404, 0.202]
    assert any("python_loops went over 4 of 200 images" in note for note in chart.notes)


def test_beside_them_stands_what_the_fastest_made() -> None:
    sample = sweep(ALL, usual)
    for record in sample.records:
        record.picture = jpeg(10 if record.config["implementation"] == "cpp" else 20)
    chart = implementations.chart(make_table(sample))
    assert chart is not None
    assert [panel.picture for panel in chart.panels] == ["", jpeg(10)]
    assert chart.panels[1].title == "In colour, and grey by cpp"


def test_sets_of_images_have_a_panel_each_three_at_most() -> None:
    chart = implementations.chart(make_table(sweep({**ALL, "images": [100, 200, 300, 400]}, usual)))
    assert chart is not None
    assert [panel.title for panel in chart.panels] == ["images 100", "images 300", "images 400"]
    assert [panel.y.label for panel in chart.panels] == [f"a pass over {n} images (ms)" for n in (100, 300, 400)]
    assert any("sets of images" in note for note in chart.notes)


def test_where_no_images_were_turned_grey_there_is_none() -> None:
    assert implementations.chart(make_table(results({"batch_per_rank": [16]}, lambda values, repeat: 100.0))) is None
    assert implementations.chart(make_table(sweep(ALL, lambda values, repeat: None))) is None
