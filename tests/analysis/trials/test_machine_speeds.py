"""Which machine of a sweep on lanes is slower."""

from __future__ import annotations

import math
import random
import re
from typing import Any

import pytest

from dmls_ray.analysis.results import Results
from dmls_ray.analysis.stats.intervals import is_above, is_below
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.named_layouts import render
from dmls_ray.analysis.trials.machine_speeds import _against_others, effects_of_kinds, machine_speeds
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
    speeds = {machine.hosts: machine for machine in machine_speeds(make_table(on_lanes()).rows)}
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
    assert "Slower than the other machines beyond chance: host-2 (0.80x [" in notes
    frame = render(on_lanes(), "machines").frame
    assert frame["machine"].tolist() == list(HOSTS)
    assert frame["blocks"].tolist() == ["4"] * 3


def test_without_lanes_no_machine_is_compared() -> None:
    assert machine_speeds(make_table(on_lanes(lanes=1)).rows) == []
    rendered = render(on_lanes(lanes=1), "machines")
    assert rendered.frame.empty
    assert "--by scaling" in rendered.notes[0]


def of_two_kinds(effect: float) -> Results:
    """Twelve blocks on two kinds of machine in turn; on the second, the larger batch is so many times faster."""

    def rate(values: dict[str, Any], repeat: int) -> float:
        batch = values["batch_per_rank"]
        factor = {16: 1.0, 64: effect if repeat % 2 else 2.0}[batch]
        return 100.0 * factor * (1 + 0.3 * (repeat % 2)) * (1 + 0.01 * ((repeat * batch) % 7) / 7)

    found = results({"batch_per_rank": [16, 64]}, rate, repeats=12)
    for record in found.records:
        record.lane = 1 + record.repeat % 2
        record.machine = {**record.machine, "host": f"host-{record.lane}", "memory_mib": 1024 * record.lane}
    return found


def test_an_effect_that_depends_on_the_kind_of_machine_is_named_and_a_faster_kind_alone_is_none() -> None:
    table = make_table(of_two_kinds(3.0))
    (ratios,) = effects_of_kinds(table.rows).differing.values()
    assert [ratio.centre for ratio in ratios.values()] == pytest.approx([2.0, 3.0], rel=0.01)
    notes = " ".join(table.notes)
    assert "2 kinds of machine, over which comparisons are a mean" in notes
    assert re.search(
        r"64 \(2\.0\d*x \[[\d., ]+\] on Some CPU, 1 GiB; 3\.0\d*x \[[\d., ]+\] on Some CPU, 2 GiB\)", notes
    )
    same = make_table(of_two_kinds(2.0))
    assert effects_of_kinds(same.rows).differing == {}
    assert "No speed against batch_per_rank=16 differs between kinds of machine" in " ".join(same.notes)


def test_a_lane_of_two_machines_has_the_names_of_both_and_its_time_for_communication() -> None:
    found = on_lanes(lanes=2)
    for record in found.records:
        record.machine |= {"host": f"host-{record.lane}", "beside": [f"host-{record.lane + 2}: some CPU, 1 cores"]}
        record.metrics |= {"comm_ms": 5.0 * record.lane * (1 + record.repeat / 100)}
    first, second = machine_speeds(make_table(found).rows)
    assert (first.hosts, second.hosts) == ("host-1 + host-3", "host-2 + host-4")
    assert second.communication is not None
    assert second.communication.centre == pytest.approx(2.0, rel=0.02)
    assert all(machine.communication is None for machine in machine_speeds(make_table(on_lanes()).rows))


def test_a_trial_that_fails_on_one_machine_makes_it_neither_faster_nor_slower() -> None:
    found = on_lanes()
    found.records = [
        record
        for record in found.records
        if not (record.machine["host"] == SLOW and record.config["batch_per_rank"] == 64)
    ]
    speeds = {machine.hosts: machine.against_others for machine in machine_speeds(make_table(found).rows)}
    assert speeds[SLOW] is not None
    assert speeds[SLOW].centre == pytest.approx(0.8, abs=0.01)


def test_a_trial_that_was_measured_later_on_other_machines_counts_for_none_of_the_first() -> None:
    found = on_lanes()
    for record in found.records:
        if record.config["batch_per_rank"] == 64:
            host = HOSTS[(record.repeat + 1) % 3]
            record.machine, record.lane = {**record.machine, "host": host}, 1 + HOSTS.index(host)
    speeds = {machine.hosts: machine.against_others for machine in machine_speeds(make_table(found).rows)}
    assert speeds[SLOW] is not None
    assert speeds[SLOW].centre == pytest.approx(0.8, abs=0.01)


def test_effects_of_kinds_are_not_compared_across_sessions_nor_from_few_blocks() -> None:
    found = of_two_kinds(3.0)
    for record in found.records:
        record.session = f"session {record.config['batch_per_rank']}"
    assert not effects_of_kinds(make_table(found).rows).compared
    few = of_two_kinds(3.0)
    few.records = [record for record in few.records if record.repeat < 4]
    assert not effects_of_kinds(make_table(few).rows).compared
    assert "differs between kinds" not in " ".join(make_table(few).notes)


def test_one_of_many_lanes_of_equal_speed_is_rarely_called_slower() -> None:
    chance = random.Random(3)
    wrong = 0
    for _ in range(200):
        values = {(lane, ""): [math.exp(chance.gauss(0, 0.02)) for _ in range(3)] for lane in range(10)}
        against = [_against_others(place, values) for place in values]
        wrong += any(is_above(ratio, 1) or is_below(ratio, 1) for ratio in against)
    assert wrong <= 10
