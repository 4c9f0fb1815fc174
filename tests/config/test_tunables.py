"""The settings that `dmls-ray tune` recognizes by the names of flags, and the values that it tries."""

from __future__ import annotations

from typing import Literal

import pytest

from dmls_ray.config.fields import FieldSpec
from dmls_ray.config.tunables import TUNABLES, VARIABLES, at_one_product, changes_of, roles_of


def specs_of(**hints: object) -> dict[str, FieldSpec]:
    return {name: FieldSpec(name, hint=hint) for name, hint in hints.items()}


@pytest.mark.parametrize(
    ("name", "role"),
    [
        ("batch_size", "batch"),
        ("per_device_train_batch_size", "batch"),
        ("batch_per_rank", "batch"),
        ("bs", "batch"),
        ("gradient_accumulation_steps", "accumulation"),
        ("accum_steps", "accumulation"),
        ("grad_accum_steps", "accumulation"),
        ("workers", "loader workers"),
        ("dataloader_num_workers", "loader workers"),
        ("pin_mem", "pinned memory"),
        ("compile", "compile"),
        ("amp", "precision"),
        ("opt", "optimizer"),
        ("gradient_checkpointing", "activation checkpointing"),
        ("bucket_cap_mb", "bucket size"),
        ("prefetch_factor", "prefetch"),
        ("compile_mode", "compile mode"),
    ],
)
def test_flags_of_common_scripts_are_recognized_by_their_names(name: str, role: str) -> None:
    assert roles_of(specs_of(**{name: int}), {}) == {role: name}


@pytest.mark.parametrize(
    "name", ["test_batch_size", "validation_batch_size", "checkpoint", "compile_backend", "epochs"]
)
def test_flags_of_similar_names_are_no_settings(name: str) -> None:
    assert roles_of(specs_of(**{name: int}), {}) == {}


def test_a_correction_goes_before_the_name() -> None:
    specs = specs_of(batch_size=int, chunk=int)
    assert roles_of(specs, {"batch": "chunk"}) == {"batch": "chunk"}
    assert roles_of(specs, {"batch": "none"}) == {}


def test_half_and_twice_the_batch_have_the_same_product_with_the_accumulation() -> None:
    roles = {"batch": "batch_size", "accumulation": "accum"}
    specs = specs_of(batch_size=int, accum=int)
    changes = at_one_product(roles, specs, {"batch_size": 32, "accum": 4})
    assert [dict(change.values) for change in changes] == [
        {"batch_size": 64, "accum": 2},
        {"batch_size": 16, "accum": 8},
    ]
    changes = at_one_product(roles, specs, {"batch_size": 1, "accum": 1})
    assert changes == []


def test_the_other_values_of_a_setting_are_tried() -> None:
    specs = specs_of(workers=int, compile=bool, opt=Literal["sgd", "adam", "lion"])
    roles = roles_of(specs, {})
    values = {}
    for role in roles:
        changes = changes_of(role, roles, specs, {"workers": 2, "compile": False, "opt": "adam"}, cores=4)
        values[role] = [*{name: None for change in changes for name in map(str, change.values.values())}]
    assert values == {"loader workers": ["0", "1", "4", "8"], "compile": ["True"], "optimizer": ["sgd", "lion"]}


def test_variables_of_one_setting_are_tried_together_unless_they_are_set_so_and_each_says_what_it_does() -> None:
    specs = {name: FieldSpec(name) for name in VARIABLES}
    roles = roles_of(specs, {})
    tried = [change for role in roles for change in changes_of(role, roles, specs, {}, cores=2)]
    assert [name for change in tried for name in change.values] == [*VARIABLES]
    assert all(change.does for change in tried)
    assert [change.changes_training for change in tried] == [role == "tf32" for role in roles]
    (memory,) = changes_of("kept memory", roles, specs, {"MALLOC_MMAP_MAX_": "7"}, cores=2)
    assert changes_of("kept memory", roles, specs, memory.values, cores=2) == []


def test_what_variables_do_to_a_device_is_tried_there_alone() -> None:
    assert {tunable.role: tunable.device for tunable in TUNABLES if tunable.variables} == {
        "kept memory": "cpu",
        "expandable segments": "cuda",
        "tf32": "cuda",
    }
