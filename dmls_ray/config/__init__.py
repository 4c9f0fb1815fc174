"""What to run and how: fields, configuration base classes, options, grids and search spaces. Performs no I/O.

Public for workloads: `runtime.RuntimeConfig`, `training.TrainingConfig` and `fields.setting`. The rest is not public,
except `dmls_ray.Range`.
"""

from __future__ import annotations

import warnings
from typing import Any


def __getattr__(name: str) -> Any:
    if name != "TrialConfig":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(
        "dmls_ray.config.TrialConfig has moved; import TrialConfig from dmls_ray.", DeprecationWarning, stacklevel=2
    )
    import dmls_ray

    return dmls_ray.TrialConfig
