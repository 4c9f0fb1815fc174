"""A training function of the user's own: how it is found, what can be varied of it, and what its trials are called."""

from __future__ import annotations

import contextlib
import functools
import operator
import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest

from dmls_ray.config.runtime import RUNTIME_FIELDS, Schema
from dmls_ray.execution.planning import make_plan
from dmls_ray.execution.run_plan import sweep
from dmls_ray.util.errors import ConfigError, InputError
from dmls_ray.workloads.classification.config import DEFAULTS
from dmls_ray.workloads.registry import workload_of_function
from dmls_ray.workloads.user_function.config_keys import required_keys
from dmls_ray.workloads.user_function.schema import (
    find_function,
    load_function,
    user_function_schema,
)
from tests.conftest import PROJECT, call

if TYPE_CHECKING:
    from dmls_ray.training.rank import Emit, RankInfo


@dataclass(frozen=True)
class Settings:
    depth: int
    """Layers."""
    lr: float = 0.1
    kind: Literal["plain", "wide"] = "plain"
    heads: int | None = None
    sizes: tuple[int, ...] = (8,)
    seed: int = 5

    def __post_init__(self) -> None:
        if self.kind == "wide" and self.depth > 2:
            raise ValueError("wide is not deep")
        if self.depth > 8:
            raise AssertionError("too deep")


def train(config: Settings, rank: RankInfo, emit: Emit) -> None:
    """Its other annotations cannot be resolved at run time, which must not matter."""


def of_a_dict(config: dict[str, Any], rank: RankInfo, emit: Emit) -> dict[str, Any]:
    return config


def without_annotation(config, rank, emit):  # type: ignore[no-untyped-def]
    return config


class Experiment:
    """What may stand for a function, and what may not."""

    def train(self, config: Settings, rank: RankInfo, emit: Emit) -> None: ...

    def __call__(self, config: Settings, rank: RankInfo, emit: Emit) -> dict[str, Any]:
        return {"depth": config.depth}

    @staticmethod
    def plain(config: Settings, rank: RankInfo, emit: Emit) -> dict[str, Any]:
        return {"depth": config.depth}

    @classmethod
    def of_class(cls, config: Settings, rank: RankInfo, emit: Emit) -> dict[str, Any]:
        return {"depth": config.depth}


def of_four(config: Settings, rank: RankInfo, emit: Emit, factor: int) -> dict[str, Any]:
    return {"depth": config.depth * factor}


part = functools.partial(of_four, factor=1)
experiment = Experiment()


def of_two(config: Settings, rank: RankInfo) -> None: ...
def of_a_list(config: list[int], rank: RankInfo, emit: Emit) -> None: ...


MODULE = "tests.workloads.user_function.test_schema"
TRAIN = f"{MODULE}:train"


def test_the_fields_of_its_dataclass_and_of_its_place_can_be_varied() -> None:
    schema = user_function_schema(train)
    own = ["depth", "lr", "kind", "heads", "sizes"]
    assert list(schema.specs) == ["world_size", *own, *RUNTIME_FIELDS[1:]]
    assert schema.specs["depth"].help == "Layers."
    assert schema.defaults["seed"] == 5, "its own default goes before ours"
    plan = make_plan({"depth": [1, 2], "lr": [0.1, 1], "world_size": 2}, repeats=2, schema=schema)
    assert len(plan.runs) == 8
    assert plan.varied == ("depth", "lr")
    assert plan.runs[0].label(plan.varied).startswith("depth=")


def test_a_run_has_the_configuration_as_the_function_takes_it() -> None:
    run = make_plan({"depth": 2, "heads": 4}, repeats=2, schema=user_function_schema(TRAIN)).runs[1]
    config = pickle.loads(pickle.dumps(run.seeded()))
    function, config_class = load_function(config)
    assert function is train
    assert config.for_function(config_class) == Settings(depth=2, heads=4, seed=10_005)


@pytest.mark.parametrize("function", [of_a_dict, without_annotation])
def test_a_dict_has_what_was_named_and_its_place(function: Callable[..., Any]) -> None:
    (run,) = make_plan({"lr": 0.5, "world_size": 2}, schema=user_function_schema(function, ["lr"]), repeats=1).runs
    assert run.seeded().for_function(None) == {
        "lr": 0.5, "world_size": 2, "machines": None, "ranks_per_machine": None, "backend": "auto",
        "launcher": "ray", "device": "auto", "threads_per_rank": 1,
        "seed": 0,
    }  # fmt: skip


def reads(config, rank, emit):  # type: ignore[no-untyped-def]
    """Its keys are read in every call, wherever they stand in an expression."""
    rate = config.get("lr", 0.1) * config["scale"]
    if config["kind"] == "wide":
        rate *= config["factor"]
    with contextlib.suppress(KeyError):
        rate *= config["guarded"]
    for _ in range(config["epochs"] + config["seed"]):
        emit({"train_loss": rate * config["decay"]})
    of_training = dict(config)
    return {"layers": of_training["depth"] + config["width"]}


def returns(config, rank, emit):  # type: ignore[no-untyped-def]
    if rank is None:
        return {}
    return {"x": config["width"]}


def adds(config, rank, emit):  # type: ignore[no-untyped-def]
    config["width"] = 8
    return {"x": config["width"]}


def hands_over(config, rank, emit):  # type: ignore[no-untyped-def]
    adds(config, rank, emit)
    return {"x": config["width"] if config.get("deep") else 1}


@functools.wraps(reads)
def decorated(config, rank, emit):  # type: ignore[no-untyped-def]
    return reads({"scale": 1, "epochs": 1, **config}, rank, emit)


@pytest.mark.parametrize("function", [returns, adds, hands_over, decorated, experiment, part])
def test_a_key_that_a_function_may_not_need_is_not_required(function: Callable[..., Any]) -> None:
    assert required_keys(function) == []


def test_a_key_that_a_function_reads_in_every_call_is_required_of_a_sweep() -> None:
    assert required_keys(reads) == ["scale", "epochs", "seed"]
    with pytest.raises(ConfigError, match="the configuration of .*:reads needs a value of scale; give one"):
        sweep(reads, {"epochs": [1, 2]})


def test_a_combination_that_its_dataclass_refuses_is_skipped_with_the_reason() -> None:
    axes = {"depth": [1, 3, 9], "kind": ["plain", "wide"], "lr": 0.1}
    plan = make_plan(axes, repeats=1, schema=user_function_schema(train))
    skips = {run.skip.removeprefix(f"the configuration of {TRAIN} refuses its values: ") for run in plan.runs}
    assert skips == {"", "ValueError: wide is not deep", "AssertionError: too deep"}
    assert plan.fixed["train"] == TRAIN, "a record of it is of that function all the same"


@pytest.mark.parametrize(
    ("axes", "message"),
    [
        ({"depth": 1, "width": 3}, f"width is no field of the configuration of {TRAIN}; "),
        ({"lr": 0.1}, f"{TRAIN} needs a value of depth"),
        ({"depth": [None]}, "depth=none: expected int"),
        ({"depth": 1, "sizes": [object()]}, "sizes=<object"),
        ({"depth": 1, "heads": 2**70}, "heads=1180591620717411303424"),
        ({"depth": 1, "world_size": 2, "launcher": "inline"}, "launcher=inline runs one process"),
    ],
)
def test_wrong_values_are_refused(axes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_plan(axes, repeats=1, schema=user_function_schema(train))


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (of_two, "cannot be called as train"),
        (of_four, "cannot be called as train"),
        (sum, "cannot be called as train"),
        (3, "cannot be called as train"),
        (f"{MODULE}:Experiment.train", "cannot be called as train"),
        (of_a_list, "use a dataclass or a dict"),
        ("tests.workloads.user_function.test_schema:trian", "has no function trian"),
        ("no_such_module:train", "no module named"),
    ],
)
def test_what_is_no_training_function_is_refused(function: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        find_function(function)


def test_a_trial_is_named_by_all_of_its_own_values_since_their_defaults_may_change() -> None:
    def trial(schema: Schema, **values: Any) -> str:
        return schema.hash_of(schema.make(**values).canonical())

    schema = user_function_schema(train)
    assert trial(schema, depth=1) == trial(schema, depth=1, lr=0.1) != trial(schema, depth=1, lr=0.2)
    assert trial(user_function_schema(of_a_dict, ["lr"]), lr=DEFAULTS["lr"]) != trial(user_function_schema(of_a_dict))
    assert trial(schema, depth=1) == trial(schema, depth=1, backend="auto") != trial(schema, depth=1, backend="gloo")


def test_equal_values_of_different_types_are_different_values() -> None:
    plan = make_plan({"flag": [1, True, 1.0]}, repeats=1, schema=user_function_schema(of_a_dict, ["flag"]))
    assert len(plan.runs) == 3


@pytest.mark.parametrize("name", ["train", "code"])
def test_a_field_with_the_name_of_a_column_that_is_no_field_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name} is a column"):
        user_function_schema(lambda config, rank, emit: None, [name])


def test_functions_that_share_a_name_are_distinguished_by_their_code_and_not_by_their_trial() -> None:
    def make(factor: int) -> Callable[..., Any]:
        return lambda config, rank, emit: {"value": factor}

    made: list[Any] = [workload_of_function(make(factor)).schema().make() for factor in (1, 1, 2)]
    one, same, other = (workload_of_function("<lambda>").functions(config)[config.train] for config in made)
    assert one == same != other
    assert made[0].canonical() == made[2].canonical()


@pytest.mark.parametrize(
    "name", ["part", "experiment", "Experiment.plain", "Experiment.of_class", "experiment.of_class"]
)
def test_what_can_be_called_as_a_function_is_one_by_its_name_and_as_an_object(name: str) -> None:
    given = operator.attrgetter(name)(sys.modules[MODULE])
    named = f"{MODULE}:{name.replace('experiment.', 'Experiment.')}"
    assert find_function(given) == find_function(named) == (named, None, Settings)
    config = user_function_schema(f"{MODULE}:{name}").make(depth=3)
    function, config_class = load_function(config)
    assert function(config.for_function(config_class), None, None) == {"depth": 3}


def test_what_no_other_process_can_import_is_sent_along() -> None:
    def nested(config: Settings, rank: Any, emit: Any) -> dict[str, Any]:
        return {"depth": config.depth}

    partial = functools.partial(of_four, factor=2)
    for given in (partial, functools.partial(part, factor=2), Experiment().__call__, nested):
        config = user_function_schema(given).make(depth=3)
        assert config.sent is not None
        function, config_class = load_function(pickle.loads(pickle.dumps(config)))
        assert function(config.for_function(config_class), None, None)["depth"] in (3, 6)


UNGUARDED = "from dmls_ray import sweep\ndef train(config, rank, emit): ...\nsweep(train, {'lr': 1})\n"


def test_a_script_that_would_sweep_itself_in_every_rank_is_refused_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(UNGUARDED)
    done = call([sys.executable, "mine.py"], tmp_path)
    assert done.returncode == 1
    assert "put the call of sweep() under if __name__ == '__main__'" in done.stderr
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize("what", [("m:f",), (1, 2), ({}, {})])
def test_a_sweep_without_axes_is_refused(what: tuple[Any, ...]) -> None:
    with pytest.raises(ConfigError, match="takes axes, or a training function and its axes"):
        sweep(*what)


def test_a_function_of_a_script_is_found_under_the_name_of_its_file(tmp_path: Path) -> None:
    script = tmp_path / "mine.py"
    script.write_text(
        "def train(config, rank, emit): ...\n"
        "if __name__ == '__main__':\n"
        "    from dmls_ray.workloads.user_function.schema import find_function\n"
        "    name, sent, config_class = find_function(train)\n"
        "    print(name, sent, config_class)\n"
    )
    done = call([sys.executable, script], PROJECT)
    assert done.stdout == "mine:train None None\n"


def test_a_sweep_at_import_is_refused_rather_than_repeated_in_every_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "unguarded.py").write_text(UNGUARDED)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InputError, match="put it under if __name__ == '__main__'"):
        find_function("unguarded:train")
