"""Fixtures and helpers of all tests: a private cache, sweep commands in a shell, an S3 server in memory."""

from __future__ import annotations

import base64
import gc
import io
import os
import runpy
import shlex
import socket
import subprocess
import sys
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import settings
from PIL import Image

# Tests measure no speed, and an example may take long on a loaded machine.
settings.register_profile("no deadline", deadline=None)
settings.load_profile("no deadline")

PROJECT = Path(__file__).parents[1]
SMALL = "synthetic:shape=1x8x8,classes=4,train=96,test=40"
"""Data set on which an epoch takes milliseconds."""

GRID = ("--dataset", SMALL, "--batch-per-rank", "8", "16", "--epochs", "2", "--device", "cpu", "--oversubscribe",
        "--repeats", "3")  # fmt: skip
"""Flags of a sweep that takes seconds."""


def pytest_collection_finish() -> None:
    """Take the loaded libraries out of garbage collection: each run in this process starts with one, of 0.4 s each."""
    gc.collect()
    gc.freeze()


def shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Temporary folder of this session; all processes of pytest-xdist have the same one."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of decoded images and compiled kernels, so that tests do not touch the cache of the user."""
    folder = shared_folder(tmp_path_factory) / "cache"
    folder.mkdir(exist_ok=True)
    os.environ["DMLS_RAY_CACHE"] = str(folder)
    # Tests must not use a cluster that runs on this machine.
    os.environ.pop("RAY_ADDRESS", None)
    return folder


@pytest.fixture(scope="session", autouse=True)
def main_job_folder(cache: Path, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Path:
    """Working folder of a sweep that begins with the first test, and whose files the fixture `main_job` waits for.

    It is no child of this process: some tests look at the children. Of several processes of pytest-xdist the first
    begins it.
    """
    folder = shared_folder(tmp_path_factory) / "main job"
    try:
        folder.mkdir()
    except FileExistsError:
        return folder
    functions = (item for item in request.session.items if isinstance(item, pytest.Function))
    if any("main_job" in function.fixturenames for function in functions):
        sweep = shlex.join(command_line("batch_size", *GRID))
        script = f"({sweep} >stdout.txt 2>stderr.txt; echo $? >code; mv code exit_code.txt) &"
        subprocess.run(["sh", "-c", script], cwd=folder, stdin=subprocess.DEVNULL, check=True)
    return folder


@pytest.fixture(autouse=True)
def kept_ranks_end_with_a_test() -> Iterator[None]:
    """A test that calls `sweep` leaves no ranks to the next one."""
    yield
    if module := sys.modules.get("dmls_ray.cluster.held_group"):
        module.close()


Command = Callable[..., "subprocess.CompletedProcess[str]"]


def call(
    words: Sequence[str | Path], cwd: Path | None = None, *, env: Mapping[str, str] | None = None, timeout: float = 270
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end; what it prints is text."""
    return subprocess.run(words, cwd=cwd, env=env, capture_output=True, text=True, timeout=timeout, check=False)


def without_ray(**changes: str) -> dict[str, str]:
    """The environment of this process without the variables of Ray, and with others."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | changes


@pytest.fixture
def sweep_command(tmp_path: Path) -> Command:
    """Function that runs a sweep script in an empty folder, as from a shell, and waits for its end."""

    def run(script: str, *flags: str, timeout: float = 600) -> subprocess.CompletedProcess[str]:
        return call(command_line(script, *flags), tmp_path, timeout=timeout)

    return run


@pytest.fixture(autouse=True)
def unsupervised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts that a test runs in this process are not started again in another one."""
    monkeypatch.setattr("dmls_ray.cli.call.is_to_be_supervised", lambda arguments: False)


@pytest.fixture
def sweep_in_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    """Function that does what `sweep_command` does, in this process, which has loaded the libraries."""

    def run(script: str, *flags: str) -> subprocess.CompletedProcess[str]:
        words = command_line(script, *flags)[1:]
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(words[0], run_name="__main__")
        assert isinstance(ended.value.code, int)
        return subprocess.CompletedProcess(words, ended.value.code, *capsys.readouterr())

    return run


DmlsRay = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> DmlsRay:
    """Function that runs a command of dmls-ray in this process; returns its exit code, output and complaints."""
    from dmls_ray.cli.main import main

    def run(*words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        assert isinstance(ended.value.code, int)
        return ended.value.code, *capsys.readouterr()

    return run


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """Function that does in this process what a command of dmls-ray does that is typed in the working folder."""
    from dmls_ray.cli.main import main

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["dmls-ray", *words])
        with pytest.raises(SystemExit) as ended:
            main()
        return subprocess.CompletedProcess(words, int(ended.value.code or 0), *capfd.readouterr())

    return run


def command_line(script: str, *flags: str) -> list[str]:
    """Return the command line of a sweep script."""
    return [sys.executable, str(PROJECT / "sweeps" / f"{script}.py"), *flags]


def char_lm_example() -> str:
    """The program of examples/char_lm.py, to be saved where a sweep is called from."""
    return (PROJECT / "examples" / "char_lm.py").read_text()


def jpeg(width: int = 24, height: int = 16, image_format: str = "JPEG") -> str:
    """Return a small picture in base64."""
    content = io.BytesIO()
    Image.new("RGB", (width, height), "#0072b2").save(content, image_format)
    return base64.b64encode(content.getvalue()).decode()


@dataclass
class S3:
    """S3 server in memory, on the loopback interface."""

    process: subprocess.Popen[bytes]
    endpoint: str

    def request(self, path: str, method: str = "PUT", content: bytes = b"") -> None:
        """Send a plain HTTP request, without pyarrow and without credentials."""
        request = urllib.request.Request(f"{self.endpoint}/{path}", data=content, method=method)
        with urllib.request.urlopen(request, timeout=20):
            pass

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface on which no process listens."""
    taken = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in taken]
    for one in taken:
        one.close()
    return ports


def start_s3(**environment: str) -> S3:
    """Start a server and wait until it answers."""
    (port,) = free_ports(1)
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ, **environment},
    )  # fmt: skip
    server = S3(process, f"http://127.0.0.1:{port}")
    deadline = time.monotonic() + 60
    while True:
        try:
            server.request("moto-api/data.json", "GET")
        except OSError:
            assert time.monotonic() < deadline, "moto's server does not answer"
            assert process.poll() is None, "moto's server has ended; pip install -e '.[dev]' brings it"
            time.sleep(0.1)
        else:
            return server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3]:
    server = start_s3()
    yield server
    server.end()


@pytest.fixture
def use_s3(monkeypatch: pytest.MonkeyPatch) -> Callable[[S3], str]:
    """Function that makes this process and its children use a server; returns the URI of a new bucket."""

    def use(server: S3) -> str:
        bucket = f"b{uuid.uuid4().hex}"
        server.request(bucket)
        for name, value in (
            ("AWS_ENDPOINT_URL", server.endpoint),
            ("AWS_ACCESS_KEY_ID", "AKIAIOSFODNN7EXAMPLE"),
            ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"),
            ("AWS_EC2_METADATA_DISABLED", "true"),
        ):
            monkeypatch.setenv(name, value)
        return f"s3://{bucket}"

    return use


@pytest.fixture
def bucket(s3_server: S3, use_s3: Callable[[S3], str]) -> str:
    """URI of an empty bucket on an S3 server."""
    return use_s3(s3_server)


@pytest.fixture(params=["file", "s3"])
def uri(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URI of a results folder that does not exist yet."""
    if request.param == "file":
        return f"{tmp_path.as_uri()}/a folder/sweep"
    return f"{request.getfixturevalue('bucket')}/a folder/sweep"
