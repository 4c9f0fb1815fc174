from __future__ import annotations

from typing import Any

from dmls_ray.analysis.report.methodology import commands, environments, methodology, run_counts
from dmls_ray.analysis.table.build import make_table
from tests.analysis.samples import results

AXES = {"batch_per_rank": [16, 32]}


def rate(values: dict[str, Any], repeat: int) -> float | None:
    return None if (values["batch_per_rank"], repeat) == (32, 2) else 100.0


def test_how_it_was_measured_names_order_and_seeds() -> None:
    sample = results(AXES, rate)
    assert run_counts(sample) == "6 runs: 5 ok, 1 oom"
    sample.records[0].attempts = 2
    for record in sample.records:
        record.isolation = "group"
    text = " ".join(methodology(sample, make_table(sample)))
    assert "Blocks: 3, with one repeat of every trial each, shuffled by seed 0" in text
    assert "Mean of n repeats and its 95% interval" in text
    assert "Runs started more than once because a rank was lost: 1 of 6." in text
    assert "Isolation: group." in text


def test_a_search_is_not_said_to_have_run_alone() -> None:
    sample = results(AXES, rate)
    for record in sample.records:
        record.mode = "search"
    text = " ".join(methodology(sample, make_table(sample)))
    assert "share the machine" in text
    assert "to itself" not in text


def test_each_machine_is_described_once_with_its_versions() -> None:
    sample = results(AXES, rate)
    sample.records[0].machine = {"host": "other", "gpus": ["H200", "H200"], "memory_mib": 131072}
    other, lab = environments(sample.records)
    assert (other["runs"], other["machine"]) == (1, {"host": "other", "gpus": "2 x H200", "memory_mib": "131,072"})
    assert (lab["runs"], lab["versions"]["torch"], lab["code"]) == (5, "2", {})


def test_the_commands_are_those_that_a_shell_takes() -> None:
    session = {
        "started_at": "2026-01-02",
        "command": ["batch_size.py", "--out", "my results"],
        "git": {"commit": "abc", "dirty": True},
    }
    first, second = commands([session, {"command": ["dmls-ray", "sweep"]}, {"command": []}, {}])
    assert first[0] == "2026-01-02"
    assert first[1].splitlines() == [
        "git checkout abc  # the files had changes that this commit lacks",
        "python batch_size.py --out 'my results'",
    ]
    assert second == ("", "dmls-ray sweep")
