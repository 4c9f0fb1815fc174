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
        yield f"{names}: a step was seen to have {seen}; the number that you gave is used instead."


def _seen_otherwise(row: Trial) -> str:
    """What was seen of a step where the user says another number."""
    seen = {unit: fact_of(row, f"{unit}_differ") for unit in ("samples", "tokens")}
    return " and ".join(f"{number} {unit}" for unit, number in seen.items() if number)


def _ranks(rows: Sequence[Trial]) -> Iterator[str]:
    """Which ranks were given the same samples, and which make other steps than the rest."""
    for names in by_fact(rows, "same_samples").values():
        yield (
            f"{names}: all ranks were given the same samples, so these count once. With data parallelism, a "
            "DistributedSampler gives each rank samples of its own."
        )
    for times, names in by_fact(rows, "uneven_steps").items():
        yield (
            f"{names}: the rank with the most steps made {times}x as many as the rank with the fewest in the same "
            "time. A step here is a step of the former, with the samples that all ranks trained in that time."
        )
    for ranks, names in by_fact(rows, "without_steps").items():
        yield (
            f"{names}: rank {ranks} made no optimizer step. That is right for a rank that only serves the others; if "
            "it should train, check its data and its log."
        )


def _parts(rows: Sequence[Trial], tests_by: str) -> Iterator[str]:
    """Which part of the time rates are of, and whether the look at the program failed."""
    for reason, names in by_fact(rows, "time_unknown").items():
        if not reason.endswith("%"):
            yield f"{names}: times of a step and rates are not known ({reason})."
            continue
        yield (
            f"{names}: {reason} of the time may be tests of the model, or training that looks like a test (generating "
            "samples, playing games, labelling), so times of a step and rates are not known: "
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
            f"Share of the time that is counted, in the run with the smallest share: {join_names(small)}. The rest "
            "are tests of the model, which no rate includes."
        )
    for fault, names in by_fact(rows, "observer_fault").items():
        yield f"{names}: a part of observing the program failed ({fault}), so the values from that part are missing."


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
            yield (
                f"{listed}: runs ended after different numbers of steps, so the {_ordinal(place)} value of each run "
                "is shown."
            )
        else:
            yield (
                f"{listed}: not shown, because runs ended after different numbers of steps and have no value of the "
                "same step."
            )


def _ordinal(number: int) -> str:
    is_teen = 10 < number % 100 < 20
    return f"{number}{'th' if is_teen else _ORDINALS.get(number % 10, 'th')}"
