"""Which machine of a sweep on lanes is slower."""

from __future__ import annotations

from typing import Any

import pytest

from dmls_ray.analysis.results import Results
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.layouts import render
from dmls_ray.analysis.trials.machine_speeds import machine_speeds
from tests.analysis.samples import results

HOSTS = ("host-1", "host-2", "host-3")
SLOW = "host-2"


def on_lanes(lanes: int = 3) -> Results:
    """Twelve blocks, each on one of the hosts; one host is 20% slower, and each block differs by up to 1%."""

    def rate(values: dict[str, Any], repeat: int) -> float:
        of_host = 0.8 if HOSTS[repeat % 3] == SLOW else 1.0
        return values["batch_per_rank"] * 100.0 * of_host * (1 + 0.01 * ((repeat * 7) % 5) / 5)

    found = results({"batch_per_rank": [16, 64]}, rate, repeats=12)
    for record in found.records:
        record.machine = {**record.machine, "host": HOSTS[record.repeat % 3], "memory_mib": 1024}
        record.lane = 1 + record.repeat % lanes
    return found


def test_the_slow_machine_is_named_with_an_interval_and_the_trials_do_not_matter() -> None:
    speeds = {machine.host: machine for machine in machine_speeds(make_table(on_lanes()).rows)}
    assert [speeds[host].blocks for host in HOSTS] == [4, 4, 4]
    against = speeds[SLOW].against_others
    assert against is not None
    assert against.centre == pytest.approx(0.8, abs=0.01)
    assert against.high is not None
    assert against.high < 0.9
    others = speeds["host-1"].against_others
    assert others is not None
    assert others.low is not None
    assert others.low < 1.25 < (others.high or 0)


def test_the_table_and_its_notes_name_the_machines_of_lanes() -> None:
    table = make_table(on_lanes())
    notes = " ".join(table.notes)
    assert "3 lanes" in notes
    assert "Slower than the other machines beyond chance: host-2 (0.80 [" in notes
    frame = render(on_lanes(), "machines").frame
    assert frame["machine"].tolist() == list(HOSTS)
    assert frame["blocks"].tolist() == ["4"] * 3


def test_without_lanes_no_machine_is_compared() -> None:
    assert machine_speeds(make_table(on_lanes(lanes=1)).rows) == []
    rendered = render(on_lanes(lanes=1), "machines")
    assert rendered.frame.empty
    assert "--by scaling" in rendered.notes[0]
