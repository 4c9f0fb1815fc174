"""The program by which a cluster that was started here starts each of Ray's worker processes: as a copy of a template.

It takes the place of Ray's own, with the same arguments, and asks for the copy. Without a template, the process becomes
Ray's own program. It runs once a worker, and so loads little.

It has another name than Ray's program, which Ray leaves out where a worker needs no environment of its own.
"""

import os
import sys
from pathlib import Path


def start_worker() -> None:
    """Ask for a worker process, and end."""
    # This folder has modules that are none to others.
    sys.path[0] = str(Path(__file__).parents[2])
    from dmls_ray.util.template_request import TEMPLATES, WORKERS, request

    del sys.path[0]
    try:
        request(WORKERS, "dmls_ray.cluster.compat:be_worker", sys.argv[1:], folder=os.environ[TEMPLATES])
    except OSError:
        from dmls_ray.cluster.compat import setup_worker_program

        os.execv(sys.executable, [sys.executable, setup_worker_program(), *sys.argv[1:]])


if __name__ == "__main__":
    start_worker()
