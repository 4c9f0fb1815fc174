"""No headline contradicts a row of its own table: of the reference sweeps, and of generated ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

from dmls_ray import load
from dmls_ray.analysis.findings.answer import Answer
from dmls_ray.analysis.findings.changes import answer_on_changes
from dmls_ray.analysis.findings.effects import Comparison, Effect
from dmls_ray.analysis.findings.question import answer_on_axis
from dmls_ray.analysis.summary import summarize
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.words import effect_cell, effect_text
from tests.analysis.samples import results, row_of
from tests.reference_values import FOLDERS, REFERENCE


def of_field(answer: Answer) -> list[Comparison]:
    """The rows that compare a value of the headline's field with its base."""
    lead = answer.lead[0].pair
    rows = [*answer.comparisons, answer.lead]
    return [row for row in rows if (row[0].pair.field, row[0].pair.base_value) == (lead.field, lead.base_value)]


def outcomes(row: Comparison) -> list[Effect]:
    return [effect for effect in row if effect.measure.is_outcome]


def known_sign(effect: Effect) -> int:
    """1 or -1 of a difference beyond chance; 0 also where too few repeats have no interval."""
    return effect.sign if effect.verdict in ("more", "less") else 0


def assert_no_contradiction(answer: Answer) -> None:
    if not answer.lead:
        return
    assert answer.lead[0].key in [row[0].key for row in answer.comparisons]
    rows = of_field(answer) if answer.headline != "pair" else []
    for row in rows:
        signs = {effect.measure.name: known_sign(effect) for effect in outcomes(row)}
        judged = [effect for effect in outcomes(row) if effect.measure.is_judged]
        gains = {effect.measure.name: known_sign(effect) * effect.measure.better for effect in judged}
        if answer.headline == "none_differs":
            assert not any(signs.values()), row[0].key
        elif answer.headline == "none_better":
            assert max(gains.values()) <= 0, row[0].key
        elif answer.headline == "none_without_loss":
            assert max(gains.values()) <= 0 or min(gains.values()) < 0, row[0].key
    for row in [answer.lead, answer.lossless, *answer.beside]:
        for effect in row:
            assert_same_as_its_cell(effect)
    assert all(effect.gain >= 0 for effect in answer.lossless if effect.measure.is_judged)


def assert_same_as_its_cell(effect: Effect) -> None:
    """A sentence says a direction where the interval of the cell leaves out no difference, and only there."""
    text, cell = effect_text(effect), effect_cell(effect)
    is_said = not any(word in text for word in ("undecided", "equal ", "no difference", "too few", "once"))
    assert is_said == (effect.verdict in ("more", "less", "level")), text
    assert cell.endswith("?") == (effect.verdict == "open"), cell
    if is_said and effect.verdict != "level":
        assert (effect.contrast.centre > effect.measure.null) == (effect.verdict == "more")


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: str(folder.relative_to(REFERENCE)))
def test_no_headline_of_a_reference_sweep_contradicts_its_table(folder: Path) -> None:
    assert_no_contradiction(summarize(load(folder)).answer.answer)


LEVELS = st.sampled_from([0.5, 0.97, 1.03, 2.0, 40_000.0])
ACCURACIES = st.sampled_from([0.1, 0.89, 0.91])
NOISE = st.sampled_from([0.0, 1e-3, 0.1, 3.0])
FIELDS: dict[str, list[Any]] = {
    "optimizer": ["adam", "sgd", "rmsprop"],
    "batch_per_rank": [16, 32, 64],
    "precision": ["fp32", "amp-bf16"],
}


def exceptions(places: Sequence[Any], values: st.SearchStrategy[float]) -> st.SearchStrategy[dict[Any, float]]:
    """A few of the places, with other values than the rest."""
    return st.dictionaries(st.sampled_from(places), values, max_size=3)


def test_what_holds_of_one_rank_alone_is_not_said_of_all() -> None:
    def rate(own: dict[str, Any], repeat: int) -> float:
        is_fast = own["optimizer"] == "sgd" and own["world_size"] == 2
        return (2.0 if is_fast else 1.0) * (100 + repeat)

    runs = results({"batch_per_rank": 16, "optimizer": ["adam", "sgd", "rmsprop"], "world_size": [1, 2]}, rate)
    answer = answer_on_axis(make_table(runs, ["optimizer", "world_size"]), "optimizer")
    assert (answer.headline, row_of(answer.lead)) == ("pair", ("optimizer sgd vs adam", "2 ranks"))


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_no_headline_of_a_generated_sweep_contradicts_its_table(data: st.DataObject) -> None:
    field = data.draw(st.sampled_from(sorted(FIELDS)))
    ranks = data.draw(st.sampled_from([[1], [1, 2]]))
    places = [(value, size) for value in FIELDS[field] for size in ranks]
    levels = dict.fromkeys(places, 1.0) | data.draw(exceptions(places, LEVELS))
    accuracies = dict.fromkeys(places, 0.9) | data.draw(exceptions(places, ACCURACIES))
    noise, repeats = data.draw(NOISE), data.draw(st.integers(1, 9))
    generator = np.random.default_rng(data.draw(st.integers(0, 99)))

    def rate(own: dict[str, Any], repeat: int) -> float:
        return float(100.0 * levels[own[field], own["world_size"]] * np.exp(noise * generator.normal()))

    def accuracy(own: dict[str, Any], repeat: int) -> float:
        return float(np.clip(accuracies[own[field], own["world_size"]] + noise * generator.normal() / 50, 0, 1))

    axes = {"batch_per_rank": 16, field: FIELDS[field], "world_size": ranks}
    runs = results(axes, rate, accuracy=accuracy, repeats=repeats)
    assert_no_contradiction(answer_on_axis(make_table(runs, [field, "world_size"]), field))


@settings(max_examples=50, deadline=None)
@given(data=st.data())
def test_no_headline_on_changes_contradicts_its_table(data: st.DataObject) -> None:
    names = ["dropout", "l1", "weight_decay"]
    ranks = data.draw(st.sampled_from([[1], [1, 2]]))
    places = [(name, size) for name in ["", *names] for size in ranks]
    levels = dict.fromkeys(places, 0.9) | data.draw(exceptions(places, ACCURACIES))
    generator = np.random.default_rng(data.draw(st.integers(0, 99)))

    def accuracy(own: dict[str, Any], repeat: int) -> float:
        change = next((name for name in names if own[name]), "")
        return float(levels[change, own["world_size"]] + 0.003 * generator.normal())

    runs = results(
        {"batch_per_rank": 16, "world_size": ranks},
        lambda own, repeat: float(100.0 * np.exp(0.01 * generator.normal())),
        accuracy=accuracy,
        variants=[{}, {"dropout": 0.3}, {"l1": 0.001}, {"weight_decay": 0.1}],
        repeats=data.draw(st.integers(1, 6)),
    )
    table = make_table(runs)
    table.changed = tuple(names)
    assert_no_contradiction(answer_on_changes(table))
