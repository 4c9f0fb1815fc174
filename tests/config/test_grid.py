from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dmls_ray.config.fields import field_specs
from dmls_ray.config.grid import Plan, skipped_values
from dmls_ray.config.search_space import make_search_space
from dmls_ray.execution.planning import make_plan
from dmls_ray.util.errors import ConfigError, ConflictError
from dmls_ray.workloads.classification.config import DEFAULTS, TrialConfig
from dmls_ray.workloads.classification.workload import ClassificationWorkload

AXES = {"batch_per_rank": [16, 32, 64], "world_size": [1, 2]}

SCHEMA = ClassificationWorkload().schema()
COUNTS_WITH = SCHEMA.counts_with


def test_blocks_are_shuffled_by_the_order_seed_and_differ() -> None:
    def order(seed: int) -> list[str]:
        return [run.trial_id for run in make_plan(AXES, repeats=2, order_seed=seed).runs]

    assert order(0) == order(0)
    assert order(0) != order(1)
    assert order(0)[:6] != order(0)[6:]


def test_more_repeats_leave_the_order_of_earlier_blocks_as_it_was() -> None:
    short, long = make_plan(AXES, repeats=2), make_plan(AXES, repeats=4)
    assert short.runs == long.runs[: len(short.runs)]


def test_runs_of_a_block_share_a_seed_and_neighbouring_seeds_share_no_run() -> None:
    plan = make_plan({"batch_per_rank": 16, "seed": [0, 1, 2**31 - 1]}, repeats=3)
    assert len({run.seeded().seed for run in plan.runs}) == 9
    plain = make_plan(AXES, repeats=2)
    assert [len({run.seed for run in plain.runs if run.repeat == block}) for block in (0, 1)] == [1, 1]


def test_equal_points_collapse() -> None:
    assert len(make_plan({"batch_per_rank": [16, 16, 32]}, repeats=1).runs) == 2
    assert len(make_plan({"batch_per_rank": 16, "accum_steps": [1, 1]}, repeats=1).runs) == 1


@pytest.mark.parametrize("name", [name for name in DEFAULTS if name != "global_batch"])
def test_every_field_can_be_an_axis(name: str) -> None:
    spec = field_specs(TrialConfig)[name]
    by_type: dict[str, list[object]] = {"bool": [True, False], "float": [0.1, 0.2], "int": [1, 2], "str": ["a", "b"]}
    values = list(spec.choices) or by_type[spec.type]
    base = {"batch_per_rank": 8, "world_size": 2, "validation_share": 0.1}
    if name in COUNTS_WITH:
        other, counts = COUNTS_WITH[name]
        base[other] = counts[0]
    if name in ("stop_at_target", "target_tests"):
        base["target_accuracy"] = 0.9
    if name == "backend":
        base["launcher"] = "mpirun"
    if name == "launcher":
        base["world_size"] = 1
    plan = make_plan({**base, name: values}, repeats=1)
    assert {run.values[name] for run in plan.runs} == set(values)
    assert not any(run.skip for run in plan.runs)
    assert plan.varied == (name,)


def test_a_point_whose_fields_do_not_go_together_is_skipped_with_the_reason() -> None:
    plan = make_plan({"lr_schedule": ["one-cycle", "cosine"], "lr_warmup_steps": 5, "batch_per_rank": 8}, repeats=1)
    skips = {run.values["lr_schedule"]: run.skip for run in plan.runs}
    assert skips["cosine"] == ""
    assert "lr_warmup_steps=5 has no effect with lr_schedule=one-cycle" in skips["one-cycle"]


def test_what_does_nothing_at_a_point_of_the_grid_makes_no_other_point() -> None:
    plan = make_plan({"optimizer": ["adam", "sgd"], "momentum": [0, 0.9], "batch_per_rank": 8}, repeats=1)
    assert sorted((run.values["optimizer"], run.values["momentum"]) for run in plan.runs) == [
        ("adam", 0.0), ("sgd", 0.0), ("sgd", 0.9)
    ]  # fmt: skip


@pytest.mark.parametrize("name", COUNTS_WITH)
def test_an_axis_that_does_nothing_anywhere_is_refused(name: str) -> None:
    values = [DEFAULTS[name], 0.5 if name == "momentum" else DEFAULTS[name] + 1]
    with pytest.raises(ConflictError, match=f"{name}={values[1]} has no effect with {COUNTS_WITH[name][0]}="):
        make_plan({name: values, "batch_per_rank": 8})


def test_a_grid_of_nothing_but_such_points_is_refused() -> None:
    with pytest.raises(ConflictError, match="global_batch=100"):
        make_plan({"global_batch": 100, "world_size": [3, 7]})


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        ({"batchsize": 3}, "batchsize"),
        ({"epochs": []}, "epochs has no value"),
        ({"epochs": [1, 0], "batch_per_rank": 1}, "epochs=0"),
        ({}, "neither"),
    ],
)
def test_wrong_axes_are_refused(axes: dict[str, object], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        make_plan(axes)


def test_axes_may_be_arrays_ranges_and_single_values() -> None:
    plan = make_plan({"batch_per_rank": np.array([8, 16]), "seed": range(2), "epochs": 1}, repeats=1)
    assert len(plan.runs) == 4
    assert plan.axes == {"batch_per_rank": (8, 16), "epochs": (1,), "seed": (0, 1)}


def test_infeasible_runs_keep_their_place_and_name_the_reason() -> None:
    plan = make_plan(AXES, repeats=2).skip_infeasible(lambda config: "too many" if config.world_size > 1 else "")
    assert [bool(run.skip) for run in plan.runs] == [run.values["world_size"] == 2 for run in plan.runs]


@given(
    batches=st.lists(st.integers(1, 64), min_size=1, max_size=5),
    ranks=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    repeats=st.integers(1, 4),
    seed=st.integers(0, 10),
)
def test_no_run_is_lost_and_none_is_there_twice(batches: list[int], ranks: list[int], repeats: int, seed: int) -> None:
    plan = make_plan({"batch_per_rank": batches, "world_size": ranks}, repeats=repeats, order_seed=seed)
    expected = {
        f"{SCHEMA.hash_of(TrialConfig(batch_per_rank=batch, world_size=count).canonical())}-{repeat}"
        for batch in batches
        for count in ranks
        for repeat in range(repeats)
    }
    assert {run.run_id for run in plan.runs} == expected
    assert len(plan.runs) == len(expected)
    assert [run.order for run in plan.runs] == list(range(len(plan.runs)))
    assert [run.repeat for run in plan.runs] == sorted(run.repeat for run in plan.runs), "block after block"


def test_runs_that_differ_in_global_batch_alone_have_different_labels() -> None:
    plan = make_plan({"global_batch": [64, 128], "world_size": [1, 2]}, repeats=1)
    labels = {run.label(plan.varied) for run in plan.runs}
    assert "world_size=2 global_batch=128 repeat=0" in labels
    assert len(labels) == 4


def test_variants_change_one_thing_at_a_time_at_each_point_of_the_grid() -> None:
    variants = [{}, {"dropout": 0.3}, {"l1": 0.1, "weight_decay": 0.1}]
    plan = make_plan({"batch_per_rank": [16, 32]}, variants=variants, repeats=1)
    expected = {(run.values["batch_per_rank"], run.values["dropout"], run.values["l1"]) for run in plan.runs}
    assert expected == {(batch, *change) for batch in (16, 32) for change in ((None, 0.0), (0.3, 0.0), (None, 0.1))}
    assert plan.varied == ("batch_per_rank", "weight_decay", "dropout", "l1")
    assert plan.changed == ("weight_decay", "dropout", "l1")
    labels = {run.label(plan.varied) for run in plan.runs}
    assert "baseline batch_per_rank=16 repeat=0" in labels
    assert "batch_per_rank=32 dropout=0.3 repeat=0" in labels


def test_a_default_that_every_variant_changes_is_no_value_of_the_sweep() -> None:
    both = [{"dropout": 0.3, "l1": 0.1}, {"dropout": 0.5, "l1": 0.1}]
    plan = make_plan({"batch_per_rank": 16}, variants=both, repeats=1)
    assert (plan.axes["dropout"], plan.axes["l1"]) == ((0.3, 0.5), (0.1,))
    plan = make_plan({"batch_per_rank": 16}, variants=[*both, {"l1": 0.2}], repeats=1)
    assert (plan.axes["dropout"], plan.axes["l1"]) == ((None, 0.3, 0.5), (0.1, 0.2))


def test_machines_and_the_ranks_on_each_are_axes_and_make_the_world_size() -> None:
    plan = make_plan({"machines": [1, 2], "ranks_per_machine": [1, 2], "batch_per_rank": 8}, repeats=1)
    sizes = {(run.values["machines"], run.values["ranks_per_machine"]): run.values["world_size"] for run in plan.runs}
    assert sizes == {(1, 1): 1, (1, 2): 2, (2, 1): 2, (2, 2): 4}


def test_machines_without_a_number_of_ranks_have_one_each_and_ranks_per_machine_alone_is_of_one_machine() -> None:
    plan = make_plan({"machines": [1, 2], "batch_per_rank": 8}, repeats=1)
    assert {(run.values["machines"], run.values["world_size"], run.skip) for run in plan.runs} == {
        (1, 1, ""),
        (2, 2, ""),
    }
    variants = [{}, {"machines": 2}]
    assert [
        run.values["world_size"] for run in make_plan({"batch_per_rank": 8}, variants=variants, repeats=1).runs
    ] == [2, 1]
    proposed = make_search_space({"machines": (1, 2), "batch_per_rank": (8,)}, SCHEMA).run_of({"machines": 2})
    assert (proposed.values["world_size"], proposed.skip) == (2, "")
    (alone,) = make_plan({"ranks_per_machine": 2, "batch_per_rank": 8}, repeats=1).runs
    assert (alone.values["machines"], alone.values["world_size"]) == (1, 2)
    # A number that was asked for is not changed.
    asked = make_plan({"machines": [1, 2], "world_size": 1, "batch_per_rank": 8}, repeats=1)
    assert [bool(run.skip) for run in asked.runs if run.values["machines"] == 2] == [True]


def skipping(plan: Plan, **values: Any) -> Plan:
    """The plan in which runs with these values are not feasible."""
    names = ", ".join(f"{name}={value}" for name, value in values.items())

    def reason(config: Any) -> str:
        return f"{names} cannot be." if all(getattr(config, name) == value for name, value in values.items()) else ""

    return plan.skip_infeasible(reason)


def test_a_value_of_which_every_run_is_skipped_is_named_with_the_reason() -> None:
    plan = make_plan({"backend": ["gloo", "nccl"], "batch_per_rank": [16, 32], "world_size": 2}, repeats=1)
    assert skipped_values(plan) == []
    assert skipped_values(skipping(plan, backend="nccl")) == [
        "Every run with backend=nccl is skipped: backend=nccl cannot be.",
        "No values of backend can be compared: only gloo is feasible.",
    ]
    assert skipped_values(skipping(plan, backend="nccl", batch_per_rank=16)) == []
    assert skipped_values(skipping(plan, world_size=2)) == ["Every run is skipped: world_size=2 cannot be."]
    three = make_plan({"batch_per_rank": [16, 32, 64], "world_size": [1, 2]}, repeats=1)
    assert skipped_values(skipping(three, batch_per_rank=64)) == [
        "Every run with batch_per_rank=64 is skipped: batch_per_rank=64 cannot be."
    ]


def test_a_value_whose_runs_conflict_for_several_reasons_is_named_with_one_of_them() -> None:
    plan = make_plan({"launcher": ["ray", "inline"], "batch_per_rank": 8, "world_size": [2, 4]}, repeats=1)
    first, _ = skipped_values(plan)
    assert first.startswith("Every run with launcher=inline is skipped, for example: launcher=inline runs one process")


def test_only_runs_that_change_a_field_count_for_its_values() -> None:
    variants = [{}, {"l1": 0.1}, {"dropout": 0.5}]
    plan = make_plan({"batch_per_rank": 8}, variants=variants, repeats=1)
    assert skipped_values(skipping(plan, dropout=0.5)) == [
        "Every run with dropout=0.5 is skipped: dropout=0.5 cannot be."
    ]


def test_a_world_size_next_to_machines_and_ranks_per_machine_is_refused() -> None:
    axes = {"machines": 2, "ranks_per_machine": 1, "world_size": [1, 2], "batch_per_rank": 8}
    with pytest.raises(ConfigError, match="give two"):
        make_plan(axes)
