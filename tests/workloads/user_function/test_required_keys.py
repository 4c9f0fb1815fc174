"""Which keys of a dict a training function is known to read in every call."""

from __future__ import annotations

import contextlib
import functools
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dmls_ray.execution.api import sweep
from dmls_ray.util.errors import ConfigError, UnavailableError
from dmls_ray.workloads.user_function.required_keys import required_keys
from tests.conftest import PROJECT

DEFAULTS = {"width": 8}


def with_defaults(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(config: dict[str, Any], rank: Any, emit: Any) -> Any:
        return function({**DEFAULTS, **config}, rank, emit)

    return call


def straight(config, rank, emit):  # type: ignore[no-untyped-def]
    """Its keys are read in every call, wherever they stand in an expression."""
    print(f"start {config}")

    def scaled(value: float) -> float:
        return value * 2

    layers = [config["width"] for _ in range(config["depth"])]
    if config["kind"] == "wide":
        layers = layers * config["factor"]
    rate = config.get("lr", 0.1) * scaled(config["scale"])
    print(config["seed"])
    for _ in range(config["epochs"]):
        emit({"train_loss": rate * config["decay"]})
    return {"layers": len(layers)}


class Trainer:
    def train(self, config, rank, emit):  # type: ignore[no-untyped-def]
        return {"x": config["width"]}


def guarded(config, rank, emit):  # type: ignore[no-untyped-def]
    value = 2 * config["width"] if "width" in config else 8
    flag = "width" in config and config["width"] > 1
    if "width" in config:
        value = config["width"]
    with contextlib.suppress(KeyError):
        value = config["width"]
    try:
        value = config["width"]
    except KeyError:
        value = 8
    later = lambda: config["width"]  # noqa: E731

    def never_called() -> Any:
        return config["width"]

    for _ in range(0):
        value = config["width"]
    return {"value": value, "flag": flag, "later": bool(later and never_called)}


def assigns_first(config, rank, emit):  # type: ignore[no-untyped-def]
    config["width"] = 8
    return {"x": config["width"]}


def sets_default(config, rank, emit):  # type: ignore[no-untyped-def]
    config.setdefault("width", 8)
    return {"x": config["width"]}


def updates(config, rank, emit):  # type: ignore[no-untyped-def]
    config |= {"width": 8}
    return {"x": config["width"]}


def rebinds(config, rank, emit):  # type: ignore[no-untyped-def]
    config = {**DEFAULTS, **config}
    return {"x": config["width"]}


def imports_over(config, rank, emit):  # type: ignore[no-untyped-def]
    from tests.workloads.user_function.test_required_keys import DEFAULTS as config

    return {"x": config["width"]}


def hands_over(config, rank, emit):  # type: ignore[no-untyped-def]
    fill(config)
    return {"x": config["width"]}


def fill(values: dict[str, Any]) -> None:
    values.setdefault("width", 8)


def fills_within(config, rank, emit):  # type: ignore[no-untyped-def]
    def fill_in() -> None:
        config["width"] = 8

    fill_in()
    return {"x": config["width"]}


def has_alias(config, rank, emit):  # type: ignore[no-untyped-def]
    settings = config
    settings["width"] = 8
    return {"x": config["width"]}


def is_shadowed(config, rank, emit):  # type: ignore[no-untyped-def]
    return {"x": sum(config["width"] for config in [DEFAULTS])}


def reads_another(config, rank, emit):  # type: ignore[no-untyped-def]
    return {"x": DEFAULTS["width"], "y": {"a": 1}["a"]}


def returns_before(config, rank, emit):  # type: ignore[no-untyped-def]
    if "width" not in config:
        return {}
    return {"x": config["width"]}


def raises_before(config, rank, emit):  # type: ignore[no-untyped-def]
    if "width" not in config:
        raise UnavailableError("there is no width")
    return {"x": config["width"]}


def exits_before(config, rank, emit):  # type: ignore[no-untyped-def]
    if "width" not in config:
        sys.exit(0)
    return {"x": config["width"]}


def exits_in_a_loop(config, rank, emit):  # type: ignore[no-untyped-def]
    for _ in {"width"} - config.keys():
        stop()
    return {"x": config["width"]}


def exits_after_an_error(config, rank, emit):  # type: ignore[no-untyped-def]
    try:
        width = config["width"]
    except KeyError:
        stop()
    return {"x": width + config["height"]}


def stop() -> None:
    sys.exit(0)


@with_defaults
def is_decorated(config, rank, emit):  # type: ignore[no-untyped-def]
    return {"x": config["width"]}


partial = functools.partial(Trainer.train, Trainer())
of_a_lambda = lambda config, rank, emit: {"x": config["width"]}  # noqa: E731


def test_keys_that_every_call_reads_are_found_in_their_order() -> None:
    assert required_keys(straight) == ("depth", "kind", "scale", "seed", "epochs")
    assert required_keys(Trainer().train) == ("width",)


@pytest.mark.parametrize(
    "function",
    [
        guarded, assigns_first, sets_default, updates, rebinds, imports_over, hands_over, fills_within, has_alias,
        is_shadowed, reads_another, returns_before, raises_before, exits_before, exits_in_a_loop, exits_after_an_error,
        is_decorated,
    ],
    ids=lambda function: function.__name__,
)  # fmt: skip
def test_of_a_function_that_runs_without_the_key_nothing_is_claimed(function: Callable[..., Any]) -> None:
    with contextlib.suppress(SystemExit, UnavailableError):  # ends without the key
        function({}, None, None)
    assert required_keys(function) == ()


def test_without_a_source_that_is_the_functions_own_nothing_is_claimed() -> None:
    names: dict[str, Any] = {}
    exec("def train(config, rank, emit):\n    return config['width']", names)
    assert required_keys(names["train"]) == required_keys(partial) == required_keys(of_a_lambda) == ()


def test_a_sweep_without_a_key_is_refused_and_names_it() -> None:
    with pytest.raises(
        ConfigError, match=r"reads config\['kind'\] and config\['scale'\] and config\['epochs'\], which"
    ):
        sweep(straight, {"depth": [1, 2]})


def test_a_key_that_nothing_gives_is_one_line_and_nothing_starts(tmp_path: Path) -> None:
    source = """
        def train(config, rank, emit):
            return {"area": config["width"] * config["height"]}
    """
    (tmp_path / "areas.py").write_text(textwrap.dedent(source))
    script = [sys.executable, str(PROJECT / "sweeps" / "grid.py"), "--train", "areas:train"]
    ended = subprocess.run([*script, "--set", "width", "1", "2"], cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "grid.py: train=areas:train reads config['height']" in ended.stderr
    assert "add --set height VALUE" in ended.stderr
    assert not (tmp_path / "results").exists()
