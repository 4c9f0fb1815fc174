"""A process of one launched run: `python -m dmls_ray.launchers FOLDER`; `command` starts it.

The folder's job.pickle says what to run; the launcher decides what part of it this process is.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from pathlib import Path

import psutil

from dmls_ray.launchers.base import JobFolder, launcher
from dmls_ray.launchers.command import OURS, PARENT, SAFE_PATH
from dmls_ray.util.importing import search_module_path


def main(path: Path) -> None:
    """Run the job; a failure of the run is a result, not an exit code."""
    if os.environ.get(SAFE_PATH) == OURS:
        del os.environ[SAFE_PATH]  # what the job starts is the user's
    # The second is the agent of the launcher, or the same process.
    ends_with = (int(os.environ[PARENT]), os.getppid())
    threading.Thread(target=_end_with, args=ends_with, daemon=True).start()
    folder = JobFolder(path)
    job = folder.read_job()
    search_module_path(job.module_path)
    launcher(job.config.launcher).run(folder, job)


def _end_with(*pids: int) -> None:
    """End this process as soon as one of these has ended: nothing wants its result, or its other ranks are lost."""
    try:
        ended = select.poll()
        for pid in pids:
            ended.register(os.pidfd_open(pid), select.POLLIN)
        ended.poll()
    except ProcessLookupError:
        pass  # it has ended already
    except (AttributeError, OSError):
        # Another system than Linux, or an old one.
        while all(psutil.pid_exists(pid) for pid in pids):
            time.sleep(0.2)
    os._exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
