"""What the runs of a sweep leave unknown for an objective."""

from __future__ import annotations

from dmls_ray.analysis.advise.objective import Candidate, Objective
from dmls_ray.analysis.results import Results, factors_of
from dmls_ray.analysis.stats.formatting import ACCURACY, format_interval, with_sign
from dmls_ray.analysis.stats.intervals import MIN_REPEATS
from dmls_ray.analysis.stats.paired import mean_interval
from dmls_ray.analysis.summary.phrases import count_noun
from dmls_ray.analysis.table.model import Table
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.provenance import hardware_key


def caveats_of(results: Results, table: Table, objective: Objective, best: Candidate | None) -> list[str]:
    """One line for each question that the runs leave open. Each completes `Not known: ...`."""
    lines = [
        _repeats(table),
        *_origins(results, objective),
        _failed(results),
        _rising(best),
        _chosen_by_test(table, objective, best),
        _work(table, objective),
        _scope(table),
        *objective.caveats(),
    ]
    return [line for line in lines if line]


def _repeats(table: Table) -> str:
    counts = [len(row.counted) for row in table.rows if row.counted]
    few = sum(count < MIN_REPEATS for count in counts)
    if not few:
        return ""
    which = "every configuration" if few == len(counts) else count_noun(few, "configuration")
    return (
        f"how much the results of {which} with n={min(counts)} vary by chance; intervals need --repeats {MIN_REPEATS}."
    )


def _origins(results: Results, objective: Objective) -> list[str]:
    records = [record for record in results.records if record.outcome is Outcome.OK]
    machines = {hardware_key(record.machine) for record in records}
    lines = []
    if len(machines) > 1:
        lines.append(
            "whether a difference comes from the configuration or from the machine: the runs are of different machines."
        )
    if len({str(record.versions) for record in records}) > 1:
        lines.append(
            "whether a difference comes from the configuration or from the versions: the runs have different versions."
        )
    sessions = {record.session for record in records}
    if len(sessions) > 1 and objective.depends_on_machine:
        lines.append(
            f"how much the machine's speed changed between the {len(sessions)} sessions of these runs; blocks cancel "
            "only changes within a session."
        )
    if any(record.oversubscribed for record in records) and objective.depends_on_machine:
        lines.append("how fast the oversubscribed configurations are with one core per thread.")
    searched = sum(record.mode == "search" for record in records)
    if searched:
        lines.append(
            f"the times of {count_noun(searched, 'run')} in search mode: runs share the machine, and "
            "poor ones are stopped early."
        )
    return lines


def _failed(results: Results) -> str:
    failed = [record for record in results.records if not record.outcome.is_answer()]
    if not failed:
        return ""
    return f"the results of {count_noun(len(failed), 'failed run')}; the same command runs them again."


def _rising(best: Candidate | None) -> str:
    """Whether the best configuration was still improving in its last epoch."""
    if best is None:
        return ""
    steps = []
    for record in best.row.counted:
        tested = [epoch.test_accuracy for epoch in record.epochs if epoch.test_accuracy is not None]
        if len(tested) > 1 and record.best_epoch is None:
            steps.append(tested[-1] - tested[-2])
    if not steps or min(steps) <= 0:
        return ""
    rise = mean_interval(steps)
    if rise.low is not None and rise.low <= 0:
        return ""
    epochs = best.row.records[0].config.get("epochs")
    flag = f" (--epochs {2 * epochs})" if isinstance(epochs, int) else ""
    return (
        f"the accuracy after more epochs{flag}: test accuracy of {best.name} still rose in the last epoch, by "
        f"{format_interval(rise, with_sign(ACCURACY))} (n={len(steps)})."
    )


def _chosen_by_test(table: Table, objective: Objective, best: Candidate | None) -> str:
    tests = objective.target is not None or objective.measure in ("test_accuracy", "test_loss")
    if not tests or best is None or len([row for row in table.rows if row.counted]) < 2:
        return ""
    return (
        "how accurate the choice is on new samples: it was made by the test samples, so their accuracy is too high; "
        "--validation-share 0.1 keeps other samples to choose by (--metric validation_accuracy)."
    )


def _work(table: Table, objective: Objective) -> str:
    """Whether a fast or cheap configuration does less work."""
    fields_of_work = {"model", "dataset", "image_size", "train"} | (
        {"epochs"} if objective.measure == "total_s" else set()
    )
    names = [name for name in table.varied if name in fields_of_work]
    if not names or not objective.work_matters:
        return ""
    return f"which is better at equal work: these configurations differ in {' and '.join(names)}."


def _scope(table: Table) -> str:
    factors = [factors_of(row.records[0]) for row in table.rows]
    return f"anything of {table.presentation.scope(factors)}."
