from __future__ import annotations

import dataclasses
import json
import pickle
from typing import Any

import pytest

from dmls_ray.util.errors import ConfigError, ConflictError
from dmls_ray.workloads.classification.config import DEFAULTS, TrialConfig, trial_schema


def test_global_batch_follows_from_batch_per_rank() -> None:
    assert TrialConfig(batch_per_rank=16, world_size=2, accum_steps=3).global_batch == 96


def test_batch_per_rank_follows_from_global_batch() -> None:
    assert TrialConfig(global_batch=96, world_size=2, accum_steps=3).batch_per_rank == 16


def test_the_same_trial_given_either_way_has_one_hash() -> None:
    assert TrialConfig(global_batch=64, world_size=2).hash == TrialConfig(batch_per_rank=32, world_size=2).hash


@pytest.mark.parametrize(
    ("given", "world_size", "machines", "ranks_per_machine"),
    [
        ({"machines": 2, "ranks_per_machine": 3}, 6, 2, 3),
        ({"machines": 2, "ranks_per_machine": 3, "world_size": 6}, 6, 2, 3),
        ({"machines": 2, "world_size": 4}, 4, 2, 2),
        ({"ranks_per_machine": 2, "world_size": 4}, 4, 2, 2),
        ({"machines": 1}, 1, 1, 1),
        ({"world_size": 4}, 4, None, None),
    ],
)
def test_two_of_world_size_machines_and_ranks_per_machine_determine_the_third(
    given: dict[str, int], world_size: int, machines: int | None, ranks_per_machine: int | None
) -> None:
    config = TrialConfig(batch_per_rank=8, **given)
    assert (config.world_size, config.machines, config.ranks_per_machine) == (world_size, machines, ranks_per_machine)
    assert config.global_batch == 8 * world_size
    assert TrialConfig(**config.canonical()).hash == config.hash


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"machines": 2}, "world_size=1 does not divide by machines=2; .*, or ranks_per_machine"),
        ({"world_size": 4, "ranks_per_machine": 3}, "world_size=4 does not divide by ranks_per_machine=3"),
        ({"world_size": 3, "machines": 2, "ranks_per_machine": 2}, "world_size=3 is not machines=2 x ranks_per_mach"),
        ({"world_size": 2, "machines": 2, "launcher": "spawn"}, "machines=2 .* launcher=spawn .* use launcher ray"),
    ],
)
def test_ranks_that_do_not_go_over_the_machines_evenly_conflict(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConflictError, match=message):
        TrialConfig(batch_per_rank=8, **given)


def test_ranks_that_are_packed_and_ranks_that_are_spread_are_two_trials() -> None:
    packed, spread = (TrialConfig(batch_per_rank=8, world_size=2, machines=count) for count in (None, 2))
    assert packed.hash != spread.hash
    assert packed.hash == TrialConfig(batch_per_rank=8, world_size=2).hash


def test_fields_that_follow_from_the_number_of_ranks_or_machines_are_recomputed() -> None:
    config = TrialConfig(batch_per_rank=8, machines=2, ranks_per_machine=2)
    assert config.replace(seed=5).ranks_per_machine == 2
    assert config.replace(world_size=8).ranks_per_machine == 4
    assert config.replace(machines=4).ranks_per_machine == 1
    assert config.replace(ranks_per_machine=4).world_size == 8


@pytest.mark.parametrize("batches", [{}, {"batch_per_rank": 8, "global_batch": 8}])
def test_exactly_one_batch_is_given(batches: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="batch_per_rank.*global_batch"):
        TrialConfig(**batches)


@pytest.mark.parametrize(
    ("batch", "ranks", "nearest"), [(100, 3, "99 and 102"), (2, 3, "3"), (7, 4, "4 and 8"), (1, 2, "2")]
)
def test_a_global_batch_that_does_not_divide_is_refused_with_the_nearest_that_do(
    batch: int, ranks: int, nearest: str
) -> None:
    with pytest.raises(
        ConflictError, match=rf"global_batch={batch} does not divide by world_size={ranks}.*: {nearest}\."
    ):
        TrialConfig(global_batch=batch, world_size=ranks)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("world_size", 0),
        ("world_size", 1.5),
        ("batch_per_rank", -1),
        ("epochs", 0),
        ("lr", 0.0),
        ("lr", float("nan")),
        ("momentum", 1.0),
        ("seed", 2**31),
        ("optimizer", "lion"),
        ("shuffle", 2),
        ("model", " "),
        ("data_dir", 3),
        ("dropout", 1.0),
        ("lr_warmup_steps", -1),
        ("early_stopping", "train_loss"),
        ("validation_share", 1.0),
        ("target_accuracy", 1.5),
        ("bucket_cap_mib", 0.0),
    ],
)
def test_a_wrong_value_is_refused_with_its_field(name: str, value: object) -> None:
    with pytest.raises(ConfigError, match=rf"^{name}=.*(expected|choose)"):
        TrialConfig(**{"batch_per_rank": 8, name: value})  # type: ignore[arg-type]


def test_an_unknown_choice_lists_the_right_ones() -> None:
    with pytest.raises(ConfigError, match="choose from adam, adamw, sgd, rmsprop"):
        TrialConfig(batch_per_rank=8, optimizer="lion")  # type: ignore[arg-type]


def test_momentum_is_refused_where_it_has_no_effect() -> None:
    with pytest.raises(ConflictError, match="momentum=0.9 has no effect with optimizer=adam"):
        TrialConfig(batch_per_rank=8, momentum=0.9)
    assert TrialConfig(batch_per_rank=8, momentum=0.9, optimizer="sgd").momentum == 0.9


def test_nccl_is_refused_on_the_cpu() -> None:
    with pytest.raises(ConflictError, match="backend=nccl needs GPUs"):
        TrialConfig(batch_per_rank=8, backend="nccl", device="cpu")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"precision": "tf32", "device": "cpu"}, "precision=tf32 needs GPUs.*Use precision fp32 or amp-bf16"),
        ({"batch_norm": "sync", "device": "cpu"}, "batch_norm=sync needs GPUs.*Use batch_norm on"),
        ({"compression": "powersgd", "device": "cpu", "world_size": 2}, "compression=powersgd needs GPUs"),
        ({"compression": "powersgd", "backend": "gloo", "world_size": 2}, "deadlocks with backend=gloo"),
        ({"compression": "fp16"}, "compression=fp16 is an option of DDP, which world_size=1 trains without"),
        ({"bucket_cap_mib": 1.0}, "bucket_cap_mib=1.0 is an option of DDP"),
        ({"gradient_as_bucket_view": True}, "gradient_as_bucket_view=True is an option of DDP"),
        ({"static_graph": True}, "static_graph=True is an option of DDP"),
        ({"static_graph": True, "world_size": 2, "accum_steps": 2}, "does not go with accum_steps=2"),
        ({"zero_redundancy": True}, "zero_redundancy=True is an option of DDP"),
        ({"lr_schedule": "one-cycle", "lr_warmup_steps": 3}, "includes a warm-up"),
        ({"early_stopping": "validation_loss"}, "validation_share=0 holds none out"),
        ({"noise_scale": True}, "compares gradients of two batch sizes"),
        ({"noise_scale": True, "compression": "powersgd", "world_size": 2}, "needs exact averaged gradients"),
    ],
)
def test_values_that_do_not_go_together_are_refused_with_the_way_out(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConflictError, match=message):
        TrialConfig(**{"batch_per_rank": 8, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize(("scaling", "lr"), [("none", 0.1), ("linear", 0.4), ("sqrt", 0.2)])
def test_the_learning_rate_follows_the_global_batch_as_asked(scaling: str, lr: float) -> None:
    config = TrialConfig(batch_per_rank=64, world_size=2, lr=0.1, lr_base_batch=32, lr_scaling=scaling)  # type: ignore[arg-type]
    assert config.scaled_lr == pytest.approx(lr)


def test_replace_keeps_batch_per_rank_unless_a_batch_is_named() -> None:
    config = TrialConfig(batch_per_rank=16, world_size=2)
    assert config.replace(world_size=4).global_batch == 64
    assert config.replace(global_batch=64).batch_per_rank == 32
    assert config.replace(batch_per_rank=8).global_batch == 16


def test_a_configuration_is_frozen_and_keyword_only() -> None:
    config = TrialConfig(batch_per_rank=8)
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.epochs = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        TrialConfig("convnet")  # type: ignore[misc]


def test_the_canonical_form_survives_json_and_the_configuration_pickling() -> None:
    config = TrialConfig(global_batch=64, world_size=2, optimizer="sgd", momentum=0.9)
    assert TrialConfig(**json.loads(json.dumps(config.canonical()))) == config
    assert pickle.loads(pickle.dumps(config)) == config


def test_golden_hashes_so_that_results_on_disk_keep_their_names() -> None:
    # A change here loses every result that was ever recorded: change the default's meaning, not its hash.
    assert TrialConfig(batch_per_rank=32).hash == "183cccde0438"
    assert TrialConfig(batch_per_rank=32, world_size=2, optimizer="sgd", momentum=0.9).hash == "582f6b62905c"


def test_a_field_at_its_default_is_left_out_of_the_hash() -> None:
    given = {"batch_per_rank": 32}
    assert trial_schema().hash_of(given) == trial_schema().hash_of({**given, "epochs": DEFAULTS["epochs"]})
    assert trial_schema().hash_of(given) != trial_schema().hash_of({**given, "epochs": DEFAULTS["epochs"] + 1})


def test_an_unknown_field_is_refused_with_a_list_of_the_fields() -> None:
    with pytest.raises(ConfigError, match="batchsize is no field.*batch_per_rank"):
        trial_schema().check("batchsize", 3)
