"""What a process computes and what others do beside it, by real processes."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time

import psutil
import pytest

from dmls_ray.training.cpu_use import CpuUse

COMPUTES = [sys.executable, "-c", "import time\nends = time.monotonic() + 30\nwhile time.monotonic() < ends: pass"]


def test_what_a_process_computes_is_its_own() -> None:
    use = CpuUse()
    began, computed = time.monotonic(), time.process_time()
    while time.monotonic() < began + 1:
        pass
    found = use.read()
    # On a busy machine this process has a part of a core.
    share = (time.process_time() - computed) / (time.monotonic() - began)
    assert found["cpu_cores"] == pytest.approx(share, abs=0.1)
    assert found["cpu_cores"] > 0
    assert found["busy_cores"] > found["cpu_cores"] - 0.1


def test_what_a_child_computes_that_goes_on_is_of_the_process() -> None:
    use = CpuUse()
    with subprocess.Popen(COMPUTES) as child:
        time.sleep(1)
        found = use.read()
        times = psutil.Process(child.pid).cpu_times()
        child.kill()
    assert found["cpu_cores"] == pytest.approx(times.user + times.system, abs=0.3)
    assert found["cpu_cores"] > 0


def test_what_another_program_computes_is_of_the_machine_alone() -> None:
    started = subprocess.run(
        ["sh", "-c", f"{shlex.join(COMPUTES)} > /dev/null 2>&1 & echo $!"], capture_output=True, text=True, check=True
    )
    try:
        use = CpuUse()
        time.sleep(1)
        found = use.read()
    finally:
        os.kill(int(started.stdout), signal.SIGKILL)
    assert found["cpu_cores"] < 0.3
    assert found["busy_cores"] > found["cpu_cores"]
