"""The speed-up of each trial over the baseline of its group."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_ray.analysis.table.row import Row


def add_scaling_speed_up(rows: Sequence[Row], fixed_batch_field: str) -> None:
    """Against world size 1 at the same fixed batch, all else equal."""
    free = {"world_size", "machines", "ranks_per_machine", "batch_per_rank", "global_batch"} - {fixed_batch_field}

    def rest(row: Row, *besides: str) -> str:
        return repr([value for name, value in row.factors.items() if name not in free and name not in besides])

    bases = {rest(row): row for row in reversed(rows) if row.world_size == 1}
    # world_size=1 has no backend, so it is the baseline for every backend.
    lone = [row for row in rows if row.world_size == 1 and not row.factors.get("backend")]
    alone = {rest(row, "backend"): row for row in reversed(lone)}
    for row in rows:
        base = bases.get(rest(row), alone.get(rest(row, "backend"))) if row.world_size > 1 else None
        if base is not None:
            row.speed_up = row.speed_against(base)
