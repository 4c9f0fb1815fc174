"""The rules of machines, launchers, backends and devices hold for any configuration."""

from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.util.errors import ConflictError


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"machines": 2, "ranks_per_machine": 3}, (6, 2, 3)),
        ({"world_size": 6, "machines": 2}, (6, 2, 3)),
        ({"world_size": 6, "ranks_per_machine": 3}, (6, 2, 3)),
        ({"world_size": 6}, (6, None, None)),
    ],
)
def test_two_of_ranks_machines_and_ranks_per_machine_give_the_third(values: dict[str, int], expected: object) -> None:
    config = RuntimeConfig(**values)  # type: ignore[arg-type]
    assert (config.world_size, config.machines, config.ranks_per_machine) == expected


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"world_size": 5, "machines": 2}, "world_size=5 does not divide by machines=2"),
        ({"world_size": 5, "machines": 2, "ranks_per_machine": 2}, "is not machines=2 x ranks_per_machine=2"),
        ({"launcher": "spawn", "machines": 2, "world_size": 2}, "machines=2 needs ranks that Ray places"),
        ({"launcher": "inline", "world_size": 2}, "launcher=inline runs one process.* spawn, torchrun or mpirun"),
        (
            {"backend": "mpi", "launcher": "spawn"},
            "backend=mpi needs ranks that mpirun starts, but launcher=spawn does",
        ),
        ({"backend": "nccl", "device": "cpu"}, "backend=nccl needs GPUs.*Use backend gloo"),
    ],
)
def test_values_that_do_not_go_together_are_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ConflictError, match=message):
        RuntimeConfig(**values)


def test_auto_becomes_what_the_cluster_has() -> None:
    config = RuntimeConfig()
    assert (config.device_for(gpus=0), config.backend_for(gpus=0)) == ("cpu", "gloo")
    assert (config.device_for(gpus=2), config.backend_for(gpus=2)) == ("cuda", "nccl")
    assert RuntimeConfig(device="cpu").backend_for(gpus=2) == "gloo"
    assert RuntimeConfig(backend="gloo").backend_for(gpus=2) == "gloo"
