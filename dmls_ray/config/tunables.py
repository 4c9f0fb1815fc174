"""`TUNABLES`: the settings that `dmls-ray tune` tries, known by the names of fields, and of flags of scripts."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dmls_ray.config.fields import FieldSpec

Values = Callable[[FieldSpec, Any, int], Sequence[Any]]
"""Called with the field, its value as it is, and the CPU cores of a rank; returns the values to try."""


@dataclass(frozen=True, kw_only=True)
class Tunable:
    """A setting that many trainings have."""

    role: str
    """What the setting is, in words."""
    names: str
    """Regular expression of the names of its field or flag, in lower case with underscores."""
    values: Values = lambda spec, base, cores: ()
    variables: Mapping[str, str] = field(default_factory=dict)
    """Variables of the environment of a script, with the values to try together, in place of `values`."""
    does: str = ""
    """What these values do."""
    device: str = ""
    """Kind of device, `cpu` or `cuda`, on which it has an effect; empty for any."""
    changes_training: bool = False
    """Whether other values train another model: the steps, the batches or the number format differ."""
    ddp_only: bool = False
    """Whether it has an effect with several ranks only."""


def _others(spec: FieldSpec, base: Any, cores: int) -> Sequence[Any]:
    """The other choices of a field, or the other state of a switch."""
    choices = (True, False) if spec.type == "bool" else spec.choices
    return [choice for choice in choices if choice != base]


def _other_state(spec: FieldSpec, base: Any, cores: int) -> Sequence[Any]:
    return [not base] if spec.type == "bool" else []


def _worker_counts(spec: FieldSpec, base: Any, cores: int) -> Sequence[int]:
    counts = {0, 1, 2, cores, 2 * cores} if cores <= 4 else {0, 2, 4, 8, cores}
    return sorted(count for count in counts if count != base)


def _thread_counts(spec: FieldSpec, base: Any, cores: int) -> Sequence[int]:
    return sorted({1, max(1, cores // 2), cores} - {base or cores})


def _other_choices(spec: FieldSpec, base: Any, cores: int) -> Sequence[Any]:
    """The other ones where they are listed: a switch is none of them."""
    return [choice for choice in spec.choices if choice != base]


def _bucket_sizes(spec: FieldSpec, base: Any, cores: int) -> Sequence[int]:
    return [size for size in (5, 25, 100) if size != (base or 25)]


def _larger(spec: FieldSpec, base: Any, cores: int) -> Sequence[int]:
    return [2 * base, 4 * base] if isinstance(base, int) and base > 0 else []


BATCH = Tunable(
    role="batch",
    names=r"(train_|mini_|micro_|per_device_|per_gpu_|local_)*(batch|bs|bsz|b)(_?size|_per_rank|_per_gpu|_per_device)?",
    values=_larger,
    changes_training=True,
)
ACCUMULATION = Tunable(
    role="accumulation",
    names=r"(grad_|gradient_)?(accum|acc|accumulation|accumulate)(_steps|_iter|_iters|_grad_batches)?|update_freq",
)
"""The batch and the accumulation are tried together, at one product; see `at_one_product`."""

_OF_ENVIRONMENT = (
    Tunable(role="kept memory", names="malloc_mmap_max_", device="cpu",
            variables={"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "2147483647"},
            does="freed memory stays in the process, so that large tensors cause no page faults"),
    Tunable(role="expandable segments", names="pytorch_cuda_alloc_conf", device="cuda",
            variables={"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"},
            does="segments of GPU memory grow, so that tensors of varying sizes leave less of it unused"),
    Tunable(role="tf32", names="torch_allow_tf32_cublas_override", device="cuda", changes_training=True,
            variables={"TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1"},
            does="factors of float32 matrix products are rounded to TF32"),
)  # fmt: skip
"""What libraries read from the environment, and no flag of a script says."""
VARIABLES = tuple(name for tunable in _OF_ENVIRONMENT for name in tunable.variables)

TUNABLES: Sequence[Tunable] = (
    Tunable(
        role="loader workers",
        names=r"(num_|n_|loader_|data_|dataloader_|dataloader_num_)?workers",
        values=_worker_counts,
    ),
    Tunable(role="prefetch", names=r"(dataloader_)?prefetch_factor", values=lambda spec, base, cores: (4, 8)),
    Tunable(role="threads", names="threads_per_rank", values=_thread_counts),
    Tunable(role="compile", names=r"(use_|torch_|torch)?compiled?", values=_others),
    Tunable(role="compile mode", names=r"(torch_)?compile_mode", values=_other_choices),
    Tunable(role="pinned memory", names=r"(dataloader_)?pin_mem(ory)?", values=_other_state),
    Tunable(role="memory format", names=r"channels_last|memory_format", values=_others),
    Tunable(role="bucket size", names=r"(ddp_)?bucket_(cap|size)(_mb|_mib)?", values=_bucket_sizes, ddp_only=True),
    Tunable(role="static graph", names=r"(ddp_)?static_graph", values=_other_state, ddp_only=True),
    Tunable(role="bucket views", names="gradient_as_bucket_view", values=_other_state, ddp_only=True),
    Tunable(
        role="activation checkpointing",
        names=r"(grad|gradient|activation)_(checkpointing|ckpt)|recompute",
        values=_other_state,
    ),
    *_OF_ENVIRONMENT,
    Tunable(
        role="precision",
        names=r"precision|mixed_precision|(use_)?amp|(amp_)?dtype|bf16|fp16",
        values=_others,
        changes_training=True,
    ),
    Tunable(role="optimizer", names=r"opt|optim|optimizer", values=_other_choices, changes_training=True),
    BATCH,
)
"""In the order in which they are tried: those that leave the training as it is come first."""

ROLES = tuple(tunable.role for tunable in (*TUNABLES, ACCUMULATION))


@dataclass(frozen=True, kw_only=True)
class Change:
    """Values of one setting, or of two that go together."""

    values: Mapping[str, Any]
    """Field -> value."""
    changes_training: bool = False
    does: str = ""
    """What they do; empty where their names say it."""

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self.values.items())


def roles_of(specs: Mapping[str, FieldSpec], corrected: Mapping[str, str]) -> dict[str, str]:
    """Role -> the field that has it: as corrected, else by its name; the first of several.

    Args:
        specs: the fields of a workload.
        corrected: role -> field, or `none` for a role that no field has.
    """
    found: dict[str, str] = {}
    for tunable in (*TUNABLES, ACCUMULATION):
        named = corrected.get(tunable.role)
        if named is not None:
            found[tunable.role] = named
            continue
        matching = [name for name, spec in specs.items() if re.fullmatch(tunable.names, name.lower())]
        if matching:
            found[tunable.role] = matching[0]
    return {role: name for role, name in found.items() if name != "none"}


def batch_by_size(specs: Mapping[str, FieldSpec], base: Mapping[str, Any], size: float) -> str:
    """The only field of a whole number that has this value; empty where there is none, or several."""
    values = {name: base.get(name, spec.default) for name, spec in specs.items() if spec.type == "int"}
    having = [name for name, value in values.items() if value == size]
    return having[0] if len(having) == 1 else ""


def changes_of(
    role: str, roles: Mapping[str, str], specs: Mapping[str, FieldSpec], base: Mapping[str, Any], cores: int
) -> list[Change]:
    """The changes of one setting to try."""
    tunable = next(item for item in TUNABLES if item.role == role)
    name = roles[role]
    values = tunable.values(specs[name], base.get(name, specs[name].default), cores)
    tried: list[Mapping[str, Any]] = [{name: value} for value in values]
    change = functools.partial(Change, changes_training=tunable.changes_training, does=tunable.does)
    return [change(values=each) for each in tried or [tunable.variables] if not each.items() <= base.items()]


def at_one_product(roles: Mapping[str, str], specs: Mapping[str, FieldSpec], base: Mapping[str, Any]) -> list[Change]:
    """Half and twice the batch of a pass, at the same product of batch and accumulation."""
    if BATCH.role not in roles or ACCUMULATION.role not in roles:
        return []
    batch_name, passes_name = roles[BATCH.role], roles[ACCUMULATION.role]
    batch = base.get(batch_name, specs[batch_name].default)
    passes = base.get(passes_name, specs[passes_name].default)
    if not isinstance(batch, int) or not isinstance(passes, int):
        return []
    changes = []
    for more, fewer in ((2, 1), (1, 2)):
        whole = batch * more % fewer == 0 and passes * fewer % more == 0
        values = {batch_name: batch * more // fewer, passes_name: passes * fewer // more}
        if whole and all(values.values()):
            changes.append(Change(values=values))
    return changes
