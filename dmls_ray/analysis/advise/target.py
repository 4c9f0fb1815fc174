"""The test accuracy that a configuration must reach to be chosen."""

from __future__ import annotations

from dmls_ray.analysis.table.model import Table
from dmls_ray.util.errors import ConfigError


def target_of(table: Table, target: float | None) -> float:
    """The test accuracy to be reached: the given one, else that of the runs.

    Raises:
        ConfigError: no run reports a test accuracy, or neither has a target.
    """
    rows = [row for row in table.rows if row.value_of("test_accuracy") is not None]
    if not rows:
        raise ConfigError("--target-accuracy needs test accuracies, and no run reports one; give --for throughput.")
    if target is not None:
        return target
    targets = {record.config.get("target_accuracy") for row in rows for record in row.records}
    if len(targets) == 1 and (target := targets.pop()) is not None:
        return float(target)
    reached = [row.value_of("test_accuracy") or 0.0 for row in rows if not row.independent_ranks]
    highest = f"the highest test accuracy is {max(reached):.3f}" if reached else "no ranks trained one model together"
    why = "the runs have none" if targets <= {None} else "the runs have several"
    raise ConfigError(f"--for time-to-accuracy needs a target, and {why}; give --target-accuracy ({highest}).")
