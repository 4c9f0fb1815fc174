"""What is said of the runs of a script before they start."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dmls_ray.util.errors import ConfigError
from dmls_ray.workloads.script.workload import ScriptWorkload


@pytest.mark.parametrize(
    ("given", "is_said"),
    [({}, True), ({"threads_per_rank": 2}, False), ({"OMP_NUM_THREADS": 2}, False)],
    ids=["neither", "--threads-per-rank", "--env"],
)
def test_a_number_of_threads_that_is_exported_and_not_taken_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], *, is_said: bool
) -> None:
    script = tmp_path / "train.py"
    script.write_text("print(1)\n", encoding="utf-8")
    variables = {name: "2" for name in given if name.isupper()}
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    workload = ScriptWorkload(str(script), variables=variables)
    said: list[str] = []
    workload.prepare([workload.schema().make(seed_flag="none", **given)], said.append)
    assert [("--threads-per-rank 3" in line) for line in said] == [True] * is_said


SEEDED = """
import argparse
p = argparse.ArgumentParser()
p.add_argument("--seed", type=int, default=0)
p.add_argument("--torch-seed", "--cuda-seed", type=int, default=0)
p.parse_args()
"""


@pytest.mark.parametrize(
    ("arguments", "given", "refused"),
    [
        ((), {}, ""),
        (("--torch-seed", "7"), {"seed_flag": "--cuda-seed"}, "--torch-seed 7 after --: each repeat gives --cuda-seed"),
        ((), {"torch_seed": 7, "seed_flag": "--cuda-seed"}, "--torch-seed 7: each repeat gives --cuda-seed"),
        ((), {"script_seed": 1}, "--script-seed 1: each repeat gives --seed a seed of its own"),
        (("--seed", "7"), {}, "--seed 7 after --: each repeat gives --seed a seed of its own"),
        (("--seed", "7"), {"seed_flag": "none"}, ""),
        (("--seed", "{seed}"), {}, ""),
        ((), {"script_seed": 1, "seed_flag": "none"}, ""),
    ],
)
def test_a_seed_of_the_users_is_not_replaced_in_silence(
    tmp_path: Path, arguments: tuple[str, ...], given: dict[str, Any], refused: str
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SEEDED, encoding="utf-8")
    workload = ScriptWorkload(str(script), arguments)
    config = workload.schema().make(**given)
    if not refused:
        workload.check([config])
        return
    with pytest.raises(ConfigError, match=re.escape(refused)):
        workload.check([config])


def test_a_seed_is_not_replaced_where_the_flags_of_a_script_are_not_known(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('trains')", encoding="utf-8")
    for arguments in (("--seed=7",), ("--seed", "7")):
        workload = ScriptWorkload(str(script), arguments)
        workload.check([workload.schema().make()])
        with pytest.raises(ConfigError, match=f"^{' '.join(arguments)} after --: each repeat gives --seed"):
            workload.check([workload.schema().make(seed_flag="--seed")])
    workload = ScriptWorkload(str(script), ("--seed={seed}",))
    workload.check([workload.schema().make(seed_flag="--seed")])


def test_further_variables_are_fields_that_are_not_set_and_stay_where_flags_are_split_off(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import argparse\nargparse.ArgumentParser().parse_args()\n", encoding="utf-8")
    given = ScriptWorkload(str(script), variables={"GIVEN": "1"})
    workload, _ = given.with_variables(["GIVEN", "FURTHER"]).split_off(())
    assert {"GIVEN", "FURTHER"} <= workload.schema().specs.keys()
    config = workload.schema().make(seed_flag="none", GIVEN="1")
    assert (config.canonical(), workload.variables) == (  # type: ignore[attr-defined]
        given.schema().make(seed_flag="none", GIVEN="1").canonical(),
        {"GIVEN": "1"},
    )
    assert workload.command_of({"FURTHER": "2"}) == f"FURTHER=2 python {script}"
