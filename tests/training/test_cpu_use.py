"""What a process computes and what others do beside it, by real processes."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time

from dmls_ray.training.cpu_use import CpuUse

COMPUTES = [sys.executable, "-c", "import time\nends = time.monotonic() + 30\nwhile time.monotonic() < ends: pass"]


def test_what_a_process_computes_is_its_own() -> None:
    use = CpuUse()
    ends = time.monotonic() + 1
    while time.monotonic() < ends:
        pass
    found = use.read()
    assert 0.3 < found["cpu_cores"] < 1.1
    assert found["busy_cores"] > found["cpu_cores"] - 0.1


def test_what_a_child_computes_that_goes_on_is_of_the_process() -> None:
    use = CpuUse()
    with subprocess.Popen(COMPUTES) as child:
        time.sleep(1)
        found = use.read()
        child.kill()
    assert found["cpu_cores"] > 0.3


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
    assert found["busy_cores"] > 0.3
