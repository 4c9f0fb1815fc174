"""Command lines: sweep scripts, `dmls-ray` and the progress view.

Not public, except `sweep_script.main` for sweep scripts.
"""

from typing import Any

from dmls_ray.util.former_names import former_attribute


def __getattr__(name: str) -> Any:
    # Where the module `cli.main` is loaded already, Python finds that one: sweep scripts do not load it.
    return former_attribute(globals(), name, main="dmls_ray.cli.sweep_script:main")
