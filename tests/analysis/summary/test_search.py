from __future__ import annotations

from typing import Any

from dmls_ray.analysis.summary.search import answer_of_search
from dmls_ray.analysis.table.build import make_table
from tests.analysis.samples import own_results


def test_a_search_says_of_how_many_its_best_is_and_that_the_best_of_many_flatters() -> None:
    def report(values: dict[str, Any], repeat: int) -> tuple[float, dict[str, Any]]:
        return 1.0, {"bits": abs(values["lr"] - 0.3) + 1}

    runs = own_results({"lr": [0.1, 0.3, 0.6]}, report, repeats=1, mode="search")
    next(run for run in runs.records if run.config["lr"] == 0.1).metrics["stopped_epoch"] = 1
    found = answer_of_search(make_table(runs), "bits", minimizes=True)
    assert found.text.splitlines()[:3] == [
        "The least bits of 2 configurations that trained to the end is 1, with lr=0.3.",
        "next: 1.300, with lr=0.6",
        "stopped early: 1 run",
    ]
    assert "looks better than it is" in found.findings[-1].text
    assert answer_of_search(make_table(runs), "bits", minimizes=False).headline.startswith(
        "The highest bits of 2 configurations that trained to the end is 1.3"
    )
    assert "nothing can be said" in answer_of_search(make_table(runs), "absent", minimizes=False).headline


def test_configurations_of_a_search_that_are_equally_good_are_named_together() -> None:
    runs = own_results(
        {"lr": [0.1, 0.3, 0.6]},
        lambda values, repeat: (1.0, {"bits": min(values["lr"], 0.3)}),
        repeats=1,
        mode="search",
    )
    found = answer_of_search(make_table(runs), "bits", minimizes=False)
    assert found.headline == "The highest bits of 3 configurations is 0.3000, with lr=0.3, and with lr=0.6."
    assert found.findings[0].text == "0.1000, with lr=0.1"
