from __future__ import annotations

import json
import pickle

import pytest

from dmls_ray.util.errors import ConflictError
from dmls_ray.workloads.classification import datasets
from dmls_ray.workloads.classification.config import DEFAULTS, TrialConfig
from dmls_ray.workloads.classification.workload import ClassificationWorkload


def hash_of(config: TrialConfig) -> str:
    return ClassificationWorkload().schema().hash_of(config.canonical())


def test_ranks_that_are_packed_and_ranks_that_are_spread_are_two_trials() -> None:
    packed, spread = (TrialConfig(batch_per_rank=8, world_size=2, machines=count) for count in (None, 2))
    assert hash_of(packed) != hash_of(spread)
    assert hash_of(packed) == hash_of(TrialConfig(batch_per_rank=8, world_size=2))


def test_fields_that_follow_from_the_number_of_ranks_or_machines_are_recomputed() -> None:
    config = TrialConfig(batch_per_rank=8, machines=2, ranks_per_machine=2)
    assert config.replace(seed=5).ranks_per_machine == 2
    assert config.replace(world_size=8).ranks_per_machine == 4
    assert config.replace(machines=4).ranks_per_machine == 1
    assert config.replace(ranks_per_machine=4).world_size == 8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"precision": "tf32", "device": "cpu"}, "precision=tf32 needs GPUs.*Use precision fp32 or amp-bf16"),
        ({"batch_norm": "sync", "device": "cpu"}, "batch_norm=sync needs GPUs.*Use batch_norm on"),
        ({"compression": "powersgd", "device": "cpu", "world_size": 2}, "compression=powersgd needs GPUs"),
        ({"compression": "powersgd", "backend": "gloo", "world_size": 2}, "deadlocks with backend=gloo"),
        ({"static_graph": True, "world_size": 2, "accum_steps": 2}, "does not go with accum_steps=2"),
        ({"quantization": "qat", "device": "cuda"}, "quantization=qat is for CPUs.* Use device cpu"),
        ({"quantization": "qat", "precision": "amp-bf16"}, "precision=amp-bf16; use precision fp32"),
        ({"quantization": "qat", "compile": "default"}, "with compile=default; use compile off"),
        ({"early_stopping": "validation_loss"}, "validation_share=0 holds none out"),
        ({"target_tests": 4}, "target_tests=4 needs a target"),
        ({"stop_at_target": True}, "stop_at_target=True needs a target"),
        ({"noise_scale": True}, "compares gradients of two batch sizes"),
        ({"noise_scale": True, "compression": "powersgd", "world_size": 2}, "needs exact averaged gradients"),
    ],
)
def test_values_that_do_not_go_together_are_refused_with_the_way_out(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ConflictError, match=message):
        TrialConfig(**{"batch_per_rank": 8, **changes})  # type: ignore[arg-type]


def test_the_canonical_form_survives_json_and_the_configuration_pickling() -> None:
    config = TrialConfig(global_batch=64, world_size=2, optimizer="sgd", momentum=0.9)
    assert TrialConfig(**json.loads(json.dumps(config.canonical()))) == config
    assert pickle.loads(pickle.dumps(config)) == config


def test_golden_hashes_so_that_results_on_disk_keep_their_names() -> None:
    # A change here loses every result that was ever recorded: change the default's meaning, not its hash.
    assert hash_of(TrialConfig(batch_per_rank=32)) == "183cccde0438"
    other = TrialConfig(batch_per_rank=32, world_size=2, optimizer="sgd", momentum=0.9)
    assert hash_of(other) == "582f6b62905c"


def test_a_field_at_its_default_is_left_out_of_the_hash() -> None:
    given = {"batch_per_rank": 32}
    hash_of = ClassificationWorkload().schema().hash_of
    assert hash_of(given) == hash_of({**given, "epochs": DEFAULTS["epochs"]})
    assert hash_of(given) != hash_of({**given, "epochs": DEFAULTS["epochs"] + 1})


def test_options_of_a_data_set_without_options_are_not_built_in() -> None:
    assert datasets.builtin_dataset("digits:all") is None
    assert datasets.builtin_dataset("synthetic:train=8") is not None


def test_each_decoded_data_set_is_prepared_once() -> None:
    configs = [TrialConfig(batch_per_rank=size, loader=name) for size in (8, 16) for name in ("resident", "dataloader")]
    assert ClassificationWorkload().cached_data(configs) == (("digits", None, None),)
