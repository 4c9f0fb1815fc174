"""Notes on what was seen of the training of users' code: whose samples a step has, and what rates are of."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from dmls_ray.analysis.table.model import COUNTED, Note, percent_of
from dmls_ray.analysis.trials.same_step import COMPARED_VALUE
from dmls_ray.analysis.trials.trial import Trial, describe_configuration
from dmls_ray.analysis.words import join_names

_MOST = 0.8
"""Share of the time below which it is said what is left out."""
_CLEAR = {"loader and model agree", "user", "--samples", "tokens of the model"}
"""How samples are known, or none are, where no note says it."""
_ORDINALS = {1: "st", 2: "nd", 3: "rd"}


def notes_on_steps(rows: Sequence[Trial], samples_by: str, tests_by: str) -> Iterator[Note]:
    """What a reader must know of the steps of these trials.

    Args:
        rows: the trials.
        samples_by: what tells the samples of a step where they are not known.
        tests_by: what tells whether a time was a test of the model.
    """
    for text in [*_samples(rows, samples_by), *_ranks(rows), *_parts(rows, tests_by), *_printed(rows)]:
        yield Note("method", text)


def fact_of(trial: Trial, name: str) -> str:
    """A fact of the runs of a trial; empty where none has it."""
    return next((str(record.facts[name]) for record in trial.counted if name in record.facts), "")


def by_fact(rows: Sequence[Trial], name: str) -> dict[str, str]:
    """Each value of a fact that some runs have -> the names of their trials."""
    return _grouped(rows, lambda row: fact_of(row, name))


def _grouped(rows: Sequence[Trial], value_of: Callable[[Trial], str]) -> dict[str, str]:
    """Each value that is not empty -> the names of the trials that have it."""
    names: dict[str, list[str]] = {}
    for row in rows:
        if value := value_of(row):
            names.setdefault(value, []).append(describe_configuration(row.factors))
    return {value: join_names(names[value]) for value in sorted(names)}


def _samples(rows: Sequence[Trial], way_out: str) -> Iterator[str]:
    """How samples are known where that is not sure, and why they are not."""
    for counted_by, names in by_fact(rows, "counted_by").items():
        if counted_by not in _CLEAR:
            yield f"{names}: samples of a step are those of the {counted_by}."
    for reason, names in by_fact(rows, "samples_unknown").items():
        yield f"{names}: samples of a step are not known ({reason}): {way_out}."
    for reason, names in by_fact(rows, "tokens_unknown").items():
        yield f"{names}: tokens of a step are not known ({reason})."
    for seen, names in _grouped(rows, _seen_otherwise).items():
        yield f"{names}: a step was seen to have {seen}; the number that was given is taken."


def _seen_otherwise(row: Trial) -> str:
    """What was seen of a step where the user says another number."""
    seen = {unit: fact_of(row, f"{unit}_differ") for unit in ("samples", "tokens")}
    return " and ".join(f"{number} {unit}" for unit, number in seen.items() if number)


def _ranks(rows: Sequence[Trial]) -> Iterator[str]:
    """Which ranks were given the same samples, and which make other steps than the rest."""
    for names in by_fact(rows, "same_samples").values():
        yield (
            f"{names}: all ranks were given the same samples, so a step has no more different ones than that of one "
            "rank; under data parallelism a DistributedSampler gives each rank its own."
        )
    for times, names in by_fact(rows, "uneven_steps").items():
        yield (
            f"{names}: the rank with the most steps made {times}x as many in the same time as the one with the fewest; "
            "a step is one of the former, with the samples of all ranks in its time."
        )
    for ranks, names in by_fact(rows, "without_steps").items():
        yield (
            f"{names}: rank {ranks} made no optimizer step, as one that serves the others; if it was to train, look at "
            "its data and at its log."
        )


def _parts(rows: Sequence[Trial], tests_by: str) -> Iterator[str]:
    """Which part of the time rates are of, and whether the look at the program failed."""
    for reason, names in by_fact(rows, "time_unknown").items():
        if not reason.endswith("%"):
            yield f"{names}: times of a step and rates are not known ({reason})."
            continue
        yield (
            f"{names}: {reason} of the time may be tests of the model, or a part of the training that looks like them "
            "(samples that a model generates, games, labels), so times of a step and rates are not known: "
            f"{tests_by}."
        )
    small = []
    for row in rows:
        if fact_of(row, "time_unknown"):
            continue
        share = min(row.by_block(COUNTED).values(), default=1.0)
        if share < _MOST:
            small.append(f"{describe_configuration(row.factors)} ({percent_of(share)})")
    if small:
        yield (
            f"{join_names(small)}: so much of the time is counted in the run with the least; the rest are tests of the "
            "model, which no rate contains."
        )
    for fault, names in by_fact(rows, "observer_fault").items():
        yield f"{names}: a part of the look at the program failed ({fault}), and what it would have seen is missing."


def _printed(rows: Sequence[Trial]) -> Iterator[str]:
    """At which of their values printed numbers are compared, of runs that were ended after different steps."""
    places: dict[str, int] = {}
    for row in rows:
        for record in row.counted:
            places |= record.facts.get(COMPARED_VALUE, {})
    names: dict[int, list[str]] = {}
    for name, place in places.items():
        names.setdefault(place, []).append(name)
    for place, found in sorted(names.items()):
        listed = join_names(found, separator=", ")
        if place:
            yield f"{listed}: runs were ended after different steps, and the {_ordinal(place)} value of each is shown."
        else:
            yield f"{listed}: not shown, since runs were ended after different steps, and no value is of the same one."


def _ordinal(number: int) -> str:
    is_teen = 10 < number % 100 < 20
    return f"{number}{'th' if is_teen else _ORDINALS.get(number % 10, 'th')}"
