"""A search: many runs side by side, poor ones stopped early, and configurations that a searcher proposes."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable
from typing import Any

from ray import tune
from ray.tune.schedulers import TrialScheduler
from ray.tune.search import SEARCH_ALG_IMPORT, Searcher

from dmls_ray.config.axes import Range
from dmls_ray.config.search_space import SearchSpace
from dmls_ray.records.model import RunRecord
from dmls_ray.util.errors import ConfigError


def make_scheduler(name: str, *, metric: str, mode: str, max_epochs: int) -> TrialScheduler | None:
    """The rule by which poor runs are stopped.

    ASHA is Li et al., arXiv 1810.05934; the median rule is Golovin et al., Google Vizier, KDD 2017.

    Args:
        name: `asha`, `median` or `none`.
        metric: what the rule goes by.
        mode: `min` or `max`.
        max_epochs: how many epochs a run may have.
    """
    if name == "none":
        return None
    common = {"time_attr": "epoch", "metric": metric, "mode": mode}
    if name == "median":
        return tune.create_scheduler("median_stopping_rule", grace_period=1, **common)
    # A run that reaches its last epoch ends by itself.
    return tune.create_scheduler("async_hyperband", max_t=max_epochs, grace_period=1, stop_last_trials=False, **common)


def make_searcher(name: str, space: SearchSpace, *, metric: str, mode: str, seed: int) -> Searcher:
    """One of Tune's searchers over this space.

    Raises:
        ConfigError: Tune has none of that name, or the library that it needs is not installed.
    """
    names = [key for key in SEARCH_ALG_IMPORT if key not in ("variant_generator", "random", "bohb")]
    if name not in names:
        raise ConfigError(f"searcher={name} is unknown; choose from grid, random, {', '.join(names)}.")
    kind = SEARCH_ALG_IMPORT[name]()
    takes = inspect.signature(kind.__init__).parameters
    seeds = {key: seed for key in ("seed", "random_state_seed", "random_seed") if key in takes}
    try:
        searcher = tune.create_searcher(name, metric=metric, mode=mode, **seeds)
        # Its library would log each proposal.
        logging.getLogger(name).setLevel(logging.WARNING)
        domains = {field: _domain(item, whole=space.is_whole(field)) for field, item in space.free.items()}
        searcher.set_search_properties(metric, mode, domains)
    except (ImportError, AssertionError) as error:
        reason = " ".join(str(error).split())
        raise ConfigError(
            f"searcher={name} cannot be used here ({reason}); pip install {name}, or use random."
        ) from error
    return searcher


def _domain(item: tuple[Any, ...] | Range, *, whole: bool) -> Any:
    """The values of one field of a space, as Tune writes them."""
    if not isinstance(item, Range):
        return tune.choice(list(item))
    if whole:
        # Tune leaves the upper end out.
        low, high = round(item.low), round(item.high) + 1
        return tune.lograndint(low, high) if item.log else tune.randint(low, high)
    return tune.loguniform(item.low, item.high) if item.log else tune.uniform(item.low, item.high)


def add_earlier_runs(searcher: Searcher, earlier: Iterable[RunRecord], metric: str) -> dict[str, float | None]:
    """Give a searcher the results of the runs that it proposed before; return the metric of each.

    Raises:
        ConfigError: it cannot take them up.
    """
    levels = {}
    for record in earlier:
        level = levels[record.run_id] = record.metrics.get(metric)
        try:
            searcher.add_evaluated_point(record.proposed, level, error=level is None)
        except NotImplementedError as error:
            raise ConfigError(
                f"searcher={type(searcher).__name__} cannot take up a search that has begun; use --fresh, or optuna."
            ) from error
    return levels
