"""Training functions as Ray Train calls them on each worker: what `ray.train` says in them is of this run."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from typing import Any

import torch.distributed as dist

from dmls_ray.training.rank import RankInfo
from dmls_ray.util.errors import UserCodeError

Report = Callable[[Mapping[str, Any]], object]


def call_loop(function: Callable[..., Any], given: Any, rank: RankInfo, emit: Report) -> Any:
    """Call `function(config)` or `function()` as a worker of Ray Train does.

    Args:
        function: the loop.
        given: its configuration.
        rank: this rank.
        emit: takes what `ray.train.report` is given.
    """
    if rank.device == "cpu":
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # Ray would take a GPU that it finds
    # Private to Ray, and the seam that it has for its own local mode; without it, loops of Ray Train do not run.
    # Imported here, since no other function needs it.
    from ray.train.v2._internal.execution.train_fn_utils import LocalTrainFnUtils, set_train_fn_utils

    class RunFunctions(LocalTrainFnUtils):
        """The functions of `ray.train` in this run."""

        def report(self, metrics: Mapping[str, Any], checkpoint: Any = None, *_: Any, **__: Any) -> None:
            emit({name: value for name, value in metrics.items() if name != "kind"})

        def get_checkpoint(self) -> None:
            return None

        def get_dataset_shard(self, dataset_info: Any) -> Any:
            raise UserCodeError(
                "ray.train.get_dataset_shard: a sweep gives no dataset of Ray Data; read the data in the function."
            )

        def barrier(self) -> None:
            if dist.is_initialized():
                dist.barrier()

        def broadcast_from_rank_zero(self, data: Any) -> Any:
            raise UserCodeError(
                "ray.train.collective.broadcast_from_rank_zero: ranks of a sweep exchange tensors alone; use "
                "torch.distributed.broadcast."
            )

    set_train_fn_utils(
        RunFunctions(
            experiment_name=rank.name or "dmls_ray",
            world_size=rank.world_size,
            world_rank=rank.rank,
            local_rank=rank.local_rank,
            local_world_size=rank.local_world_size,
            node_rank=rank.machine_rank,
        )
    )
    return function(given) if inspect.signature(function).parameters else function()
