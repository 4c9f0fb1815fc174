from __future__ import annotations

import re
from typing import Any

import pytest

from dmls_ray.cluster.resources import Machine, Resources, local_resources
from dmls_ray.config import TrialConfig

LAPTOP = Resources((Machine("laptop", "", 2, 0),))
SERVER = Resources((Machine("one", "1", 8, 2), Machine("two", "2", 8, 2)))


def config(**changes: Any) -> TrialConfig:
    return TrialConfig(**{"batch_per_rank": 8, **changes})


def test_auto_is_the_gpus_where_there_are_some() -> None:
    assert (LAPTOP.device_of(config()), LAPTOP.backend_of(config())) == ("cpu", "gloo")
    assert (SERVER.device_of(config()), SERVER.backend_of(config())) == ("cuda", "nccl")
    assert SERVER.backend_of(config(device="cpu")) == "gloo"
    assert SERVER.backend_of(config(backend="gloo")) == "gloo"


@pytest.mark.parametrize(
    ("resources", "changes", "told"),
    [
        (LAPTOP, {}, ""),
        (LAPTOP, {"world_size": 2}, ""),
        (LAPTOP, {"world_size": 3}, "world_size=3 needs 3 cores; this machine has 2. Lower it, .*pass --oversubscribe"),
        (LAPTOP, {"world_size": 2, "threads_per_rank": 2}, "world_size=2 x threads_per_rank=2 needs 4 cores"),
        (LAPTOP, {"device": "cuda"}, "world_size=1 needs 1 GPUs; this machine has 0.*pass --device cpu"),
        (LAPTOP, {"backend": "nccl"}, "backend=nccl needs GPUs, and this would train on CPUs. Use backend gloo"),
        (SERVER, {"quantization": "qat"}, "quantization=qat is for CPUs, and this would train on GPUs"),
        (SERVER, {"world_size": 4}, ""),
        (SERVER, {"world_size": 5}, "world_size=5 needs 5 GPUs; this cluster has 4. Lower it, add machines"),
        (SERVER, {"world_size": 16, "device": "cpu"}, ""),
        (SERVER, {"world_size": 17, "device": "cpu"}, "world_size=17 needs 17 cores; this cluster has 16"),
    ],
)
def test_what_does_not_fit_is_told_with_the_way_out(resources: Resources, changes: dict[str, Any], told: str) -> None:
    objection = resources.objection(config(**changes), oversubscribe=False)
    assert re.fullmatch(f"{told}.*" if told else "", objection)


def test_more_ranks_than_cores_may_be_asked_for() -> None:
    assert LAPTOP.objection(config(world_size=4), oversubscribe=True) == ""
    assert LAPTOP.oversubscribes(config(world_size=4))
    assert not LAPTOP.oversubscribes(config(world_size=2))


def test_this_machine_has_cores() -> None:
    assert local_resources().cores >= 1
