"""The tables of scenarios, and their record."""

from __future__ import annotations

import msgspec

from benchmarks.chaos.check import Counts
from benchmarks.chaos.runner import Played, Struck
from benchmarks.chaos.table import by_kind, by_scenario, totals


def played(seed: int, *struck: Struck, **changes: object) -> Played:
    return Played(seed=seed, place="machine", runs=12, struck=[*struck], exit_codes=[0], **changes)  # type: ignore[arg-type]


def test_a_scenario_passes_unless_a_row_is_damaged_or_the_sweep_hangs_or_fails_without_a_reason() -> None:
    assert played(1, counts=Counts(ok=12)).passes
    assert not played(1, counts=Counts(lost=1)).passes
    assert not played(1, hung=["waiting"]).passes
    assert not played(1, gave_up=["exit code 1"]).passes


def test_the_tables_add_up_rows_and_faults() -> None:
    kill = Struck("kill rank", "rank", 3, lost_s=5.0)
    both = [
        played(1, kill, Struck("kill supervisor", "supervisor", 5, 20.0, ended_command=True), counts=Counts(ok=12)),
        played(2, Struck("kill rank", "rank", 4, lost_s=7.0), counts=Counts(ok=11, lost=1), hung=["x"]),
    ]
    assert [msgspec.json.decode(msgspec.json.encode(one), type=Played) for one in both] == both
    values = dict(totals(both).itertuples(index=False))
    assert (values["runs"], values["faults"], values["rows lost"], values["sweeps hung"]) == ("24", "3", "1", "1")
    rows = by_kind(both).set_index("fault")
    assert rows.loc["kill rank"].tolist() == ["2", "", "6.0", "5.0", "7.0"]
    assert rows.loc["kill supervisor"].tolist() == ["1", "1", "20.0", "20.0", "20.0"]
    assert by_scenario(both)["faults"].tolist() == ["kill rank, kill supervisor", "kill rank"]
