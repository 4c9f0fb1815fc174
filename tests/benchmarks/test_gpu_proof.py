"""The parts of the first measurements on a GPU, on a CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from benchmarks import gpu_proof
from benchmarks.gpu_proof import PARTS, page, run_part
from tests.conftest import PROJECT

WRITE_A_ROW = "import sys; open(sys.argv[1], 'w').write('{\"n\": 1}')"


def part_of(program: str, tmp_path: Path, limit_s: float = 60) -> dict[str, object]:
    file = tmp_path / "rows.json"
    return run_part([sys.executable, "-c", program, str(file)], file, limit_s)


def test_a_part_that_fails_keeps_its_rows_and_says_why(tmp_path: Path) -> None:
    good = part_of(WRITE_A_ROW, tmp_path)
    assert (good["rows"], "error" in good) == ([{"n": 1}], False)
    failed = part_of(f"{WRITE_A_ROW}; raise ValueError('no kernel')", tmp_path)
    assert failed["rows"] == [{"n": 1}]
    assert "ValueError: no kernel" in str(failed["error"])
    placed = part_of(f"raise OSError({str(PROJECT / 'train.py')!r})", tmp_path)
    assert "OSError: train.py" in str(placed["error"]), "the proof is published, and names no folder of its machine"


def test_a_part_that_hangs_ends_with_all_it_has_started(tmp_path: Path) -> None:
    sleeper = "import subprocess, sys, pathlib; p = subprocess.Popen(['sleep', '600']); "
    note = f"pathlib.Path({str(tmp_path / 'pid')!r}).write_text(str(p.pid)); p.wait()"
    hanging = part_of(sleeper + note, tmp_path, limit_s=2)
    assert str(hanging["error"]).startswith("not done after 2 s")
    pid = int((tmp_path / "pid").read_text())
    until = time.monotonic() + 20  # a process that was killed ends soon
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until
        time.sleep(0.05)


def test_all_limits_together_are_below_ten_minutes() -> None:
    assert sum(limit_s for _, limit_s in PARTS.values()) <= 600


def test_the_page_has_rows_and_errors_of_each_part() -> None:
    state = {"name": "NVIDIA H100", "mhz": 1980.0, "reasons": None}
    memory = {"seconds": 1.5, "rows": [{"tensor MiB": 1.23456}], "error": "out of memory"}
    facts = {"command": "python x", "started_at": "now", "machine": "a machine"}
    text = page({**facts, "gpus_before": [state], "gpus_after": [], "parts": {"memory": memory}})
    for shown in ("NVIDIA H100", "1.235", "out of memory", "1.5 s", "a machine"):
        assert shown in text


def test_the_tests_of_a_gpu_are_in_files_that_need_no_ray() -> None:
    files = gpu_proof.files_of_gpu_tests()
    assert len(files) >= 6
    assert not any("import ray" in file.read_text() for file in files)


@pytest.mark.slow
def test_every_part_runs_on_a_cpu_without_ray(tmp_path: Path) -> None:
    (tmp_path / "without" / "ray").mkdir(parents=True)
    (tmp_path / "without" / "ray" / "__init__.py").write_text("raise ModuleNotFoundError('no ray here')")
    path = os.pathsep.join([str(tmp_path / "without"), str(PROJECT)])
    script = PROJECT / "benchmarks" / "gpu_proof.py"
    command = [sys.executable, str(script), "--device", "cpu", "--out", str(tmp_path / "gpu")]
    environment = {**os.environ, "PYTHONPATH": path}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    proof = json.loads((tmp_path / "gpu" / "proof.json").read_text())
    assert proof["parts"].keys() == PARTS.keys()
    assert all(part["rows"] for part in proof["parts"].values())
