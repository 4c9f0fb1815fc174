"""What a process computes and what others do beside it, by real processes."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dmls_ray.training import cpu_use
from dmls_ray.training.cpu_use import CpuUse
from dmls_ray.util.cores import CpuQuota, cpu_quotas

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


def test_a_run_counts_the_periods_of_its_own_time_and_the_quota_that_stopped_it_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pod, box = Path("/pod"), Path("/pod/box")
    quotas = {
        pod: CpuQuota(cores=2, periods=100, throttled=50),
        box: CpuQuota(cores=4, periods=1000, throttled=900),
    }
    monkeypatch.setattr(cpu_use, "cpu_quotas", lambda: quotas)
    use = CpuUse()
    assert "throttled_by_quota" not in use.read(), "no period has ended yet"
    assert use.read()["quota_cores"] == 2
    quotas = {
        pod: CpuQuota(cores=2, periods=140, throttled=60),
        box: CpuQuota(cores=4, periods=1040, throttled=902),
    }
    assert use.read()["throttled_by_quota"] == 0.25


@pytest.fixture
def tenth_of_a_core() -> Iterator[Path]:
    """A control group that may use a tenth of a core."""
    version_2, version_1 = Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/cpu")
    controllers = version_2 / "cgroup.controllers"
    is_version_2 = controllers.exists() and "cpu" in controllers.read_text().split()
    group = (version_2 if is_version_2 else version_1) / f"dmls-ray-{uuid.uuid4().hex}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"this machine lets no control group be made: {error}")
    limit = ("cpu.max", "10000 100000") if is_version_2 else ("cpu.cfs_quota_us", "10000")
    try:
        (group / limit[0]).write_text(limit[1])
    except OSError as error:
        group.rmdir()
        pytest.skip(f"this machine lets no control group have a quota: {error}")
    yield group
    group.rmdir()


STOPPED = """
import json, time
from dmls_ray.training.cpu_use import CpuUse
from dmls_ray.util.cores import usable_cores
use, ends = CpuUse(), time.monotonic() + 2
while time.monotonic() < ends: pass
print(json.dumps([usable_cores(), use.read()]))
"""


@pytest.mark.skipif(bool(cpu_quotas()), reason="the tests themselves have a quota")
def test_a_process_that_computes_more_than_its_quota_is_stopped_in_most_periods(tenth_of_a_core: Path) -> None:
    words = shlex.join([sys.executable, "-c", STOPPED])
    script = f"echo $$ >{tenth_of_a_core}/cgroup.procs && exec {words}"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, timeout=250)
    cores, found = json.loads(done.stdout)
    assert cores == 1
    assert found["quota_cores"] == pytest.approx(0.1)
    assert found["cpu_cores"] < 0.2
    assert found["throttled_by_quota"] > 0.5
