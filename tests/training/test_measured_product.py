"""How fast a device computes a product, and that it is measured once."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
import torch

from dmls_ray.training.measured_product import ProductRate, product_rate, rate_path

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DMLS_RAY_CACHE", str(tmp_path))


def test_a_product_is_measured_once_for_each_format_and_number_of_threads() -> None:
    first = product_rate(CPU, torch.float32)
    assert first.flop_per_s > 1e8
    assert 0 <= first.spread < 1
    assert product_rate(CPU, torch.float32) == first
    paths = {rate_path(CPU, torch.float32), rate_path(CPU, torch.bfloat16)}
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        paths.add(rate_path(CPU, torch.float32))
    finally:
        torch.set_num_threads(threads)
    assert len(paths) == 3


def test_a_file_that_cannot_be_read_is_measured_again() -> None:
    path = rate_path(CPU, torch.float32)
    path.parent.mkdir(parents=True)
    path.write_text("{")
    assert product_rate(CPU, torch.float32).flop_per_s > 1e8


@pytest.mark.parametrize(("kept", "stays"), [(1.0, False), (1e30, True)])
def test_of_two_measurements_the_faster_one_is_kept(kept: float, stays: bool) -> None:
    path = rate_path(CPU, torch.float32)
    path.parent.mkdir(parents=True)
    path.write_bytes(msgspec.json.encode(ProductRate(flop_per_s=kept, spread=0.0)))
    assert (product_rate(CPU, torch.float32, again=True).flop_per_s == kept) == stays
    assert (product_rate(CPU, torch.float32).flop_per_s == kept) == stays


def test_the_random_numbers_of_a_program_stay_as_they_are() -> None:
    before = torch.random.get_rng_state()
    product_rate(CPU, torch.float32)
    assert torch.equal(torch.random.get_rng_state(), before)
