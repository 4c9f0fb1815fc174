"""`Advice`: the trials of a sweep ranked by an objective, as data and as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from dmls_ray.analysis.advise.objectives import Objective, costs_of
from dmls_ray.analysis.findings.effects import Effect, estimate_of
from dmls_ray.analysis.json_objects import Advise, RankedObject, effect_object
from dmls_ray.analysis.metrics import is_exact, label_of
from dmls_ray.analysis.results import factor_cells, field_names
from dmls_ray.analysis.stats.formatting import change_text
from dmls_ray.analysis.stats.intervals import MIN_REPEATS, Estimate
from dmls_ray.analysis.trials.trial import Trial, describe_configuration
from dmls_ray.analysis.words import amount_text, join_names
from dmls_ray.analysis.words_on_machines import disturbance_notes

if TYPE_CHECKING:
    import pandas as pd

Place = Literal[
    "best", "not distinguished", "worse", "not compared",
    "times_unknown", "target_not_reached", "independent_ranks", "loses", "other",
]  # fmt: skip
"""Of a trial against the best one, or why it cannot be chosen. `not compared`: no block has both in one environment."""


@dataclass
class Ranked:
    """A trial with its value of the objective, compared with the best one; or why it cannot be chosen."""

    row: Trial
    verdict: Place
    text: str
    """Its value with its interval; without a value, the reason."""
    value: Estimate | None = None
    """None where it cannot be chosen."""
    all_reached: bool = True
    """Whether every run reached the target."""
    against_best: Effect | None = None
    """Its value against that of the best one; the intervals of all trials hold together at 95%."""

    @property
    def name(self) -> str:
        return describe_configuration(self.row.factors)

    @property
    def centre(self) -> float:
        """Its value; only of a trial that can be chosen."""
        assert self.value is not None
        return self.value.centre

    def json_object(self, *, is_on_front: bool) -> RankedObject:
        """For programs."""
        return RankedObject(
            trial_id=self.row.trial_id, config=self.row.factors, verdict=self.verdict, outcome=self.row.outcome,
            n=len(self.row.counted), objective=self.value, against_best=estimate_of(self.against_best),
            reason=self.text if self.value is None else "", is_on_front=is_on_front,
        )  # fmt: skip


_RIVALS: Mapping[Place, str] = {
    "not distinguished": "Not distinguished from it",
    "not compared": "Not compared with it",
}
"""Verdict on trials that may be as good as the best one -> what the headline says of them."""


@dataclass
class Advice:
    """What the runs of a sweep say to an objective."""

    objective: Objective
    trials: Sequence[Ranked]
    """The best first, those that cannot be chosen last."""
    front: Sequence[str]
    """trial_id of those that no other one beats in all of `front_metrics`, by their means."""
    front_metrics: Sequence[str]
    loss: Effect | None
    """By how much the best one is less accurate than the most accurate trial, beyond chance."""

    spare: ClassVar = ("front", "outcome", "n")
    """Heads of `frame` that a narrow terminal may leave out, the first first."""

    def __post_init__(self) -> None:
        self.best = next((item for item in self.trials if item.verdict == "best"), None)
        """None where no trial can be chosen."""
        self.excluded = [item for item in self.trials if item.value is None]
        """The trials that cannot be chosen."""

    def with_verdict(self, verdict: Place) -> list[Trial]:
        """The trials with a verdict, the best first."""
        return [item.row for item in self.trials if item.verdict == verdict]

    def json_object(self) -> Advise:
        """All values, for programs."""
        return Advise(
            objective=self.objective.name, metric=self.objective.metric, minimizes=bool(self.objective.minimizes),
            target=self.objective.target, is_ratio=self.objective.measure.is_ratio,
            trials=[item.json_object(is_on_front=item.row.trial_id in self.front) for item in self.trials],
            front_metrics=self.front_metrics, loss=effect_object(self.loss),
            loss_base=self.loss.pair.base.trial_id if self.loss else "",
        )  # fmt: skip

    def headline(self) -> str:
        """The configuration to use, or those that may be as good; how many others have which verdict."""
        objective, best = self.objective, self.best
        if best is None:
            return f"For {objective.name} no configuration can be chosen; the column verdict says why."
        value = f"{objective.label} {best.text}, n={len(objective.samples(best.row))}"
        counts = Counter(item.verdict for item in self.trials)
        others = f"Others: {counts['worse']} worse, {len(self.excluded)} left out."
        rivals = []
        for verdict, text in _RIVALS.items():
            names = [describe_configuration(row.factors) for row in self.with_verdict(verdict)]
            if names:
                rivals.append(f"{text}: {join_names(names, separator=', ')}.")
        if not rivals:
            return f"For {objective.name} use {best.name}: {value}. {others}"
        return " ".join([f"For {objective.name} {best.name} comes first: {value}.", *rivals, others])

    def notes(self) -> list[str]:
        """What a reader must know to follow the advice."""
        rows, metric, texts = self.objective.table.rows, self.objective.metric, []
        if self.loss is not None:
            base = describe_configuration(self.loss.pair.base.factors)
            amount = amount_text(self.loss)
            texts.append(f"The best configuration loses accuracy: {self.loss.measure.noun} {amount} against {base}.")
        if self.with_verdict("loses"):
            texts.append("Trials that lose accuracy are left out; --any-accuracy includes them.")
        if self.front:
            front_metrics = ", ".join(label_of(name) for name in self.front_metrics).removesuffix(".")
            texts.append(f"Pareto front: compared by means, no other trial is as good in all of {front_metrics}.")
        texts += disturbance_notes(rows)
        fewest = min(len(row.counted) for row in rows if row.counted)
        if fewest < MIN_REPEATS and not is_exact(metric):
            texts.append(f"There are no intervals at n={fewest}; they need --repeats {MIN_REPEATS} or more.")
        by_test_samples = self.objective.target is not None or metric in ("test_accuracy", "test_loss")
        if by_test_samples and len(rows) > 1:
            texts.append(
                "The choice was made on test samples, so expect lower accuracy on new samples; choose by "
                "validation_accuracy instead."
            )
        return texts

    def frame(self) -> pd.DataFrame:
        """The trials as texts, the best first."""
        import pandas as pd

        objective = self.objective
        columns = [*costs_of(objective.table), "test_accuracy"]
        others = [name for name in columns if objective.table.has(name) and name != objective.metric]
        is_ratio = objective.measure.is_ratio
        rows = []
        for item in self.trials:
            row, value, verdict = item.row, item.text, str(item.verdict)
            if item.value is None:
                value, verdict = "", item.text
            cells = {f"{objective.label} [95%]": value}
            for name in others:
                cells[label_of(name)] = row.text(name)
            cells |= {
                "against best [95%]": change_text(estimate_of(item.against_best), objective.form, is_ratio=is_ratio),
                "n": str(len(row.counted)),
                "front": "yes" if row.trial_id in self.front else "",
                "verdict": verdict,
                "outcome": row.outcome,
            }
            rows.append(factor_cells(row.factors, other_headers=cells) | cells)
        return pd.DataFrame(rows, columns=field_names(rows), dtype=object)
