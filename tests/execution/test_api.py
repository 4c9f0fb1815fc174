"""The signature of `sweep`."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pytest

from dmls_ray import sweep
from dmls_ray.config.options import Options
from dmls_ray.util.errors import ConfigError

AXES = {"batch_per_rank": 8}


def test_help_and_notebooks_list_the_options_as_keywords_of_sweep() -> None:
    parameters = inspect.signature(sweep).parameters
    keywords = [name for name, item in parameters.items() if item.kind is item.KEYWORD_ONLY]
    assert keywords == ["workload", *inspect.signature(Options).parameters]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"repeat": 3}, "repeat is no option of sweep; did you mean repeats? the options are workload, name, axis"),
        ({"lr": 0.1}, "lr is no option of sweep but a field of classification; put it into the axes."),
        ({"workload": "blur"}, "--workload blur: unknown workload; installed are "),
        ({"mode": "search", "metric": "val_loss"}, "unknown metric; classification reports train_loss"),
    ],
)
def test_wrong_options_are_named_with_the_way_out(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        sweep(AXES, **arguments)


def test_a_sweep_without_axes_says_what_it_takes() -> None:
    with pytest.raises(ConfigError, match=re.escape("sweep() takes axes, or a training function and its axes")):
        sweep()


def test_a_workload_and_a_training_function_are_not_both_accepted() -> None:
    with pytest.raises(ConfigError, match="workload=grayscale and a training function are both given"):
        sweep("m:f", AXES, workload="grayscale")
