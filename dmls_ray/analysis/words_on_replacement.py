"""The sentence of `ab`: why one value of a field may take the place of another one, or may not."""

from __future__ import annotations

from dmls_ray.analysis.findings.effects import Effect
from dmls_ray.analysis.findings.replacement import Replacement
from dmls_ray.analysis.stats.looks import FIRST_LOOK
from dmls_ray.analysis.words import amount_text
from dmls_ray.analysis.words_on_pairs import with_place

_TAKES = {
    "speed": "is {} as fast as {first}",
    "step_ms_mean": "takes {} as long for a step as {first}",
    "total_s": "takes {} as long as {first}",
}
"""Name of a measure -> what a value of a field is or takes, against the first one."""


def replacement_text(found: Replacement, first: str, second: str) -> str:
    """Why one value of a field may take the place of the first one, or may not."""
    if found.word == "failed":
        return f"no run of {first} ended ok, so there is nothing to compare {second} with"
    if found.outcomes:
        return f"{second} does not work ({', '.join(found.outcomes)}), but {first} does"
    told = []
    for effect in found.effects:
        told.append(f"{_told(effect, first)}{with_place(effect.pair)} (n={effect.contrast.n})")
    lacks = f"was not measured in the same blocks as {first}"
    if found.allowed is None:
        lacks += f", or {first} has no such number (--metric-regex NAME PATTERN reads one that is printed)"
    for pair in found.apart:
        told.append(f"{lacks}{with_place(pair)}")
    ends = {"keep": "better beyond chance", "discard": "not better", "cannot say": "whether it is better is undecided"}
    if found.allowed is not None:
        allowed = f"slower by more than {100 * found.allowed:.3g}%"
        ends = {"keep": f"not {allowed}", "discard": allowed, "cannot say": f"whether it is {allowed} is undecided"}
    text = f"{second} {', '.join(told) or f'has nothing to compare with {first}'}"
    failed = [f"{failure}, other than those of {first}" for failure in found.failures]
    failed += [f"of {first}, {failure}, other than those of {second}" for failure in found.failures_of_base]
    if found.word != "cannot say" or found.open or not failed:
        text += f"; {ends[found.word]}"
    if found.word != "cannot say" or failed:
        return "; but ".join([text, *failed])
    if any(effect.verdict == "once" and effect.contrast.n > 1 for effect in found.effects):
        return f"{text}: its repeats repeat one run, for which the seed of each makes no difference"
    if found.apart and found.allowed is not None:
        return f"{text}: no block has both on the same machine with the same versions"
    if found.apart:
        return text
    if any(effect.contrast.half_width_after is None for effect in found.open):
        return f"{text}; an interval needs {FIRST_LOOK} repeats of both"
    if found.repeats_wanted is None:
        return f"{text}, and more repeats are unlikely to decide it"
    return f"{text}; about {found.repeats_wanted} repeats decide it: --max-repeats {found.repeats_wanted}"


def _told(effect: Effect, first: str) -> str:
    """An effect in words that follow the name of a value."""
    usual = (
        "has {noun} {{}} against {{first}}" if effect.measure.is_ratio else "differs in {noun} by {{}} from {{first}}"
    )
    words = _TAKES.get(effect.measure.name, usual.format(noun=effect.measure.noun))
    return words.format(amount_text(effect), first=first)
