"""The ring all-reduce's model: formulas worked out by hand, and sweeps whose truth is known."""

from __future__ import annotations

import math
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

from benchmarks import cluster_model, ring_model
from benchmarks.cluster_runs import extrapolate, predict, read_lines
from dmls_ray.records.aggregate import take_epochs
from dmls_ray.records.epoch_and_rank import STEP_QUANTILES, EpochRecord, RankRecord
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.storage.folder import Store
from dmls_ray.workloads.classification.config import TrialConfig

PARAMETERS = 250_000
"""A megabyte of gradients, which is one bucket: the ring alone, and nothing of it hidden."""
STEP_MS, BACKWARD_MS = 40.0, 20.0


def inputs(**changes: float) -> ring_model.Inputs:
    usual = {"step_ms": 100.0, "exposed_ms": 0.0, "backward_ms": 60.0, "round_trip_ms": 0.0, "mbit_per_s": 8.0}
    return ring_model.Inputs(**(usual | changes))


def ring_ms(ranks: int, round_trip_ms: float, mbit_per_s: float) -> float:
    """A megabyte, calculated in another way: 2 (N - 1) messages of 8/N Mbit, each half a round trip later."""
    return sum(round_trip_ms / 2 + 8 / ranks / mbit_per_s * 1000 for _ in range(2 * (ranks - 1)))


def run_of(machines: int, each: int, repeat: int, step_ms: float, exposed_ms: float = 0.0, **changes: Any) -> RunRecord:
    """A run whose every step took so long."""
    link = changes.pop("link", None)
    if machines * each == 1:
        changes = {}  # which are DDP's options here
    config = TrialConfig(batch_per_rank=32, machines=machines, ranks_per_machine=each, **changes)
    record = RunRecord(
        run_id=f"{config.hash}-{repeat}", trial_id=config.hash, repeat=repeat, order=0, order_seed=0, seed=repeat,
        outcome=Outcome.OK, config=config.canonical(), metrics={"parameters": PARAMETERS},
    )  # fmt: skip
    images = 32 * machines * each * 100
    take_epochs(record, [EpochRecord(epoch=1, metrics={"train_s": step_ms / 10, "images": images})])
    timers: dict[str, float] = {}
    if machines * each > 1:
        timers = {"forward_ms": 10.0, "backward_ms": BACKWARD_MS, "exposed_comm_ms": exposed_ms}
    quantiles = [step_ms] * (len(STEP_QUANTILES) - 2) + [1.5 * step_ms, 2 * step_ms]
    record.ranks = [
        RankRecord(rank=rank, machine=f"m{rank // each}", step_ms_quantiles=quantiles, metrics=timers)
        for rank in range(machines * each)
    ]
    if link and machines > 1:
        record.metrics["link_round_trip_ms"], record.metrics["link_mbit_per_s"] = link
    return record


def sweep(
    folder: Path, link: tuple[float, float], *, off: float = 1.0, repeats: int = 3, spread: float = 0.0, **changes: Any
) -> Path:
    """A sweep over 1, 2 and 4 machines with 1 and 2 ranks each, as the model has it; but several machines take `off`
    times as long.
    """
    with Store(folder) as store:
        for repeat in range(repeats):
            drift = 1 + spread * (repeat - 1)
            for each in (1, 2):
                store.append(run_of(1, each, repeat, STEP_MS * drift, link=link, **changes))
                for machines in (2, 4):
                    truth = (STEP_MS + ring_ms(machines * each, *link)) * off * drift
                    store.append(run_of(machines, each, repeat, truth, truth - STEP_MS, link=link, **changes))
    return folder


def test_a_ring_sends_twice_all_but_its_share_and_its_messages_wait_for_each_other() -> None:
    # A megabyte is 80 ms at 100 Mbit/s. Of 2 ranks: two halves; of 4: six quarters, half a millisecond before each.
    assert ring_model.ring_ms(1e6, 2, 0.0, 100.0) == pytest.approx(80)
    assert ring_model.ring_ms(1e6, 2, 1.0, 100.0) == pytest.approx(81)
    assert ring_model.ring_ms(1e6, 4, 1.0, 100.0) == pytest.approx(123)
    assert ring_model.ring_ms(1e6, 1, 1.0, 100.0) == 0
    for ranks in (2, 3, 8, 1024):
        assert ring_model.ring_ms(1e6, ranks, 0.3, 70.0) == pytest.approx(ring_ms(ranks, 0.3, 70.0))


def test_gradients_go_in_a_bucket_of_1_mib_and_more_of_25_or_in_as_many_as_the_cap_asks_for() -> None:
    mib = 2**20
    assert ring_model.bucket_bytes(PARAMETERS) == [1e6]
    assert ring_model.bucket_bytes(10_000_000) == [mib, 25 * mib, 40_000_000 - 26 * mib]
    assert ring_model.bucket_bytes(10_000_000, sent=2) == [mib / 2, 25 * mib / 2, 20_000_000 - 13 * mib]
    assert ring_model.bucket_bytes(10_000_000, cap_mib=5) == [5 * mib] * 7 + [40_000_000 - 35 * mib]


def test_ddp_makes_no_more_buckets_than_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ring_model, "BUCKET_MIB", 2)
    chance = np.random.default_rng(0)
    for _ in range(20):
        layers = [torch.empty(int(size)) for size in chance.integers(1, 900_000, 40)]
        assigned, _ = dist._compute_bucket_assignment_by_size(layers, [2**20, 2 * 2**20])
        counted = ring_model.bucket_bytes(sum(layer.numel() for layer in layers))
        assert 1 < len(assigned) <= len(counted)


def test_a_bucket_waits_for_its_gradients_and_for_the_one_before_it() -> None:
    # Each takes 500 ms. Ready at 300 and 600: through at 800 and 1300, 700 after the backward pass.
    sizes = [500_000.0, 500_000.0]
    assert ring_model.exposed_ms(sizes, 2, inputs(backward_ms=600)) == pytest.approx(700)
    assert ring_model.exposed_ms(sizes, 2, inputs(backward_ms=600), "all hidden") == pytest.approx(400)
    assert ring_model.exposed_ms(sizes, 2, inputs(backward_ms=600), "nothing hidden") == pytest.approx(1000)
    # Ready at 1000 and 2000: only the last is exposed.
    assert ring_model.exposed_ms(sizes, 2, inputs(backward_ms=2000)) == pytest.approx(500)
    assert ring_model.exposed_ms(sizes, 2, inputs(backward_ms=2000), "all hidden") == 0


def test_the_rules_are_in_order_whatever_the_numbers() -> None:
    chance = np.random.default_rng(0)
    for _ in range(200):
        sizes = ring_model.bucket_bytes(int(chance.integers(1, 50_000_000)), cap_mib=float(chance.integers(1, 30)))
        given = inputs(
            backward_ms=chance.uniform(0, 2000), round_trip_ms=chance.uniform(0, 5), mbit_per_s=chance.uniform(10, 9e4)
        )
        least, middle, most = (
            ring_model.step_ms(sizes, int(chance.integers(2, 3)) * 4, given, rule)
            for rule in ("all hidden", "in buckets", "nothing hidden")
        )
        assert least <= middle * (1 + 1e-12)
        assert middle <= most * (1 + 1e-12)


def test_what_was_exposed_on_one_machine_is_not_counted_twice() -> None:
    # The link leaves 1000 ms exposed, of which 30 are in the one-machine step already.
    assert ring_model.step_ms([1e6], 2, inputs(exposed_ms=30)) == pytest.approx(100 - 30 + 1000)
    assert ring_model.step_ms([1e6], 2, inputs(exposed_ms=30, mbit_per_s=1e6)) == 100, (
        "never faster than on one machine"
    )


def test_a_sweep_that_the_model_holds_for_is_predicted_to_the_digit(tmp_path: Path) -> None:
    lines = read_lines([sweep(tmp_path / "slow", (1.0, 100.0)), sweep(tmp_path / "fast", (0.2, 900.0))])
    predictions, without = predict(lines)
    assert without == []
    assert len(predictions) == 2 * 2 * 2
    for item in predictions:
        assert item.error() == pytest.approx(0, abs=1e-9)
        assert item.predicted_ms["nothing hidden"] == item.predicted_ms["in buckets"], "there is one bucket"
        assert item.single_ms == pytest.approx(STEP_MS)
    slow_two = predictions[0]
    assert slow_two.cell.step.centre == pytest.approx(STEP_MS + 81)
    # The backward pass of a single rank, which no timer measures, is that of two: 20 ms of 81 could be hidden.
    assert slow_two.predicted_ms["all hidden"] == pytest.approx(STEP_MS + 81 - BACKWARD_MS)


def test_the_error_of_the_model_is_reported_and_widens_its_interval(tmp_path: Path) -> None:
    lines = read_lines([sweep(tmp_path / "slow", (1.0, 100.0), off=1.25)])
    predictions, _ = predict(lines)
    errors = [item.error() for item in predictions]
    assert errors == pytest.approx([-math.log(1.25)] * 4)
    assert "in buckets: median absolute error 20.0%" in cluster_model.sentences_of(predictions)[0]
    assert "(n=4 trials" in cluster_model.sentences_of(predictions)[0]
    step, efficiency = extrapolate(lines[0], 1, errors)[1024]
    truth = STEP_MS + ring_ms(1024, 1.0, 100.0)
    assert step.centre == pytest.approx(truth), "which is not corrected"
    # Nothing else spreads: Student's 2.776 of four degrees of freedom, times the errors' root mean square.
    assert step.low == pytest.approx(truth / 1.25**2.776, rel=0.1)
    assert step.high == pytest.approx(truth * 1.25**2.776, rel=0.1)
    assert efficiency is not None
    assert efficiency.centre == pytest.approx(STEP_MS / truth)
    assert efficiency.low == pytest.approx(STEP_MS / step.high)


def test_inputs_that_spread_widen_the_interval_and_too_few_have_none(tmp_path: Path) -> None:
    def width(folder: Path, errors: list[float]) -> float | None:
        (line,) = read_lines([folder])
        step, _ = extrapolate(line, 1, errors, [64])[64]
        return None if step.low is None or step.high is None else step.high / step.low

    exact = [0.0] * 4
    assert width(sweep(tmp_path / "steady", (0.1, 10_000.0)), exact) == pytest.approx(1)
    assert (width(sweep(tmp_path / "drifts", (0.1, 10_000.0), spread=0.05), exact) or 1) > 1.05
    assert width(sweep(tmp_path / "few", (0.1, 10_000.0), repeats=2), exact) is None
    assert width(tmp_path / "steady", [0.0, 0.0]) is None, "the error of the model is unknown"


def test_ranks_go_from_2_to_1024_on_whole_machines_and_more_than_one(tmp_path: Path) -> None:
    (line,) = read_lines([sweep(tmp_path / "slow", (1.0, 100.0))])
    assert list(extrapolate(line, 1, [])) == [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024]
    assert list(extrapolate(line, 2, [])) == [4, 8, 16, 32, 64, 128, 256, 512, 1024]
    for each in (1, 2):
        steps = [step.centre for step, _ in extrapolate(line, each, []).values()]
        assert all(later > earlier for earlier, later in pairwise(steps))


def test_hosts_that_share_processors_compute_as_fast_as_so_many_ranks_on_one(tmp_path: Path) -> None:
    link = (1.0, 100.0)
    with Store(tmp_path) as store:
        store.append(run_of(1, 1, 0, 40.0, link=link))
        store.append(run_of(1, 2, 0, 95.0, 15.0, link=link))  # two on the same processors: 80 of computation
        store.append(run_of(2, 1, 0, 80.0 + ring_ms(2, *link), 81.0, link=link))
    lines = read_lines([tmp_path])
    (apart,), _ = predict(lines)
    (shared,), _ = predict(lines, shared=True)
    assert apart.predicted_ms["in buckets"] == pytest.approx(40 + 81)
    assert shared.error() == pytest.approx(0, abs=1e-9)


def test_what_the_model_does_not_cover_is_left_out_and_says_why(tmp_path: Path) -> None:
    link = (1.0, 100.0)
    sweep(tmp_path / "a", link, compression="powersgd")
    sweep(tmp_path / "b", link, zero_redundancy=True)
    with Store(tmp_path / "c") as store:
        store.append(run_of(2, 1, 0, 50.0, link=link))
    with Store(tmp_path / "d") as store:
        store.append(run_of(1, 1, 0, 50.0))
        store.append(run_of(2, 1, 0, 50.0))
    predictions, without = predict(read_lines([tmp_path / name for name in "abcd"]))
    assert predictions == []
    reasons = "\n".join(without)
    for reason in ("compression=powersgd", "zero_redundancy=True", "no run is on one machine", "measured a link"):
        assert reason in reasons


def test_compression_sends_half(tmp_path: Path) -> None:
    folder = sweep(tmp_path, (1.0, 100.0))
    with Store(folder) as store:
        # As long as what the ring alone sends of half the bytes; one rank alone has no compression.
        store.append(run_of(2, 1, 0, STEP_MS + 1 + 40, link=(1.0, 100.0), compression="bf16"))
    plain, half = read_lines([folder])
    assert (plain.sizes, half.sizes) == ([PARAMETERS * 4], [PARAMETERS * 2])
    predictions, without = predict([plain, half])
    assert without == []
    assert predictions[-1].line is half
    assert predictions[-1].error() == pytest.approx(0, abs=1e-9)
    assert [column for column in cluster_model.table_of(predictions) if column == "compression"], "what differs"


def test_the_command_prints_tables_assumptions_and_draws_its_figure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [sweep(tmp_path / "slow", (1.0, 100.0), off=1.1), sweep(tmp_path / "fast", (0.2, 900.0), off=0.9)]
    monkeypatch.setattr(sys, "argv", ["cluster_model.py", *map(str, folders), "--figures", str(tmp_path / "drawn")])
    cluster_model.main()
    printed = capsys.readouterr().out
    assert "100 Mbit/s, 1 ms (slow)" in printed
    assert "1,024" in printed
    assert "No stragglers" in printed
    assert "2.00 times the median step" not in printed
    assert "1.50 times the median step" in printed
    assert "Beyond 32 ranks that assumption is untested" in printed
    assert (tmp_path / "drawn" / "cluster_model.png").stat().st_size > 10_000


def test_a_folder_without_runs_on_several_machines_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store(tmp_path / "one") as store:
        store.append(run_of(1, 1, 0, 50.0))
    for folder, words in (("one", "no run is on several machines"), ("none", "holds no runs.jsonl")):
        monkeypatch.setattr(sys, "argv", ["cluster_model.py", str(tmp_path / folder)])
        with pytest.raises(SystemExit, match="2"):
            cluster_model.main()
        assert words in capsys.readouterr().err
