"""Real sweeps whose results go to an object store, run from the command line as a user runs them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dmls_ray import load
from dmls_ray.cli.main import main
from dmls_ray.storage.object_store import ObjectStore
from tests.conftest import S3, SMALL, Command, command_line, start_s3
from tests.test_sweeps import Family, start

GRID = (
    "--dataset", SMALL, "--world-size", "1", "--batch-per-rank", "8", "16", "--epochs", "2", "--device", "cpu",
    "--repeats", "3",
)  # fmt: skip


def run_objects(uri: str) -> list[str]:
    """Return the names of the objects with runs."""
    return [name for name in ObjectStore(uri).list("runs") if name.endswith(".jsonl")]


def rows(out: str) -> int:
    """Return how many runs have a line in the output of a sweep."""
    return len(re.findall(r"^\[ *\d+/\d+\]", out, re.MULTILINE))


def killed_after(runs: int, uri: str, folder: Path, number: signal.Signals, *flags: str) -> subprocess.Popen[str]:
    """Start a sweep, send it a signal when so many runs are in the object store, and wait for its end."""
    process = start(*command_line("batch_size", *GRID, "--out", uri, *flags), cwd=folder)
    objects, deadline = ObjectStore(uri), time.monotonic() + 200
    while len(objects.list("runs")) < runs and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.1)
    family = Family(process)
    family.look()
    process.send_signal(number)
    process.wait(90)
    assert not family.left(within_s=60)
    return process


@pytest.mark.slow
def test_a_bucket_gets_every_file_of_a_results_folder_and_all_commands_read_it(
    bucket: str, sweep_command: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    uri = f"{bucket}/team/sweep"
    done = sweep_command("batch_size", *GRID, "--repeats", "1", "--out", uri)
    assert (done.returncode, done.stderr) == (0, "")
    assert rows(done.stdout) == 2
    assert f"Report: {uri}/report.html; next to it table.md" in done.stdout
    assert not list(tmp_path.rglob("runs.jsonl")), "no results remain on this machine"
    names = set(ObjectStore(uri).list(deep=True))
    assert {"report.html", "table.csv", "runs.parquet"} <= names
    assert sum(name.startswith("tensorboard/") for name in names) > 2
    assert len(run_objects(uri)) == 2
    (session,) = ObjectStore(uri).list("sessions")
    described = ObjectStore(uri).get(session) or b""
    assert json.loads(described)["sessions"][0]["command"][-2:] == ["--out", uri]
    assert os.environ["AWS_SECRET_ACCESS_KEY"].encode() not in described
    results = load(uri)
    assert results.runs["outcome"].tolist() == ["ok", "ok"]
    run_id = results.records[0].run_id

    def output(*words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        out, err = capsys.readouterr()
        assert ended.value.code == 0, err
        return out

    assert "batch_per_rank" in output("table", uri)
    assert output("ls", bucket).count(uri) == 1
    assert output("show", run_id, bucket).startswith(f"{run_id} in {uri}: ok")
    assert output("report", uri).strip() == f"{uri}/report.html"
    assert f"{uri}/figures/" in output("figures", uri)
    assert ObjectStore(uri).list("figures")
    assert f"{uri}/ranks.csv: 2 rows" in output("export", uri)
    assert "runs.csv: 2 rows" in output("export", uri, "--out", str(tmp_path / "here"))
    assert output("tensorboard", uri).strip() == f"tensorboard --logdir {uri}/tensorboard"
    assert "batch_per_rank" in output("advise", uri)
    assert "2 of 2 runs added" in output("copy", uri, str(tmp_path / "copy"))
    assert load(tmp_path / "copy").records == results.records
    for words in (("figures", uri, "--out", "s3://other/x"), ("compare", uri, str(tmp_path / "copy"))):
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        assert ended.value.code == 2, "figures need a local folder; a sweep is not compared with itself"
        assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.slow
def test_a_sweep_killed_before_its_end_runs_only_what_is_missing(
    bucket: str, sweep_command: Command, tmp_path: Path
) -> None:
    uri = f"{bucket}/sweep"
    flags = ("--epochs", "100")
    killed_after(2, uri, tmp_path, signal.SIGKILL, *flags)
    kept = run_objects(uri)
    assert 2 <= len(kept) < 6
    assert len(load(uri).records) == len(kept)
    done = sweep_command("batch_size", *GRID, "--out", uri, *flags)
    assert (done.returncode, done.stderr) == (0, "")
    assert rows(done.stdout) == 6 - len(kept)
    assert len(run_objects(uri)) == len(load(uri).records) == 6
    assert len(ObjectStore(uri).list("sessions")) == 2


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_sweep_keeps_its_runs_and_writes_the_report(
    number: signal.Signals, bucket: str, tmp_path: Path
) -> None:
    uri = f"{bucket}/sweep"
    process = killed_after(1, uri, tmp_path, number, "--epochs", "300")
    assert process.returncode == 130
    assert len(run_objects(uri)) == len(load(uri).records) >= 1
    assert ObjectStore(uri).get("report.html") is not None


@pytest.mark.slow
def test_a_bucket_that_disappears_loses_no_run(use_s3: Callable[[S3], str], tmp_path: Path) -> None:
    server = start_s3()
    try:
        uri = f"{use_s3(server)}/sweep"
        process = start(
            *command_line("batch_size", *GRID, "--out", uri), cwd=tmp_path, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )  # fmt: skip
        while not run_objects(uri) and process.poll() is None:
            time.sleep(0.05)
    finally:
        server.end()
    out, err = process.communicate(timeout=120)
    assert process.returncode == 1, err
    assert rows(out) == 6
    assert "the sweep goes on" in out
    (folder,) = set(re.findall(r"dmls-ray copy (\S+) s3://", out.replace("\n", " ")))
    assert len(load(folder).records) == 6
    assert f"Report: {folder}/report.html" in out
    shutil.rmtree(folder)


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("s3://KEY:HIDDEN@b/x", "--out s3://b/x was given with credentials in it"),
        ("s3://b/x?endpoint_override=http://127.0.0.1:1", "the network, the endpoint (AWS_ENDPOINT_URL)"),
    ],
)
def test_a_location_that_cannot_be_used_is_an_error_of_one_line_and_nothing_starts(
    out: str, message: str, bucket: str, sweep_in_process: Command, tmp_path: Path
) -> None:
    done = sweep_in_process("batch_size", *GRID, "--out", out)
    assert done.returncode == 2
    assert message in done.stderr
    assert "HIDDEN" not in done.stderr + done.stdout
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []
