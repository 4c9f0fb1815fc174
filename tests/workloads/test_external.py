"""A workload of another package is read by the default presentation: table, answer, figures, report, TensorBoard."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from dmls_ray.analysis.advise.rank import advise
from dmls_ray.analysis.figures import charts
from dmls_ray.analysis.findings.question import SweepQuestion
from dmls_ray.analysis.report.render import render_report
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.summary import SweepSummary
from dmls_ray.analysis.table.presentation import Presentation
from dmls_ray.analysis.tensorboard.writer import write_tensorboard
from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.records.aggregate import take_results
from dmls_ray.records.metric import Metric
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.run_events import RankResult
from dmls_ray.records.training_metrics import TRAINING_METRICS
from dmls_ray.workloads import registry
from dmls_ray.workloads.base import Workload
from tests.analysis.samples import MACHINE


@dataclass(frozen=True, kw_only=True)
class TokenConfig(RuntimeConfig):
    context: int = 32
    attention: str = "full"


TOKENS_PER_S = Metric(
    name="tokens_per_s", label="tokens/s", kind="rate", direction="max", scope="rank", across_ranks="sum",
    format="rate", is_time=True, is_compared=True, interval=True,
    doc="Tokens of the counted steps of all ranks, per second.",
)  # fmt: skip


class TokenWorkload(Workload):
    name = "tokens"
    config = TokenConfig
    entrypoint = "somewhere:run"
    metrics = (*TRAINING_METRICS, TOKENS_PER_S)


@pytest.fixture
def summary(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SweepSummary:
    point = EntryPoint("tokens", f"{__name__}:TokenWorkload", registry.GROUP)
    installed = {"tokens": point, **registry.installed()}
    monkeypatch.setattr(registry, "installed", lambda: installed)
    schema = registry.workload("tokens").schema()
    records = []
    for order, (context, repeat) in enumerate([(context, repeat) for repeat in range(3) for context in (32, 64)]):
        values = {**schema.fixed, **schema.defaults, "context": context}
        record = RunRecord(
            run_id=f"{schema.hash_of(values)}-{repeat}", trial_id=schema.hash_of(values), repeat=repeat, order=order,
            order_seed=0, seed=repeat, outcome=Outcome.OK, config=values, machine=MACHINE,
            started_at="2026-01-02T03:04:05",
        )  # fmt: skip
        speeds = [1000.0 * context / 32 + repeat, 1000.0]
        results = [
            RankResult(rank=rank, values={"total_s": 2.0, "tokens_per_s": speed}) for rank, speed in enumerate(speeds)
        ]
        take_results(record, results, registry.workload("tokens").metrics)
        records.append(record)
    question = SweepQuestion(text="Does a longer context pay?", varied=("context",), axis="context")
    return SweepSummary(Results(tmp_path, records), question)


def test_the_table_has_the_metric_under_its_label_and_as_its_entry_says(summary: SweepSummary) -> None:
    frame = summary.table.frame()
    assert type(summary.table.presentation) is Presentation
    assert list(frame["context"]) == ["32", "64"]
    assert [text.partition(" ")[0] for text in frame["tokens/s [95%]"]] == ["2,001", "3,001"]


def test_the_answer_follows_the_axis(summary: SweepSummary) -> None:
    metrics = {effect.measure.metric: effect.contrast.centre for effect in summary.answer.answer.lead}
    assert metrics["tokens_per_s"] == pytest.approx(1.5, rel=1e-3)


def test_figures_report_and_tensorboard_need_nothing_else(summary: SweepSummary, tmp_path: Path) -> None:
    drawn = charts(summary.table)
    page = render_report(summary, drawn)
    assert "Does a longer context pay?" in page
    assert "tokens/s" in page
    folder = write_tensorboard(summary.results, ["context"])
    assert sum(path.name.startswith("context=") for path in folder.iterdir()) == 6


def test_advice_picks_by_its_metric(summary: SweepSummary) -> None:
    advice = advise(summary.results, "accuracy", metric="tokens_per_s")
    assert advice.best is not None
    assert advice.best.name == "context=64"
