from __future__ import annotations

from typing import Any

from dmls_ray.analysis.findings.search import answer_of_search
from dmls_ray.analysis.table.build import make_table
from tests.analysis.samples import own_results


def test_the_best_of_those_that_trained_to_the_end_leads() -> None:
    def report(values: dict[str, Any], repeat: int) -> tuple[float, dict[str, Any]]:
        return 1.0, {"bits": abs(values["lr"] - 0.3) + 1}

    runs = own_results({"lr": [0.1, 0.3, 0.6]}, report, repeats=1, mode="search")
    next(run for run in runs.records if run.config["lr"] == 0.1).metrics["stopped_epoch"] = 1
    found = answer_of_search(make_table(runs), "bits", minimizes=True)
    assert (found.headline, found.facts["count"]) == ("best_found", 2)
    assert [(item[0].pair.label, item[0].contrast.centre) for item in found.comparisons] == [
        ("lr=0.3", 1.0),
        ("lr=0.6", 1.3),
    ]
    assert found.caveats["stopped_early"]["count"] == 1
    most = answer_of_search(make_table(runs), "bits", minimizes=False)
    assert most.lead[0].pair.label == "lr=0.6"
    assert answer_of_search(make_table(runs), "absent", minimizes=False).headline == "not_reported"
