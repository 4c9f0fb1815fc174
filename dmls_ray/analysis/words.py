"""The sentences of answers: templates, which the effects fill in."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence

from dmls_ray.analysis.findings.answer import MOST_ROWS, Answer, Missing
from dmls_ray.analysis.findings.effects import Comparison, Effect
from dmls_ray.analysis.findings.question import Decision
from dmls_ray.analysis.stats.formatting import GENERIC, POINTS, format_interval, format_value, ratio_text, with_sign
from dmls_ray.analysis.stats.intervals import Interval
from dmls_ray.analysis.stats.looks import FIRST_LOOK
from dmls_ray.analysis.trials.axis import Pair
from dmls_ray.analysis.trials.trial import Trial, describe_configuration
from dmls_ray.analysis.words_on_pairs import base_text, field_noun, pair_text
from dmls_ray.config.value_texts import duration

HEADLINES: Mapping[str, str] = {
    "none_ok": "No run ended ok, so nothing is compared.",
    "one_trial": "Only one trial was measured, so nothing is compared.",
    "one_together": "Nothing is compared: in all trials but one, the ranks trained separate models.",
    "not_compared": "Nothing is compared: no two trials differ in only one field and ran together on the same machine "
    "and device with the same versions.",
    "pair": "{pair}: {effects}.",
    "none_better": "No {field} is better than {base} beyond chance. The closest is {pair}: {effects}.",
    "none_without_loss": "No {field} is better than {base} beyond chance without being worse in another measure. The "
    "closest is {pair}: {effects}.",
    "none_differs": "No {field} differs from {base} beyond chance. The largest difference is {pair}: {effects}.",
    "least_found": "The least {metric} of {count} configurations is {effects}, with {pair}.",
    "highest_found": "The highest {metric} of {count} configurations is {effects}, with {pair}.",
    "not_reported": "No run that ended ok reported its {metric}.",
    "critical": "Beyond a global_batch of about {critical:,.10g}, larger batches save less than half of the steps to "
    "test accuracy {target:g}.",
    "critical_above": "Up to global_batch {last}, the steps to test accuracy {target:g} fall in proportion to the "
    "batch.",
    "critical_below": "From global_batch {first} on, larger batches hardly reduce the steps to test accuracy "
    "{target:g}.",
    "critical_unknown": "The critical batch for test accuracy {target:g} is not known.",
}
WORST = " The worst is {pair}: {effects}."
LOSSLESS = " The best without a loss beyond chance is {pair}: {effects}."
EFFECTS: Mapping[str, str] = {
    "speed": "{amount} as fast",
    "duration": "{amount} as long",
    "step_ms_mean": "a step takes {amount} as long",
    "overhead_s": "{amount} s of start-up",
    "ratio": "{amount} the {noun}",
    "points": "{amount} of {noun}",
    "difference": "{amount} of {noun}",
    "level": "{amount}",
}
"""Kind of a measure, or the metric of one -> an effect that is beyond chance."""
VERDICTS: Mapping[str, str] = {
    "equal": "equal {noun}",
    "close": "no difference in {noun} beyond chance",
    "open": "{noun} undecided ({text})",
    "once": "{noun} {text}, measured once",
}
"""Verdict -> another effect."""
_EQUAL_SO_FAR = "equal {noun} in each of {repeats}"
_WITHOUT_INTERVAL = " in {repeats} (too few for an interval)"
CAVEATS: Mapping[str, str] = {
    "not_measured": "not measured: {names}",
    "independent": "not compared, because their ranks trained separate models: {names}",
    "sessions": "speeds not compared, because the two trials never ran in the same block of one session: {names}; "
    "--whole-blocks runs both again, and dmls-ray ab compares two versions of code",
    "held_clocks": "GPU clocks were throttled: {names}",
    "throttling": "the CPU quota of the container stopped the ranks: {names}",
    "above_linear": "faster by more than the number of ranks (a note of the table says what may be the cause): {names}",
    "other_work": "other programs used the processor during some runs (the notes of the table name them)",
    "resident": "memory: after few steps, the resident set grows mostly by memory that the allocator keeps, up to "
    "three times the tensors, so a larger batch may show less growth ({names})",
    "best_of_many": "the best of many configurations looks better than it is; train it again with other seeds",
    "misfit": "steps do not follow the curve S_min (1 + B_crit / B): at {batch} the curve gives {curve:.4g}, and "
    "{steps:.4g} were measured",
    "few_batches": "the critical batch: fewer than {fewest} batches reach {target:g} in every run",
    "not_reached": "steps at {batches}: not every run reaches {target:g}",
    "coarse": "steps at {batches}: fewer than {tests:g} tests were made before the target was reached; raise "
    "--target-tests",
    "tuned_by_reported": "learning rates: they were chosen by the reported runs, so these look better than they are",
    "at_edge": "the best learning rate at {batches}: it is the smallest or the largest that was tried",
}
"""What a reader must know -> the words."""
INTERVALS = "Intervals [95%] hold for all comparisons together, which makes them wider than single ones."
"""What the intervals of a table of effects are."""
_KNOWN_ROUGHLY = 0.3
"""Half-width of an interval of ratios, in the logarithm, up to which it may be close enough for a user."""
_SHOWN = 2
"""Open comparisons that are named."""


def headline_text(answer: Answer) -> str:
    """The headline of an answer."""
    facts = dict(answer.facts)
    if answer.lead:
        facts |= _facts_of(answer.lead)
    text = _missing_text(answer.missing) + HEADLINES[answer.headline].format(**facts)
    if answer.worst:
        text += WORST.format(**_facts_of(answer.worst))
    if answer.lossless:
        text += LOSSLESS.format(**_facts_of(answer.lossless))
    return text


def _missing_text(missing: Missing | None) -> str:
    """That the field that was asked about is not compared, and why; empty where it is."""
    if missing is None:
        return ""
    names = join_names([str(value) for value in missing.values], separator=", ")
    reason = missing.reason.partition(". ")[0].removesuffix(".") or ", ".join(missing.outcomes)
    verb = "was" if len(missing.values) == 1 else "were"
    return f"{missing.field} is not compared, since {names} {verb} not measured: {reason}. "


def overfitting_text(answer: Answer) -> str:
    """Which trials overfit, from which epoch on, and how they end; empty where test losses are not known."""
    is_alone = not answer.comparisons
    texts = []
    for item in answer.overfitting:
        first = f"{item.first} of {item.epochs}" if item.first == item.last else f"{item.first} to {item.last}"
        text = f"from epoch {first} on"
        if not is_alone:
            text = f"{describe_configuration(item.trial.factors)} {text}"
        if not item.is_beyond_chance:
            text += f" in {count_noun(len(item.trial.counted), 'run')}"
        in_training, in_test = item.trial.value_of("train_accuracy"), item.trial.value_of("test_accuracy")
        if in_training is not None and in_test is not None:
            text += f" (accuracy {in_training:.3f} in training, {in_test:.3f} in the test)"
        texts.append(text)
    if texts:
        return f"Overfitting (test loss rises while train loss falls): {join_names(texts, _SHOWN)}."
    return "Overfitting is not shown." if answer.is_without_overfitting else ""


def beside_text(comparison: Comparison) -> str:
    """What another field does, in a sentence: to speed and results; empty where neither can be compared."""
    effects = [effect_text(effect) for effect in comparison if effect.measure.is_judged]
    return f"{pair_text(comparison[0].pair)}: {', '.join(effects)}." if effects else ""


def _facts_of(comparison: Comparison) -> dict[str, str]:
    pair, effects = comparison[0].pair, []
    for effect in comparison:
        # Memory only where it differs, and nothing of what was set.
        is_telling = effect.measure.is_judged or effect.verdict in ("more", "less")
        if effect.measure.is_outcome and is_telling:
            effects.append(effect_text(effect))
    return {
        "pair": pair_text(pair), "field": field_noun(pair), "base": base_text(pair),
        "effects": ", ".join(effects) or "not compared in speed",
    }  # fmt: skip


def effect_text(effect: Effect) -> str:
    """An effect in a sentence: `2.83x as fast`, `equal test accuracy`."""
    words = EFFECTS.get(effect.measure.metric, EFFECTS[effect.measure.kind])
    template = VERDICTS.get(effect.verdict, words)
    contrast = effect.contrast
    if effect.verdict == "open" and contrast.is_equal:
        template = _EQUAL_SO_FAR
    elif effect.verdict == "open" and contrast.low is None:
        template = words + _WITHOUT_INTERVAL
    repeats = count_noun(contrast.n, "repeat")
    amount = amount_text(effect, interval=False)
    return template.format(amount=amount, noun=effect.measure.noun, text=amount_text(effect), repeats=repeats)


def amount_text(effect: Effect, *, interval: bool = True) -> str:
    """The number of an effect: `2.83x [2.26, 3.54]`, `-9.9 points [-15.9, -4.0]`."""
    value, kind = effect.contrast, effect.measure.kind
    if effect.measure.is_ratio:
        return ratio_text(value, x=True, interval=interval)
    write = format_interval if interval else format_value
    if kind != "points":
        return write(value, GENERIC if kind == "level" else with_sign(GENERIC), null=0.0)
    low, high = (end and 100 * end for end in (value.low, value.high))
    number, bracket, ends = write(Interval(100 * value.centre, low, high), POINTS, null=0.0).partition(" [")
    return f"{number} percentage points{bracket}{ends}"


def effect_cell(effect: Effect) -> str:
    """An effect in a cell, without the unit of its heading; `?` where more repeats may decide it."""
    is_known = effect.contrast.low != effect.contrast.high
    text = amount_text(effect, interval=is_known).replace(" percentage points", "")
    if effect.contrast.is_equal and effect.contrast.n > 1:
        text = "equal each time"
    return f"{text} ?" if effect.verdict == "open" else text


def effect_head(effect: Effect) -> str:
    """The heading of the column of an effect."""
    measure = effect.measure
    return f"{measure.noun} (points)" if measure.kind == "points" else measure.noun


def undecided_text(answer: Answer, decision: Decision | None) -> str:
    """What is not known, and what would decide it; empty where nothing is compared."""
    parts = []
    mark = "?"
    is_compared = any(comparison[0].verdict != "level" for comparison in answer.comparisons)
    if decision is not None and decision.claims and is_compared:
        parts.append(_open_text(decision, decision.without_row(answer.comparisons[:MOST_ROWS])))
        within = f"{100 * decision.until.within:.3g}"
        mark = f"?: not beyond chance, and not known to within {within}% or {within} points"
    for name, facts in answer.caveats.items():
        shown = dict(facts)
        for key, value in facts.items():
            if isinstance(value, list):
                names = [pair_text(item) if isinstance(item, Pair) else str(item) for item in value]
                shown[key] = join_names(names, _SHOWN, ", ")
        parts.append(CAVEATS[name].format(**shown))
    return f"Undecided ({mark}): {'; '.join(parts)}." if parts else ""


def progress_text(decision: Decision) -> str:
    """What is open and what follows, while the sweep goes on."""
    stage = decision.stage
    assert stage is not None
    claims, state = (decision.open, "still open") if decision.open else (decision.rough, "known only roughly")
    more = stage.next_blocks - stage.blocks
    count = f"{len(claims)} of {count_noun(len(decision.claims), 'comparison')}"
    return (
        f"After {count_noun(stage.blocks, 'repeat')}, {state}: {count} ({_names(claims)}); next, "
        f"{count_noun(more, 'more repeat')}, about {duration(more * stage.block_s)}.{_beaten_text(decision)}"
    )


def end_text(decision: Decision) -> str:
    """Why no more blocks are run; empty without comparisons."""
    if not decision.claims and not decision.beaten:
        return ""
    named = f" ({_names(decision.open)})" if decision.open else ""
    return f"Undecided{named}: {_open_text(decision)}.{_beaten_text(decision)}"


def _open_text(decision: Decision, hidden: Sequence[Effect] = ()) -> str:
    """How many comparisons are open, those of them that the table of effects hides, and what decides them."""
    stage, realistic = decision.stage, decision.realistic
    text = f"{len(decision.open) or 'none'} of {count_noun(len(decision.claims), 'comparison')}"
    if stage is not None:
        text += f" after {count_noun(stage.blocks, 'repeat')}"
    if hidden:
        text += f" (without a row: {_names(hidden)})"
    texts = [text]
    if not decision.open:
        return texts[0]
    widest, is_ratio = decision.open[0].contrast.half_width, decision.open[0].measure.is_ratio
    if stage is not None and widest is not None and is_ratio and widest < _KNOWN_ROUGHLY:
        texts.append(f"--within {math.ceil(100 * math.expm1(widest))}% would count them as known")
    if decision.goes_on:
        return f"{texts[0]}; --repeats auto adds more"
    if realistic:
        texts.append(f"about {realistic[-1]} repeats would decide {len(realistic)} of them: {_flags(decision)}")
    if hopeless := decision.hopeless:
        names = join_names([f"{pair_text(claim.pair)}, {claim.measure.noun}" for claim in hopeless], _SHOWN)
        texts.append(f"no realistic number of repeats decides {len(hopeless)} of them on this machine ({names})")
    if stage is None and not decision.repeats_wanted:
        texts.append(f"an interval needs {FIRST_LOOK} repeats of both trials in one session; --repeats auto runs them")
    return "; ".join(texts)


def _flags(decision: Decision) -> str:
    """The flags that allow as many repeats as are wanted."""
    stage, repeats = decision.stage, decision.realistic[-1]
    if stage is None:
        return f"--repeats {repeats}"
    flags = f"--max-repeats {repeats}"
    if decision.until.budget is None:
        return flags
    minutes = math.ceil((repeats - FIRST_LOOK) * stage.block_s * 1.2 / 60)  # with some to spare
    return f"{flags} --budget {minutes}m"


def _beaten_text(decision: Decision) -> str:
    if not decision.beaten:
        return ""
    names = join_names([describe_configuration(trial.factors) for trial in decision.beaten], separator=", ")
    return f" Worse for {decision.until.aim}, so left out of further repeats: {names}."


def _names(claims: Sequence[Effect]) -> str:
    return join_names([claim_text(claim) for claim in claims], most=_SHOWN)


def claim_text(claim: Effect) -> str:
    """`batch_per_rank 64 vs 32 (2 ranks): speed 1.03x [0.97, 1.10]`."""
    return f"{pair_text(claim.pair)}: {claim.measure.noun} {amount_text(claim)}"


def no_metric_text(metric: str) -> str:
    """What helps where a sweep is judged by a metric that no run has."""
    way_out = "--metric-regex NAME PATTERN reads one that is printed, --steps none runs a script to its end"
    return f"No run has a number {metric}: {way_out}."


def describe_unfinished(left: int, asked: int) -> str:
    """How many of the runs that were asked for have not ended, and what runs them."""
    again = "the same command without --fresh runs them"
    return f"Unfinished: {left:,} of the {asked:,} requested runs; {again}."


def names_of(trials: Iterable[Trial], is_so: Callable[[Trial], object]) -> str:
    """The names of those trials of which something is so; empty without one."""
    return join_names([describe_configuration(trial.factors) for trial in trials if is_so(trial)])


def join_names(names: Sequence[str], most: int = 4, separator: str = "; ") -> str:
    """Names one after the other; of many the first, and how many more there are."""
    shown = separator.join(names[:most])
    return shown if len(names) <= most else f"{shown}{separator}and {len(names) - most} more"


def count_noun(count: int, noun: str) -> str:
    """`1 rank`, `2 ranks`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
