"""The start of a sweep: it can be stopped at any moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest

from tests.conftest import GRID, command_line

MARK = "DMLS_RAY_TEST_MARK"
"""Variable in the environment of all processes of a sweep."""
MOMENTS = [0.05 + 0.2 * number for number in range(30)]
"""Seconds from Enter; the first run ends after four to six of them on a quiet machine."""


def marked(mark: str) -> list[str]:
    """Names of the processes of a sweep that still run."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(" ".join(process.cmdline())[:80] or process.name())
        except psutil.Error:
            continue  # it has ended, or is another user's
    return found


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the environment of another process")
def test_ctrl_c_at_any_moment_of_the_start_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    for moment in MOMENTS:
        mark = uuid.uuid4().hex
        folder = tmp_path / mark[:8]
        folder.mkdir()
        (folder / "tmp").mkdir()
        environment = {**os.environ, MARK: mark, "TMPDIR": str(folder / "tmp")}
        sweep = subprocess.Popen(
            [*command_line("batch_size", *GRID, "--repeats", "20"), "--address", "local"],
            cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True,
            text=True,
        )  # fmt: skip
        time.sleep(moment)
        os.killpg(sweep.pid, signal.SIGINT)
        _, said = sweep.communicate(timeout=60)
        until = time.monotonic() + 5
        while (left := marked(mark)) and time.monotonic() < until:
            time.sleep(0.05)
        assert not left, (moment, left, said)
        assert sweep.returncode in (130, -signal.SIGINT), (moment, said)
        kept = [path.name for path in (folder / "tmp").glob("dmls_ray-*") if not (path / ".in_use").exists()]
        assert not kept, (moment, kept)
