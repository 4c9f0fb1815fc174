"""How the results of scripts are read."""

from __future__ import annotations

from dmls_ray.analysis.table.presentation import Presentation


class ScriptPresentation(Presentation):
    """Of a script, what it was and for how long it ran are named below a table."""

    always_named = ("script", "arguments", "steps")
