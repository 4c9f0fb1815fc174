"""By which times trials are compared whose samples are not known."""

from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.analysis.advise.objectives import OBJECTIVES
from dmls_ray.analysis.findings.answer import answer_along
from dmls_ray.analysis.findings.replacement import judge_replacement
from dmls_ray.analysis.summary import AnswerTable
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.model import Table
from dmls_ray.config.options import Until
from dmls_ray.util.errors import ConfigError
from tests.analysis.samples import script_results


def table_of(**by_delay: Any) -> Table:
    """Runs of steps of 33 and of 203 ms, which were ended after 50 and after 15 steps."""

    def tell(values: dict[str, Any], repeat: int) -> dict[str, Any]:
        is_slow = values["delay"] == 200
        seen = {
            "step_ms_mean": (203.0 if is_slow else 33.0) + repeat / 10,
            "steps_made": 15 if is_slow else 50,
            "total_s": 3.2 if is_slow else 1.8,
            "was_ended": True,
            "samples_unknown": "loader: 4, model: 3",
        }
        return seen | {name: found(values["delay"]) for name, found in by_delay.items()}

    return make_table(script_results({"delay": [30, 200]}, tell))


def test_steps_are_compared_and_not_runs_that_were_ended_after_other_steps() -> None:
    answer = AnswerTable(answer_along(table_of(), "delay"))
    assert answer.headline == "delay 200 vs 30: a step takes 6.14x as long."
    (frame,) = answer.tables
    assert "time of a step" in frame
    assert "time" not in frame


def test_a_table_shows_the_time_of_a_step_and_why_the_samples_are_not_known() -> None:
    table = table_of()
    assert "delay=30; delay=200: samples of a step are not known (loader: 4, model: 3): give --samples." in table.notes
    assert table.columns[1].title == "mean step ms"
    assert "s/run" not in table.frame()
    assert not {"speed-up", "efficiency", "samples/s"} & {*table.frame()}


def test_where_one_trial_alone_has_a_rate_steps_are_compared() -> None:
    table = table_of(samples_per_s=lambda delay: 100.0 if delay == 30 else None)
    (comparison,) = answer_along(table, "delay").comparisons
    assert [effect.measure.name for effect in comparison] == ["step_ms_mean"]


def test_where_both_have_one_speed_is_compared_alone() -> None:
    table = table_of(samples_per_s=lambda delay: 3000 / delay)
    (comparison,) = answer_along(table, "delay").comparisons
    assert [effect.measure.name for effect in comparison] == ["speed"]


def test_of_steps_with_unknown_samples_none_is_better() -> None:
    table = table_of()
    (comparison,) = answer_along(table, "delay").comparisons
    assert (comparison[0].sign, comparison[0].gain) == (1, 0)
    with pytest.raises(ConfigError, match="needs the samples of a step, .* give --samples"):
        OBJECTIVES["throughput"](table=table)
    with pytest.raises(ConfigError, match="ended after different numbers of steps"):
        OBJECTIVES["cost"](table=table_of(run_cost=lambda delay: 1.0))


def test_whole_runs_are_compared_where_no_run_was_ended() -> None:
    table = table_of(was_ended=lambda delay: False, step_ms_mean=lambda delay: None)
    (comparison,) = answer_along(table, "delay").comparisons
    assert [effect.measure.name for effect in comparison] == ["total_s"]
    assert "s/run [95%]" in table.frame()


def test_a_slower_step_is_a_slowdown() -> None:
    verdict = judge_replacement(table_of(), "delay", (30, 200), Until())  # type: ignore[arg-type]
    assert (verdict.word, verdict.effects[0].measure.name) == ("discard", "step_ms_mean")
    assert judge_replacement(table_of(), "delay", (200, 30), Until()).word == "keep"  # type: ignore[arg-type]


def test_ranks_that_train_apart_where_they_did_not_are_no_gain() -> None:
    apart = table_of(independent_ranks=lambda delay: "no collectives" if delay == 30 else "")
    verdict = judge_replacement(apart, "delay", (200, 30), Until())  # type: ignore[arg-type]
    assert (verdict.word, verdict.outcomes) == ("discard", ["its ranks trained separate models"])
