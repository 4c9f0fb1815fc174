"""The rules of training by gradient descent hold for any workload, not for classification alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from dmls_ray.config.fields import Count, field_specs
from dmls_ray.config.runtime import Conflict
from dmls_ray.config.training import TrainingConfig
from dmls_ray.util.errors import ConfigError, ConflictError


@dataclass(frozen=True, kw_only=True)
class LanguageConfig(TrainingConfig):
    """A configuration of another workload."""

    context: Count = 64
    heads: Count = 2

    CONFLICTS: ClassVar[Sequence[Conflict]] = (
        Conflict(lambda config: config.context % config.heads, "context={context} does not divide by heads={heads}."),
    )


@pytest.mark.parametrize("config_class", [TrainingConfig, LanguageConfig])
def test_either_batch_gives_the_other(config_class: type[TrainingConfig]) -> None:
    by_rank = config_class(batch_per_rank=8, world_size=2, accum_steps=2)
    by_all = config_class(global_batch=32, world_size=2, accum_steps=2)
    assert (by_rank.global_batch, by_all.batch_per_rank) == (32, 8)
    assert by_rank.canonical() == by_all.canonical()
    assert by_rank.samples_per_pass == 16


@pytest.mark.parametrize("batches", [{}, {"batch_per_rank": 8, "global_batch": 8}])
def test_exactly_one_batch_is_given(batches: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="batch_per_rank.*global_batch"):
        LanguageConfig(**batches)


def test_a_batch_that_does_not_divide_is_refused_with_the_nearest_that_do() -> None:
    with pytest.raises(ConflictError, match="global_batch=10 does not divide by world_size=4.*: 8 and 12"):
        LanguageConfig(global_batch=10, world_size=4)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"context": 5}, "context=5 does not divide by heads=2"),
        ({"lr_schedule": "one-cycle", "lr_warmup_steps": 3}, "includes a warm-up"),
        ({"launcher": "inline", "world_size": 2}, "launcher=inline runs one process"),
    ],
)
def test_conflicts_of_the_class_and_of_its_bases_are_checked(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConflictError, match=message):
        LanguageConfig(**{"batch_per_rank": 8, **values})


@pytest.mark.parametrize("name", [name for name, spec in field_specs(TrainingConfig).items() if spec.setting.ddp_only])
def test_an_option_of_ddp_needs_two_ranks(name: str) -> None:
    value: Any = {"bucket_cap_mib": 1.0, "compression": "fp16"}.get(name, True)
    with pytest.raises(ConflictError, match=f"{name}={value} is an option of DDP"):
        LanguageConfig(**{"batch_per_rank": 8, name: value})
    assert getattr(LanguageConfig(**{"batch_per_rank": 8, "world_size": 2, name: value}), name) == value


@pytest.mark.parametrize(("scaling", "lr"), [("none", 0.1), ("linear", 0.4), ("sqrt", 0.2)])
def test_the_learning_rate_follows_the_global_batch(scaling: Any, lr: float) -> None:
    config = LanguageConfig(batch_per_rank=64, world_size=2, lr=0.1, lr_base_batch=32, lr_scaling=scaling)
    assert config.scaled_lr == pytest.approx(lr)


def test_a_share_of_the_samples_is_held_out_and_leaves_some_on_both_sides() -> None:
    config = LanguageConfig(batch_per_rank=8, validation_share=0.1)
    assert LanguageConfig(batch_per_rank=8).held_out(100) == 0
    assert config.held_out(100) == 10
    with pytest.raises(ConfigError, match=r"validation_share=0.1 of 4 samples holds out 0"):
        config.held_out(4)


def test_a_copy_keeps_the_batch_per_rank_unless_a_batch_is_named() -> None:
    config = LanguageConfig(batch_per_rank=16, world_size=2)
    assert config.replace(world_size=4).global_batch == 64
    assert config.replace(global_batch=64).batch_per_rank == 32
    assert config.replace(context=8).batch_per_rank == 16
