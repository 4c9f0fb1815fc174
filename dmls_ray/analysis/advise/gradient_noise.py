"""The batch size that the gradient noise scale suggests."""

from __future__ import annotations

import math

from dmls_ray.analysis.advise.objective import Candidate
from dmls_ray.analysis.results import factors_of
from dmls_ray.analysis.stats.formatting import GENERIC, format_interval
from dmls_ray.analysis.summary.phrases import describe_configuration
from dmls_ray.analysis.table.model import Table


def batch_by_noise_scale(table: Table, best: Candidate | None) -> str:
    """Which global batch the noise scale suggests, and what that means; empty where it was not measured.

    McCandlish et al. 2018, arXiv 1812.06162, section 2: to a given loss, (steps / fewest steps - 1) x (samples / fewest
    samples - 1) = 1, and both are twice their least at a batch of about the noise scale.

    Args:
        table: the sweep's table.
        best: the configuration whose noise scale is looked at first.
    """
    rows = [row for row in table.rows if "gradient_noise_scale" in row.estimates]
    rows = [row for row in rows if row.estimates["gradient_noise_scale"].median > 0]
    if not rows:
        return ""
    row = next((row for row in rows if best is not None and row is best.row), rows[0])
    scale = row.estimates["gradient_noise_scale"]
    size = _power_of_two(scale.median)
    bounds = ""
    if scale.low is not None and scale.high is not None and scale.low > 0 and scale.high < 2**31:
        low, high = _power_of_two(scale.low), _power_of_two(scale.high)
        bounds = f" ({low} to {high} by its interval)" if low < high else ""
    levels = [other.estimates["gradient_noise_scale"].median for other in rows]
    spread = f"; {GENERIC(min(levels))} to {GENERIC(max(levels))} over configurations" if len(rows) > 1 else ""
    tried = {factors_of(other.records[0]).get("global_batch") for other in table.rows}
    return (
        f"--global-batch {size}{bounds}, {'which was tried' if size in tried else 'not tried'}, is about the gradient "
        f"noise scale of {describe_configuration(row.factors)}: {format_interval(scale, GENERIC)} samples "
        f"(n={scale.n}{spread}). There "
        "training takes twice the fewest steps and twice the fewest samples (McCandlish et al. 2018, arXiv "
        "1812.06162); the scale grows while training goes on, and says nothing of how fast a step is."
    )


def _power_of_two(value: float) -> int:
    return int(2 ** max(round(math.log2(value)), 0))
