"""Call the entry point on a rank, under every launcher: its result or its exception becomes a `RankResult`."""

from __future__ import annotations

import functools
import os
import traceback
from collections import Counter
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

import msgspec
import torch
import torch.distributed as dist

from dmls_ray.config.identity import OF_FUNCTION, Identity
from dmls_ray.config.runtime import RuntimeConfig
from dmls_ray.config.training import TrainingConfig
from dmls_ray.records.outcome import Outcome
from dmls_ray.records.returned import checked_epoch
from dmls_ray.records.run_events import EpochEnded, RankEvent, RankResult
from dmls_ray.training.compat import sequence_numbers
from dmls_ray.training.optimizers import around_optimizer_steps
from dmls_ray.training.process import set_torchrun_environment, wait_for_others
from dmls_ray.training.rank import Emit, RankInfo, TrainFunction
from dmls_ray.util.digests import AND_IMPORTS, source_digests
from dmls_ray.util.errors import CodeDiffersError, DivergedError, InfeasibleError
from dmls_ray.util.importing import try_import
from dmls_ray.util.text import first_line


def run_guarded(train: TrainFunction, config: RuntimeConfig, rank: RankInfo, emit: Emit) -> RankResult:
    """The result of a training function, or the description of its failure.

    What it reports is checked here.
    """
    name = f"{train.__module__}:{getattr(train, '__qualname__', 'train')}"

    def checked_emit(event: RankEvent) -> bool | None:
        if isinstance(event, EpochEnded):
            event = EpochEnded(epoch=checked_epoch(event.epoch, f"what {name} emitted"))
        return emit(event)

    counted: Counter[str] = Counter()
    of_rank = around_optimizer_steps(lambda: None, lambda optimizer: counted.update(["steps"]))
    set_torchrun_environment(rank, config.threads_per_rank or 1)
    with of_rank if rank.world_size > 1 else nullcontext():
        try:
            with rank.clock.untimed():
                if config.joins_group:
                    check_code(rank.identity, rank.machine)
                    if rank.identity.code:
                        wait_for_others(rank)
            result = result_of_rank(train(config, rank, checked_emit), rank, f"what {name} returned")
        except KeyboardInterrupt:
            raise  # a Ctrl-C ends the sweep
        except BaseException as error:  # noqa: BLE001 - any error ends this run only, asyncio.CancelledError too
            result = failure(error, rank, has_flags=isinstance(config, TrainingConfig))
        numbers = sequence_numbers() if rank.world_size > 1 else None
        result.collectives = None if numbers is None else sum(numbers.values())
        result.steps = counted.total()
        return result


def result_of_rank(returned: Any, rank: RankInfo, what: str) -> RankResult:
    """The checked result of an entry point, with the facts of its rank.

    Args:
        returned: what the entry point returned.
        rank: this rank.
        what: says in a message whose values these are.

    Raises:
        ValueError: a record cannot hold a value; with its name.
    """
    if not isinstance(returned, RankResult):
        raise ValueError(f"{what} is of type {type(returned).__name__}; give a RankResult.")
    facts = {"rank": rank.rank, "machine": rank.machine, "device": rank.device, "pid": os.getpid()}
    return msgspec.structs.replace(returned.checked(what), **facts)


# Messages of plain RuntimeErrors of PyTorch's CPU allocator, cuBLAS and cuDNN.
_OUT_OF_MEMORY = ("can't allocate memory", "out of memory", "ALLOC_FAILED")
# Messages of gloo.
_DISCONNECTED = (
    "Connection closed by peer", "Connection reset by peer", "Connection timed out", "Connection refused",
    "Broken pipe", "No route to host", "connectFullMesh failed",
)  # fmt: skip
_PEER_IS_GONE = ("gloo", *_DISCONNECTED)
# A message of DDP.
_UNUSED_PARAMETERS = "Expected to have finished reduction in the prior iteration"


def failure(error: BaseException, rank: RankInfo, *, has_flags: bool = False) -> RankResult:
    """The result of a rank that raised; `has_flags`: in a loop of dmls_ray, which flags set."""
    outcome = Outcome.ERROR
    if isinstance(error, torch.OutOfMemoryError | MemoryError) or _message_has(error, _OUT_OF_MEMORY):
        outcome = Outcome.OOM
    elif isinstance(error, DivergedError):
        outcome = Outcome.DIVERGED
    elif isinstance(error, InfeasibleError):
        outcome = Outcome.SKIPPED
    return RankResult(
        rank=rank.rank,
        machine=rank.machine,
        device=rank.device,
        outcome=outcome,
        reason=_described(error, has_flags=has_flags),
        traceback="".join(traceback.format_exception(error)),
        # After an assertion on the device, for example, every further call in this process fails.
        device_lost=outcome is Outcome.ERROR and _message_has(error, ("CUDA error",)),
        is_symptom=isinstance(error, dist.DistError) or _message_has(error, _PEER_IS_GONE),
        is_disconnected=isinstance(error, dist.DistNetworkError) or _message_has(error, _DISCONNECTED),
    )


def _described(error: BaseException, *, has_flags: bool) -> str:
    """The kind and the message of an error in one line."""
    line = f"{type(error).__name__}: {first_line(error, empty='')}".rstrip(": ")
    if has_flags and _UNUSED_PARAMETERS in line:
        # The message goes on with arguments of DDP, which a user of a flag cannot give.
        return (
            f"{line.partition('. ')[0]}: some parameters had no part in the loss of a step; if they never have, as in "
            "a head that is not used, give --static-graph true."
        )
    return line


def _message_has(error: BaseException, words: tuple[str, ...]) -> bool:
    return isinstance(error, RuntimeError) and any(word in str(error) for word in words)


def check_code(identity: Identity, machine: str) -> None:
    """Refuse to run other sources than those of the identity.

    Args:
        identity: what the run is to have.
        machine: the name of this machine.

    Raises:
        CodeDiffersError: with the files and the machine.
    """
    expected = {name: digest for name, digest in identity.code.items() if not name.endswith(OF_FUNCTION)}
    here = _sources_of_this_process(identity.modules)
    differing = [name for name in expected.keys() | here.keys() if expected.get(name) != here.get(name)]
    files = sorted(name for name in differing if not name.endswith(AND_IMPORTS))
    if files:
        raise CodeDiffersError(
            f"the files on machine {machine} are not those that the sweep began with ({', '.join(files)}). Copy the "
            "files to each machine or share their folder; if they were edited since, run the same command again"
        )


@functools.cache
def _sources_of_this_process(modules: tuple[str, ...]) -> Mapping[str, str]:
    """Digests at the first run that imports the modules: a process imports a module once, whatever happens to its file
    afterwards.

    The modules are imported here: one may extend the search path for those that it imports, and the first run of a
    process would otherwise have the time and the memory of the imports in its numbers.
    """
    for module in modules:
        try_import(module)
    return source_digests(modules)
