"""The program by which each of Ray's worker processes starts as a copy of a template.

On a cluster that was started here, it takes the place of Ray's own, with the same arguments, and asks for the copy.
Without a template, the process becomes Ray's own program. It runs once a worker, and so loads little.

It has another name than Ray's program, which Ray leaves out where a worker needs no environment of its own.

On a cluster that was joined, the program that `compat.py` makes asks (`has_asked_there`).
"""

import os
import sys
from pathlib import Path


def has_asked() -> bool:
    """Ask for a worker process with the module search path of this one; returns whether there is one."""
    from dmls_ray.util.template_request import TEMPLATES, WORKERS, request

    try:
        request(WORKERS, "dmls_ray.cluster.compat:be_worker", sys.argv[1:], folder=os.environ[TEMPLATES])
    except OSError:
        return False
    return True


def has_asked_there() -> bool:
    """Ask as Ray's own program, the first argument, with the module search path that Ray gives that."""
    workers = os.path.dirname(sys.argv[1])
    sys.path[:0] = [os.path.join(workers.removesuffix("/_private/workers"), "thirdparty_files"), workers]
    return has_asked()


def start_worker() -> None:
    """Ask for a worker process, and end."""
    # This folder has modules that are none to others.
    sys.path[0] = str(Path(__file__).parents[2])
    import dmls_ray.util.template_request  # noqa: F401

    del sys.path[0]
    if not has_asked():
        from dmls_ray.cluster.compat import setup_worker_program

        os.execv(sys.executable, [sys.executable, setup_worker_program(), *sys.argv[1:]])


if __name__ == "__main__":
    start_worker()
