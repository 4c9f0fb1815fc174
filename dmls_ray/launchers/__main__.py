"""A process of one launched run: `python -m dmls_ray.launchers FOLDER`; `command` starts it.

The folder's job.pickle says what to run; the launcher decides what part of it this process is.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import psutil

from dmls_ray.launchers.base import launcher
from dmls_ray.launchers.command import PARENT
from dmls_ray.launchers.job_folder import JobFolder
from dmls_ray.util.importing import import_function


def main(path: Path) -> None:
    """Run the job; a failure of the run is a result, not an exit code."""
    threading.Thread(target=_end_with, args=(int(os.environ[PARENT]),), daemon=True).start()
    folder = JobFolder(path)
    job = folder.read_job()
    sys.path[:0] = [entry for entry in job.module_path if entry not in sys.path]
    train = import_function(job.train, flag="train")
    launcher(job.config.launcher).run(folder, job, train=train)


def _end_with(parent: int) -> None:
    """End this process when the process that wants its result has ended."""
    while psutil.pid_exists(parent):
        time.sleep(1)
    os._exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
