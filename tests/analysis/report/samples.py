"""Many runs made by hand, for reports."""

from __future__ import annotations

import base64
import gzip
import random
from pathlib import Path
from typing import Any

from dmls_ray.analysis.results import Results
from dmls_ray.records.aggregate import take_results
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import RankResult
from tests.analysis.samples import MACHINE

METRICS = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")


def many(runs: int, *, epochs: int = 20, ranks: int = 2, text: str = "") -> Results:
    """So many runs whose numbers are noise, the worst that there is to pack; every tenth fails with `text`."""
    draw = random.Random(0)
    records = []
    for number in range(runs):
        batch = 2 ** (number % 8 + 3)
        config = {"world_size": ranks, "batch_per_rank": batch, "lr": draw.random(), "warmup_steps": 5}
        record = RunRecord(
            run_id=f"{number // 3:012x}-{number % 3}", trial_id=f"{number // 3:012x}", repeat=number % 3, order=number,
            order_seed=0, seed=number % 3, outcome=Outcome.OK, config=config | {"threads_per_rank": 1},
            isolation="group", machine=MACHINE, versions={"python": "3.11", "torch": "2.6"}, load_average=draw.random(),
            started_at="2026-01-02T03:04:05", sweep="many", session="2026-01-02",
        )  # fmt: skip
        if number % 10 == 9:
            record.outcome, record.reason, record.traceback = Outcome.ERROR, f"RuntimeError {number}", text
        else:
            take_results(record, [_rank(draw, rank, epochs) for rank in range(ranks)])
        records.append(record)
    return Results(Path("results/many"), records)


def _rank(draw: random.Random, rank: int, epochs: int) -> RankResult:
    def epoch(number: int) -> dict[str, Any]:
        values = {name: draw.random() for name in (*METRICS, "train_s", "warmup_s", "eval_s")}
        return {"epoch": number, **values}

    whole = [epoch(number) | {"images": 50_000, "images_per_s": draw.random() * 1e5} for number in range(1, epochs + 1)]
    names = ("setup_s", "train_s", "eval_s", "total_s", "step_ms_p50", "step_ms_p95", "peak_mem_mib", "forward_ms",
             "backward_ms", "comm_ms", "overlap_ms", "exposed_comm_ms", *METRICS)  # fmt: skip
    measured = {name: draw.random() * 100 for name in names}
    busy = {"at_s": [0.5 * point for point in range(240)], "cpu_percent": [draw.random() * 100 for _ in range(240)]}
    run = {"device": "cpu", "train_samples": 50_000, "epochs": whole}
    run_epochs = [epoch(number) for number in range(1, epochs + 1)]
    values = {"utilization": busy, "epochs": run_epochs, **measured}
    return RankResult(rank=rank, machine="lab", device="cpu", values=values, run=run)


def unpack(text: str) -> bytes:
    """Decompress what `pack` compressed, as the page does."""
    return gzip.decompress(base64.b64decode(text))
