"""What the runs of a sweep leave unknown for an objective."""

from __future__ import annotations

from collections.abc import Iterator

from dmls_ray.analysis.advise.effort import last_improvement
from dmls_ray.analysis.advise.objective import Candidate, Objective
from dmls_ray.analysis.metrics import limit_of
from dmls_ray.analysis.results import Results, factors_of
from dmls_ray.analysis.stats.formatting import ACCURACY, format_interval, with_sign
from dmls_ray.analysis.stats.intervals import MIN_REPEATS, clipped
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.words import count_noun
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.provenance import hardware_key, software_facts


def caveats_of(results: Results, table: Table, objective: Objective, best: Candidate | None) -> Iterator[str]:
    """One line for each question that the runs leave open. Each completes `Not known: ...`."""
    counts = [len(row.counted) for row in table.rows if row.counted]
    few = sum(count < MIN_REPEATS for count in counts)
    if few and not objective.is_exact:
        which = "every configuration" if few == len(counts) else count_noun(few, "configuration")
        needed = f"intervals need --repeats {MIN_REPEATS}"
        yield f"how much the results of {which} with n={min(counts)} vary by chance; {needed}."

    ok = [record for record in results.records if record.outcome is Outcome.OK]
    unknown_cause = "whether a difference comes from the configuration or from"
    if len({hardware_key(record.machine) for record in ok}) > 1:
        yield f"{unknown_cause} the machine: the runs are of different machines."
    if len({str(software_facts(record.versions, record.git)) for record in ok}) > 1:
        yield f"{unknown_cause} the versions: the runs have different versions."
    sessions = len({record.session for record in ok})
    if sessions > 1 and not objective.is_learned:
        yield (
            f"how much the machine's speed changed between the {sessions} sessions of these runs; blocks cancel only "
            "changes within a session."
        )
    if any(record.oversubscribed for record in ok) and not objective.is_learned:
        yield "how fast the oversubscribed configurations are with one core per thread."
    if searched := sum(record.mode == "search" for record in ok):
        runs = count_noun(searched, "run")
        yield f"the times of {runs} in search mode: runs share the machine, and poor ones are stopped early."
    if failed := sum(not record.outcome.is_answer() for record in results.records):
        yield f"the results of {count_noun(failed, 'failed run')}; the same command runs them again."

    if best is not None and (rise := _rise(best)):
        yield rise
    is_by_test = objective.target is not None or objective.measure in ("test_accuracy", "test_loss")
    if is_by_test and best is not None and len(counts) > 1:
        way_out = "--validation-share 0.1 keeps other samples to choose by (--metric validation_accuracy)"
        if not table.questions.tunes_training:
            way_out = "choose by samples that are kept for it (validation_accuracy)"
        yield (
            "how accurate the choice is on new samples: it was made by the test samples, so their accuracy is too "
            f"high; {way_out}."
        )
    fields_of_work = [
        "model",
        "dataset",
        "image_size",
        "train",
        *(["epochs"] if objective.measure == "total_s" else []),
    ]
    work = [name for name in table.varied if name in fields_of_work]
    if objective.work_matters and work:
        yield f"which is better at equal work: these configurations differ in {' and '.join(work)}."
    yield f"anything of {table.questions.scope([factors_of(row.records[0]) for row in table.rows])}."
    yield from objective.caveats()


def _rise(best: Candidate) -> str:
    """That the best configuration was still improving in its last epoch; empty if it was not."""
    rise = last_improvement(best.row, "test_accuracy")
    if rise is None:
        return ""
    by = format_interval(clipped(rise, limit_of("test_accuracy")), with_sign(ACCURACY), null=0)
    epochs = best.row.records[0].config.get("epochs")
    flag = f" (--epochs {2 * epochs})" if isinstance(epochs, int) else ""
    return (
        f"the accuracy after more epochs{flag}: test accuracy of {best.name} still rose in the last epoch, by "
        f"{by} (n={rise.n})."
    )
