"""A copy of a template is the process that has asked for it, with what the template has imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from dmls_ray.util.fork_server import ForkServer
from dmls_ray.util.template import Template
from dmls_ray.util.template_request import RUNS, WORKERS, know_templates, known_templates, request
from tests.util.test_fork_server import describe, wait_until_gone

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="templates are for Linux alone")


def load_decimal() -> None:
    import decimal  # noqa: F401


def load_colorsys() -> None:
    import colorsys  # noqa: F401


def fail() -> None:
    raise RuntimeError("nothing can be imported")


def describe_process(descriptor: int, *said: Any) -> None:
    """Write into a pipe what a copy finds."""
    found = {
        "said": said,
        "modules": [name for name in ("decimal", "colorsys") if name in sys.modules],
        "folder": os.getcwd(),
        "path": sys.path,
        "cores": sorted(os.sched_getaffinity(0)),
        "variables": dict(os.environ),
        "is_leader": os.getsid(0) == os.getpid(),
        "template": os.getppid(),
    }
    os.write(descriptor, json.dumps(found).encode())


def sleep_long(descriptor: int) -> None:
    os.write(descriptor, f"{os.getpid()} {os.getppid()}".encode())
    time.sleep(600)


def started(folder: Path, prepare: str) -> Template:
    prepares = {folder / RUNS: prepare, folder / WORKERS: f"{__name__}:load_colorsys"}
    return Template(prepares, {"ONLY_OF_THE_TEMPLATE": "1"})


@pytest.fixture(autouse=True)
def unknown_again() -> Iterator[None]:
    """Templates of a test are not known to the next."""
    yield
    know_templates("")


@pytest.fixture
def template(tmp_path: Path) -> Iterator[Template]:
    know_templates(str(tmp_path))
    template = started(tmp_path, f"{__name__}:load_decimal")
    yield template
    template.end()
    template.wait()


def asked(name: str, function: str, *arguments: Any, **options: Any) -> str:
    """What a copy writes into a pipe."""
    reader, writer = os.pipe()
    copy = request(name, f"{__name__}:{function}", arguments, folder=known_templates(), descriptors=[writer], **options)
    os.close(writer)
    written = os.read(reader, 2**16).decode()
    os.close(reader)
    if function == "describe_process":
        assert copy.recv(1) == b""  # it has ended
    copy.close()
    return written


def test_a_copy_stands_for_the_process_that_asks_and_has_the_modules_of_its_template(
    template: Template, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "place").mkdir()
    monkeypatch.chdir(tmp_path / "place")
    monkeypatch.syspath_prepend(str(tmp_path / "nets"))
    written = asked(RUNS, "describe_process", 1, "b", environment={"A": "1", "PATH": "/bin"})
    found = json.loads(written)
    del found["template"]
    assert found == {
        "said": [1, "b"],
        "modules": ["decimal"],
        "folder": str(tmp_path / "place"),
        "path": sys.path,
        "cores": sorted(os.sched_getaffinity(0)),
        "variables": {"A": "1", "PATH": "/bin"},
        "is_leader": True,
    }


def test_the_second_template_is_a_copy_of_the_first_that_has_imported_more(template: Template) -> None:
    first = asked(RUNS, "describe_process")
    second = asked(WORKERS, "describe_process")
    assert json.loads(second)["modules"] == ["decimal", "colorsys"]
    assert psutil.Process(json.loads(second)["template"]).ppid() == json.loads(first)["template"]


def test_copies_that_have_ended_leave_nothing(template: Template) -> None:
    for _ in range(3):
        written = asked(RUNS, "describe_process")
    time.sleep(0.1)
    others = psutil.Process(json.loads(written)["template"]).children()
    assert len(others) == 1  # the second template


def test_all_copies_end_with_the_template(tmp_path: Path) -> None:
    know_templates(str(tmp_path))
    template = started(tmp_path, f"{__name__}:load_decimal")
    pids = [int(pid) for name in (RUNS, WORKERS) for pid in asked(name, "sleep_long").split()]
    template.end()
    template.wait()
    wait_until_gone(pids)
    with pytest.raises((ConnectionRefusedError, FileNotFoundError)):
        request(RUNS, f"{__name__}:sleep_long", [], folder=str(tmp_path))


OWNER = """
import os, sys
from pathlib import Path
from tests.util.test_template import RUNS, WORKERS, asked, know_templates, started
know_templates(sys.argv[1])
template = started(Path(sys.argv[1]), "tests.util.test_template:load_decimal")
print(*(asked(name, "sleep_long") for name in (RUNS, WORKERS)), flush=True)
os.kill(os.getpid(), 9)
"""


def test_the_template_and_its_copies_end_with_a_process_that_is_killed(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", OWNER, tmp_path], capture_output=True, text=True, check=False)
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 4, done.stderr
    wait_until_gone(pids)


def test_a_fork_server_is_a_copy_of_a_template_of_which_its_children_know_nothing(template: Template) -> None:
    server = ForkServer("importlib:import_module", "colorsys")
    child = server.start(describe)
    assert child.connection.recv()[0]  # decimal, of the template
    child.wait()
    child = server.start(describe_variables)
    variables, parents = child.connection.recv()
    child.wait()
    assert not [name for name, value in variables.items() if value == known_templates()]
    template_pid = json.loads(asked(RUNS, "describe_process"))["template"]
    assert parents[1] == template_pid
    server.close()
    wait_until_gone(parents[:1])


def describe_variables(connection: Any) -> None:
    server = psutil.Process(os.getppid())
    connection.send((dict(os.environ), [server.pid, server.ppid()]))


def test_a_fork_server_starts_by_itself_where_its_template_has_failed(tmp_path: Path) -> None:
    know_templates(str(tmp_path))
    template = started(tmp_path, f"{__name__}:fail")
    template.wait()
    server = ForkServer("importlib:import_module", "decimal")
    child = server.start(describe)
    assert child.connection.recv()[0]
    child.wait()
    server.close()
    template.end()


def test_the_template_of_another_user_is_asked_for_nothing(
    template: Template, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4242)
    with pytest.raises(PermissionError):
        request(RUNS, f"{__name__}:sleep_long", [], folder=str(tmp_path))


def test_a_copy_knows_whether_its_output_is_a_terminal_and_draws_numbers_of_its_own(template: Template) -> None:
    drawn = {json.loads(asked(RUNS, "describe_streams"))["drawn"] for _ in range(2)}
    assert len(drawn) == 2
    assert json.loads(asked(RUNS, "describe_streams"))["is_whole"]


def describe_streams(descriptor: int) -> None:
    """Write what a copy finds of its streams, whose output is a pipe."""
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    is_whole = sys.stdout is sys.__stdout__ and not sys.stdout.line_buffering and sys.stderr.line_buffering
    os.write(descriptor, json.dumps({"is_whole": is_whole, "drawn": np.random.rand()}).encode())
