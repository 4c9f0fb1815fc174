from __future__ import annotations

import pytest

from dmls_ray import load
from dmls_ray.records.epoch_and_rank import RankRecord
from dmls_ray.records.model import RunRecord
from dmls_ray.records.older import fill_host_memory, fill_older_record
from dmls_ray.records.outcome import Outcome
from tests.conftest import PROJECT


def record_of(device: str, *ranks: tuple[float | None, float | None]) -> RunRecord:
    """A run of which only the resident sets before and at the peak of each rank are known."""
    record = RunRecord(
        run_id="a-0", trial_id="a", repeat=0, order=0, order_seed=0, seed=0, outcome=Outcome.OK, device=device
    )
    record.ranks = [
        RankRecord(rank=rank, start_mem_mib=start, peak_mem_mib=peak) for rank, (start, peak) in enumerate(ranks)
    ]
    record.peak_mem_mib = max((peak for _, peak in ranks if peak is not None), default=None)
    return RunRecord.from_json(record.to_json())


def test_the_memory_of_an_older_run_is_that_of_the_rank_whose_resident_set_grew_most() -> None:
    record = record_of("cpu", (850.0, 900.0), (1000.0, 1010.0))
    fill_host_memory(record)
    assert record.host_mem_mib == 50.0


def test_what_a_record_does_not_have_stays_unknown() -> None:
    for record in (record_of("cpu", (None, 900.0)), record_of("cpu"), record_of("cuda (GPU)", (0.0, 900.0))):
        fill_host_memory(record)
        assert record.host_mem_mib is None


def test_a_run_that_measured_it_keeps_what_it_measured() -> None:
    record = record_of("cpu", (850.0, 900.0))
    record.host_mem_mib = 12.0
    fill_host_memory(record)
    assert record.host_mem_mib == 12.0


def test_ranks_that_cannot_be_read_are_left_to_whoever_uses_them() -> None:
    record = record_of("cpu", (850.0, 900.0))
    broken = RunRecord.from_json(record.to_json().replace(b'"start_mem_mib":850.0', b'"start_mem_mib":"much"'))
    fill_host_memory(broken)
    assert broken.host_mem_mib is None


def test_the_order_of_memory_in_quantization_is_that_of_the_runs_and_not_of_their_processes() -> None:
    grown: dict[str, list[float]] = {}
    for record in load(PROJECT / "results" / "reference" / "quantization").records:
        assert record.host_mem_mib is not None
        grown.setdefault(record.config["quantization"], []).append(record.host_mem_mib)
    middle = {name: sorted(values)[1] for name, values in grown.items()}
    assert middle["off"] < middle["qat"]


def test_the_communication_of_an_older_run_is_that_of_the_rank_that_waited_least() -> None:
    record = record_of("cpu")
    record.ranks = [RankRecord(rank=rank, exposed_comm_ms=exposed) for rank, exposed in enumerate((9.08, 1.44))]
    record.exposed_comm_ms = 9.08
    for read in (record, RunRecord.from_json(record.to_json())):
        fill_older_record(read)
        assert read.exposed_comm_ms == 1.44
        assert read.straggler_wait_ms == pytest.approx(7.64)
        read.exposed_comm_ms = 1.0
        fill_older_record(read)
        assert read.exposed_comm_ms == 1.0, "what is not older stays"
