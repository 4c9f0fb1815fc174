"""Training loops of many shapes: what is stated of each is what it says of itself, or nothing is stated."""

from __future__ import annotations

import pytest

from tests.workloads.script.conftest import Runner
from tests.workloads.script.zoo.zoo import SCRIPTS, run_zoo

ABSENT = frozenset(
    {
        "combined_loaders",
        "estimate_loss_without_loader",
        "memory_mapped_tokens_micro_steps",
        "small_loader_cycled",
        "word_language_model_by_hand",
    }
)
"""Shapes whose samples may be unknown."""
COUNTS = 0.01
TIMES = 0.15
"""Relative differences up to which numbers are equal."""


@pytest.mark.parametrize("name", SCRIPTS)
def test_what_is_stated_of_a_script_is_what_it_says_of_itself(run: Runner, name: str) -> None:
    seen = run_zoo(run, name)
    stated, truth = seen.stated, seen.truth
    if stated.samples_per_step is None:
        assert seen.record.facts["samples_unknown"]
        assert name in ABSENT, seen.record.facts["samples_unknown"]
    else:
        assert stated.samples_per_step == pytest.approx(truth.samples_per_step, rel=COUNTS), seen.record.facts
        assert stated.samples_per_s == pytest.approx(truth.samples_per_s, rel=TIMES)
    assert stated.step_ms == pytest.approx(truth.step_ms, rel=TIMES)


def test_at_most_a_third_of_the_shapes_may_be_unknown() -> None:
    assert set(SCRIPTS) >= ABSENT
    assert 3 * len(ABSENT) <= len(SCRIPTS)
