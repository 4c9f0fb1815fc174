"""The answer on the critical batch: how far larger batches save steps, and which batch reaches the target first."""

from __future__ import annotations

from dmls_ray.analysis.critical_batch import COARSE, BatchPoint, CriticalBatch, describe_critical
from dmls_ray.analysis.stats.formatting import GENERIC, SECONDS, format_interval, format_value
from dmls_ray.analysis.summary.answer import Answer, Finding, cut
from dmls_ray.analysis.summary.phrases import count_noun, join_names


def answer_on_critical_batch(found: CriticalBatch) -> Answer:
    """What the global batch does to the steps and the time to a target.

    Args:
        found: the steps of each batch at its best learning rate.
    """
    first, *_, last = found.points
    critical = describe_critical(found)
    if found.noise_scale is not None:
        critical += f"; the gradient noise scale predicts {format_interval(found.noise_scale, GENERIC)}"
    findings = [Finding("critical", critical)]
    if first.steps and last.steps:
        doublings = f"{last.batch / first.batch:g}x the batch"
        saved = f"{first.steps.centre / last.steps.centre:.3g}x fewer steps"
        steps = f"{format_interval(first.steps, GENERIC)} at {first.batch}, {format_interval(last.steps, GENERIC)} at"
        findings.append(Finding("steps", f"{steps} {last.batch}: {saved} for {doublings}"))
    if found.fastest is not None and found.fastest.seconds is not None:
        fastest = found.fastest
        text = f"{format_interval(fastest.seconds, SECONDS)} s at {fastest.batch}{_rate(fastest)}"
        if first.seconds and first is not fastest:
            text += f", {format_value(first.seconds, SECONDS)} s at {first.batch}"
        findings.append(Finding("time", text))
    if censored := [point for point in found.points if point.is_censored]:
        names = [f"{point.batch} ({point.reached} of {count_noun(len(point.run_ids), 'run')})" for point in censored]
        findings.append(Finding("not reached", f"{found.target:g} by every run: {join_names(names, separator=', ')}"))
    always = [Finding("tuning", _tuning(found))]
    if coarse := [str(point.batch) for point in found.points if point.is_coarse]:
        text = (
            f"steps at {', '.join(coarse)} are fewer than {1 / COARSE:g} tests, so known roughly; raise --target-tests"
        )
        always.insert(0, Finding("resolution", text))
    return Answer(_headline(found), cut(findings, always), is_of_comparisons=False)


def _headline(found: CriticalBatch) -> str:
    critical = found.critical
    if critical is None or critical.low is None or critical.high is None:
        return f"Where larger batches stop to save steps to {found.target:g} is not known."
    batches = [point.batch for point in found.points]
    if critical.low > batches[-1]:
        return f"Up to global_batch {batches[-1]} larger batches save steps to {found.target:g} in proportion."
    if critical.high < batches[0]:
        return f"From global_batch {batches[0]} on larger batches hardly save steps to {found.target:g}."
    amount = f"{float(f'{critical.centre:.2g}'):,.10g}"
    return (
        f"Beyond a global_batch of about {amount} larger batches save less than half of the steps to {found.target:g}."
    )


def _rate(point: BatchPoint) -> str:
    rate = point.row.records[0].config.get("lr")
    return f" with lr {rate:g}" if isinstance(rate, float) else ""


def _tuning(found: CriticalBatch) -> str:
    if all(point.row.factors.get("lr") is None for point in found.points):
        return "one learning rate was tried for each batch; another may take fewer steps"
    how = "other runs than those reported" if found.is_split else "the runs that are reported, which flatters them"
    text = f"the learning rate of each batch was chosen by {how}"
    edge = [str(point.batch) for point in found.points if point.is_at_edge]
    return f"{text}; at the edge of those tried: {', '.join(edge)}" if edge else text
