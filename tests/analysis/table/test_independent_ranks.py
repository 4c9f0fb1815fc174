from __future__ import annotations

from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.independent_ranks import describe_independent_ranks
from tests.analysis.samples import results


def notes(causes: dict[int, str], *, repeats: int = 1) -> list[str]:
    swept = results({"batch_per_rank": [16, 32, 64], "world_size": [2]}, lambda *_: 100.0, repeats=repeats)
    for record in swept.records:
        record.independent_ranks = causes.get(record.config["batch_per_rank"], "")
    return describe_independent_ranks(make_table(swept).rows)


def test_ranks_that_trained_one_model_have_no_line() -> None:
    assert notes({}) == []


def test_each_cause_has_a_line_with_its_trials() -> None:
    assert notes({16: "no collectives", 32: "other parameters", 64: "no collectives; other parameters"}, repeats=2) == [
        "The ranks of world_size=2 batch_per_rank=16; world_size=2 batch_per_rank=64 did not train one model together: "
        "no collectives.",
        "The ranks of world_size=2 batch_per_rank=32; world_size=2 batch_per_rank=64 did not train one model together: "
        "other parameters.",
    ]


def test_a_cause_of_several_runs_has_the_range_of_its_numbers() -> None:
    (line,) = notes({16: "no one in 1,024 steps, 3e-05 of it", 32: "no one in 512 steps, 0.37 of it"})
    assert line.endswith(": no one in 512 to 1,024 steps, 3e-05 to 0.37 of it.")
