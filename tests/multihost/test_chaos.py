"""A short version of the suite of faults: processes that are killed and stopped, and a store that fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.chaos.places import empty_folder
from benchmarks.chaos.runner import References, play
from benchmarks.chaos.scenario import SHORT, make_scenario

pytestmark = [pytest.mark.multihost, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def references(tmp_path_factory: pytest.TempPathFactory) -> References:
    return References(tmp_path_factory.mktemp("chaos") / "undisturbed", print)


@pytest.mark.parametrize(("seed", "place"), [(108, "machine"), (113, "machine"), (103, "store")])
def test_no_row_is_lost_twice_or_wrong_and_nothing_hangs(
    seed: int, place: str, hosts_possible: None, references: References, tmp_path: Path
) -> None:
    scenario = make_scenario(seed, SHORT, place=place)
    played = play(scenario, empty_folder(tmp_path, "scenario"), references, print)
    assert played.passes, played
    assert len(played.struck) == SHORT.faults, played.missed
