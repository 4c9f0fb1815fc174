from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.config.options import Options, Until
from dmls_ray.util.errors import ConfigError


def test_a_sweep_repeats_until_it_is_decided_unless_a_number_is_given() -> None:
    assert Options().until == Until()
    assert Options(repeats="auto").until == Until()
    assert Options().blocks == Until.max_repeats
    assert Options(repeats=5).until is None
    assert Options(repeats=5).blocks == 5


def test_a_search_runs_each_trial_once() -> None:
    assert Options(search=True).until is None
    assert Options(search=True).blocks == 1


def test_until_when_a_sweep_repeats_is_given_in_words_too() -> None:
    given = Options(within="3%", budget="20m", max_repeats=50, equivalent=0.01)  # type: ignore[arg-type]
    assert given.until == Until(within=0.03, budget=1200, max_repeats=50, equivalent=0.01)
    assert Options(budget=None).until == Until(budget=None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"out": "file:///shared/x"}, "--out file:///shared/x is a folder of this machine; give its path"),
        ({"within": 0.0}, "within=0.0: expected float > 0"),
        ({"within": "wide"}, "within=wide: give a share: 0.05 or 5%"),
        ({"budget": "tomorrow"}, "budget=tomorrow: give a duration: 90s, 20m or 2h"),
        ({"repeats": "never"}, "repeats=never is unknown; choose from auto, or give int"),
        ({"max_repeats": 2}, "max_repeats=2: expected int >= 3"),
        ({"repeats": 0}, "repeats=0: expected int >= 1"),
        ({"repeats": 5, "budget": 20.0}, "budget=20.0 only applies to repeats=auto, and not to repeats=5; leave"),
        ({"search": True, "max_repeats": 9}, "max_repeats=9 only applies to repeats=auto, and not to a search"),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Options(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lanes": 2, "search": True}, "--lanes 2 is for timed runs, and those of --search share ranks"),
        ({"lanes": "all", "times": "off"}, "--lanes all is for timed runs, and those of --times off share ranks"),
        ({"leave_out_slower": 0.05}, "--leave-out-slower is for machines of a cluster"),
        ({"leave_out_slower": 0.05, "address": "local"}, "--leave-out-slower is for machines of a cluster"),
        ({"accept_slower": True}, "--accept-slower is for several lanes of one machine"),
        ({"times": "off", "race": True, "aim": "throughput"}, "--aim throughput compares times"),
    ],
)
def test_options_of_lanes_without_an_effect_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Options(**options)
    assert Options(lanes=2, accept_slower=True).is_timed
