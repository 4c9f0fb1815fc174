"""What to run and how: fields, configuration base classes, options, grids and search spaces. Performs no I/O.

Public for workloads: `runtime.RuntimeConfig`, `training.TrainingConfig` and `fields.setting`. The rest is not public,
except `dmls_ray.Range`.
"""

from typing import Any

from dmls_ray.util.former_names import former_attribute


def __getattr__(name: str) -> Any:
    return former_attribute(globals(), name, TrialConfig="dmls_ray:TrialConfig")
