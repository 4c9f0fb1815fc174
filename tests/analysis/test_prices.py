from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.analysis.prices import with_prices
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.table.build import make_table
from dmls_ray.util.errors import ConfigError
from tests.analysis.samples import MACHINE, results, script_results

H100, A100 = "cuda (NVIDIA H100 80GB HBM3)", "cuda (NVIDIA A100-SXM4-80GB)"
NOISE = (100.0, 110.0, 95.0)


def on(device: str, **machine: Any) -> Results:
    """Runs of one and of two ranks on a device, at 100 images a second or about it."""
    swept = results({"batch_per_rank": 16, "world_size": [1, 2]}, lambda values, repeat: NOISE[repeat])
    for record in swept.records:
        record.device, record.machine = device, {**MACHINE, **machine}
    return swept


def costs(swept: Results, name: str = "cost_per_million_samples") -> list[float | None]:
    """The mean of each trial."""
    return [row.value_of(name) for row in make_table(swept).rows]


def test_what_samples_cost_is_the_price_times_the_reciprocal_of_the_rate_with_its_interval() -> None:
    (row, _) = make_table(with_prices(on("cpu"), ["some cpu=3.6"])).rows
    rate, cost = row.estimates["images_per_s"], row.estimates["cost_per_million_samples"]
    assert cost.n == 3
    assert cost.centre == pytest.approx(1000 / rate.centre)
    assert (cost.low, cost.high) == (pytest.approx(1000 / rate.high), pytest.approx(1000 / rate.low))
    assert row.value_of("run_cost") == pytest.approx(0.001 * row.value_of("total_s"))


def test_a_gpu_has_its_price_for_each_rank_and_a_machine_without_one_for_all_its_ranks() -> None:
    one, two = costs(with_prices(on(H100), ["H100=2.99"]))
    assert two == pytest.approx(2 * one)
    one, two = costs(with_prices(on("cpu"), ["cpu=1"]))
    assert two == pytest.approx(one)
    several = on("cpu", beside=["host-2: Some CPU, 2 cores", "host-3: Some CPU, 2 cores"])
    assert costs(with_prices(several, ["cpu=1"])) == [pytest.approx(3 * one)] * 2


def test_tokens_cost_by_their_own_rate() -> None:
    swept = script_results({"n": [1, 2]}, lambda values, repeat: {"tokens_per_s": 1e6 * values["n"]})
    assert costs(with_prices(swept, ["cpu=3600"]), "cost_per_million_tokens") == [pytest.approx(1), pytest.approx(0.5)]
    assert costs(with_prices(swept, ["cpu=3600"])) == [None, None]


def test_a_run_without_a_price_has_no_cost() -> None:
    mixed = on(H100)
    for record in mixed.records:
        if record.config["world_size"] == 2:
            record.device = A100
    (priced, other) = costs(with_prices(mixed, ["h100=1"]))
    assert priced is not None
    assert other is None
    assert costs(on(H100)) == [None, None]


def test_one_list_of_prices_serves_folders_of_other_machines() -> None:
    prices = ["h100=1", "a100=2"]
    assert costs(with_prices(on(H100), prices)) == costs(with_prices(on(H100), ["h100=1"]))


def test_a_run_on_machines_of_several_types_has_no_cost() -> None:
    swept = on(H100, beside=["host-2: Some CPU, 2 cores, 8 x NVIDIA A100-SXM4-80GB"])
    assert costs(with_prices(swept, ["h100=1"])) == [None, None]


def test_the_column_has_the_interval_and_a_note_says_what_it_is() -> None:
    table = make_table(with_prices(on(H100), ["h100=2.99"]))
    assert "cost/M samples [95%]" in table.frame()
    assert any(note.startswith("cost/M samples:") for note in table.notes)
    assert "cost/M samples [95%]" not in make_table(on(H100)).frame()


@pytest.mark.parametrize(
    ("prices", "message"),
    [
        (["a10=1"], "--price a10=1 names no machine of these runs; they ran on NVIDIA A100-SXM4-80GB."),
        (["a100"], "--price a100 is no NAME=PRICE"),
        (["=1"], "--price =1 is no NAME=PRICE"),
        (["a100=0"], "--price a100=0 is no NAME=PRICE with a price above 0"),
        (["a100=-1"], "--price a100=-1 is no NAME=PRICE"),
        (["a100=nan"], "--price a100=nan is no NAME=PRICE"),
        (["a100=1", "NVIDIA=2"], "--price NVIDIA=2 is a second price of NVIDIA A100-SXM4-80GB"),
        (["a100=1", "a100=1"], "--price a100=1 is a second price of NVIDIA A100-SXM4-80GB"),
    ],
)
def test_a_price_that_cannot_be_used_is_refused_with_the_way_out(prices: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        with_prices(on(A100), prices)
    assert str(caught.value).startswith(message)
