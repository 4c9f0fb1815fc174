"""A short version of the suite of faults: processes that are killed and stopped, and a store that fails."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from benchmarks.chaos.places import empty_folder
from benchmarks.chaos.runner import Played, References, play
from benchmarks.chaos.scenario import SHORT, make_scenario

pytestmark = [pytest.mark.multihost, pytest.mark.slow, pytest.mark.timeout(900)]

SCENARIOS = {108: "machine", 224: "machine", 316: "store"}
"""The place of each seed. Both faults of these strike before half of the rows, so that each finds its victim."""


@pytest.fixture(scope="module")
def playing(hosts_possible: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Future[Played]]]:
    """The scenarios and the undisturbed sweep. Two at a time, since most of a sweep of 8 runs is the start of Ray."""
    folder = tmp_path_factory.mktemp("chaos")
    references = References(folder / "undisturbed", print)
    scenarios = [make_scenario(seed, SHORT, place=place) for seed, place in SCENARIOS.items()]
    with ThreadPoolExecutor(2) as pool:
        pool.submit(references.of, scenarios[0].sweep)
        yield {
            scenario.seed: pool.submit(play, scenario, empty_folder(folder, str(scenario.seed)), references, print)
            for scenario in scenarios
        }


@pytest.mark.parametrize("seed", SCENARIOS)
def test_no_row_is_lost_twice_or_wrong_and_nothing_hangs(seed: int, playing: dict[int, Future[Played]]) -> None:
    played = playing[seed].result()
    assert played.passes, played
    assert len(played.struck) == SHORT.faults, played.missed
