"""The smallest batch that is as fast as the fastest one."""

from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.analysis.findings.knee import knees_of
from dmls_ray.analysis.table.build import make_table
from dmls_ray.config.options import Until
from tests.analysis.samples import results

NOISE = (1.001, 0.999, 1.0, 1.0005, 0.9995)


@pytest.mark.parametrize(
    ("rates", "spread", "smallest", "undecided"),
    [
        ({16: 100, 32: 190, 64: 199, 128: 200}, 1, 64, []),
        ({16: 100, 32: 190, 64: 200, 128: 150}, 1, 64, []),  # the fastest is not the largest
        ({16: 100, 32: 150, 64: 190, 128: 200}, 1, 128, []),
        ({16: 100, 32: 199, 64: 200}, 60, 64, [32]),  # the noise is too large to say
    ],
)
def test_it_is_surely_within_two_percent(
    rates: dict[int, float], spread: float, smallest: int, undecided: list[int]
) -> None:
    def rate(values: dict[str, Any], repeat: int) -> float:
        shift = repeat if values["batch_per_rank"] == 32 else 0
        return rates[values["batch_per_rank"]] * (1 + spread * (NOISE[(repeat + shift) % 5] - 1))

    table = make_table(results({"batch_per_rank": [*rates]}, rate, repeats=5))
    (knee,) = knees_of(table.rows, "batch_per_rank", table.fixed_batch_field, Until())
    assert knee.smallest.records[0].config["batch_per_rank"] == smallest
    assert [trial.records[0].config["batch_per_rank"] for trial in knee.undecided] == undecided
    assert (knee.effect is None) == (knee.smallest is knee.best)


def test_each_group_has_its_own() -> None:
    def rate(values: dict[str, Any], repeat: int) -> float:
        faster = values["batch_per_rank"] if values["world_size"] == 1 else 1
        return 100.0 * faster * NOISE[repeat]

    table = make_table(results({"batch_per_rank": [1, 2], "world_size": [1, 2]}, rate, repeats=5))
    knees = knees_of(table.rows, "batch_per_rank", table.fixed_batch_field, Until())
    assert [knee.smallest.records[0].config["batch_per_rank"] for knee in knees] == [2, 1]
