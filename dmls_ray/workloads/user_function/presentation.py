"""How the results of a user-defined training function are read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dmls_ray.analysis.findings.questions import Questions


class UserFunctionQuestions(Questions):
    """The default, which names the functions."""

    def scope(self, factors: Sequence[Mapping[str, Any]]) -> str:
        return f"another function than {' and '.join(sorted({str(values.get('train')) for values in factors}))}"
