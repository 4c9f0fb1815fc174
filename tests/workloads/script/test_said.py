"""`--samples`: the arithmetic of a user."""

from __future__ import annotations

import pytest

from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.script.said import counts_said

VALUES = {"batch_size": 16, "world_size": 2, "length": "1024", "opt": "sgd", "steps": None}


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("batch_size * world_size", {"samples": 32}),
        ("batch_size * world_size, tokens=batch_size * length", {"samples": 32, "tokens": 16384}),
        ("tokens=(batch_size + 1) // 2 - 0.5", {"tokens": 7.5}),
        ("samples=-(-batch_size) / 4", {"samples": 4}),
        ("12", {"samples": 12}),
    ],
)
def test_samples_and_tokens_are_what_the_arithmetic_gives(text: str, counts: dict[str, float]) -> None:
    assert counts_said(text, VALUES.__getitem__, [*VALUES]) == counts


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("batch_sise", "there is no flag or field batch_sise; did you mean batch_size?"),
        ("opt", "opt is 'sgd', which is no number; give opt one"),
        ("steps", "steps is None, which is no number"),
        ("batch_size ** 2", "batch_size ** 2 is none of"),
        ("__import__('os').system('true')", "is none of"),
        ("'a'", "'a' is none of"),
        ("True", "True is none of"),
        ("batch_size *", "is no arithmetic; give"),
        ("1) + g(2", "is no arithmetic; give"),
        ("1, 2", "does not say samples, tokens, or both"),
        ("images=3", "does not say samples, tokens, or both"),
        ("*batch_size", "is none of"),
        ("batch_size - 16", "samples of a step are 0; they have to be positive"),
        ("tokens=batch_size / 0", "tokens of a step are nan; they have to be positive"),
    ],
)
def test_anything_else_is_refused_in_one_line(text: str, line: str) -> None:
    with pytest.raises(ConfigError) as refused:
        counts_said(text, VALUES.__getitem__, [*VALUES])
    assert str(refused.value).startswith(f"--samples {text}")
    assert line in str(refused.value)
