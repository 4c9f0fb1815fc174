"""A process of one launched run: `python -m dmls_ray.launchers FOLDER`; `command` starts it.

The folder's job.pickle says what to run; the launcher decides what part of it this process is.
"""

from __future__ import annotations

import os
import pickle
import sys
import threading
import time
from pathlib import Path

import psutil

from dmls_ray.launchers.command import PARENT
from dmls_ray.launchers.job_folder import JobFolder
from dmls_ray.launchers.registry import launcher
from dmls_ray.util.importing import import_function


def main(path: Path) -> None:
    """Run the job; a failure of the run is a result, not an exit code."""
    began = time.perf_counter()
    threading.Thread(target=_end_with, args=(int(os.environ[PARENT]),), daemon=True).start()
    folder = JobFolder(path)
    config, function, artifacts, search_path = pickle.loads(folder.job_file.read_bytes())
    sys.path[:0] = [entry for entry in search_path if entry not in sys.path]
    train = import_function(function, flag="train")
    launcher(config.launcher).run(folder, config, train=train, artifacts=artifacts, began=began)


def _end_with(parent: int) -> None:
    """End this process when the process that wants its result has ended."""
    while psutil.pid_exists(parent):
        time.sleep(1)
    os._exit(1)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
