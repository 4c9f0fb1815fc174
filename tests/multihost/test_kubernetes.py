"""The entrypoint of a RayJob on hosts that start Ray as KubeRay does: a head without CPUs, and a worker."""

from __future__ import annotations

import re
import sys
import time
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from dmls_ray import load
from tests.conftest import PROJECT, DmlsRay
from tests.multihost.hosts import Host, Network

pytestmark = [pytest.mark.multihost, pytest.mark.slow, pytest.mark.timeout(900)]

SCRIPT = """
import argparse, time, torch
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--note", default="")
options = parser.parse_args()
assert options.note == 'it is "$HOME", (two) words', options.note
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(250):
    model(torch.randn(options.batch_size, 8)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    time.sleep(0.02)
"""
NOTE = 'it is "$HOME", (two) words'
S3_PORT = 5000

REQUEST = """
import sys, urllib.request
request = urllib.request.Request(f"http://127.0.0.1:{sys.argv[1]}/{sys.argv[2]}", method=sys.argv[3])
print(urllib.request.urlopen(request, timeout=20).read().decode())
"""


def request(store: Host, path: str, method: str = "GET") -> str:
    """Ask the S3 server on a host, without credentials."""
    done = store.python(REQUEST, str(S3_PORT), path, method)
    return done.stdout if done.returncode == 0 else ""


def keys(store: Host, kind: str) -> list[str]:
    """The names of the objects of a kind in the results."""
    found = re.findall("<Key>([^<]+)</Key>", request(store, "bucket?list-type=2"))
    return [key for key in map(urllib.parse.unquote, found) if key.startswith(f"sweep/{kind}/")]


def wait_for(what: Callable[[], object], within_s: float) -> None:
    until = time.monotonic() + within_s
    while not what():
        assert time.monotonic() < until, "it did not come"
        time.sleep(0.5)


def make_cluster(job: dict[str, Any], head: Host, worker: Host, folder: Path, env: dict[str, str]) -> None:
    """Start Ray with the parameters of a RayJob, in the folder that WORKDIR of the image names."""
    cluster = job["spec"]["rayClusterSpec"]
    common = ["--disable-usage-stats", "--object-store-memory=100000000"]
    flags = [f"--{name}={value}" for name, value in cluster["headGroupSpec"]["rayStartParams"].items()]
    address = f"--node-ip-address={head.address}"
    words = ["ray", "start", "--head", "--port=6379", "--dashboard-host=0.0.0.0", address, *flags, *common]
    head.run(words, cwd=folder, env=env, check=True)
    (group,) = cluster["workerGroupSpecs"]
    cpus = group["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"]
    address = f"--node-ip-address={worker.address}"
    words = ["ray", "start", f"--address={head.address}:6379", f"--num-cpus={cpus}", address, *common]
    worker.run(words, cwd=folder, env=env, check=True)


def submit(job: dict[str, Any], head: Host, env: dict[str, str], name: str) -> list[str]:
    """The command that KubeRay's submitter runs in a shell."""
    # Kubernetes makes $ of $$ in arguments of a container.
    entrypoint = job["spec"]["entrypoint"].replace("$$", "$")
    return [
        "bash",
        "-ce",
        f"ray job submit --address http://{head.address}:8265 --submission-id {name} -- {entrypoint} ;",
    ]


def test_a_cluster_that_dies_and_is_made_anew_continues_from_the_bucket(
    network: Network, run: DmlsRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, worker, store = network.add(3)
    store.start([sys.executable, "-m", "moto.server", "-H", "0.0.0.0", "-p", str(S3_PORT)])
    wait_for(lambda: request(store, "moto-api/data.json"), 60)
    request(store, "bucket", "PUT")
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    # What the pods get of a Secret, and of KubeRay where authOptions says token.
    env = {
        "PYTHONPATH": str(PROJECT),
        "AWS_ENDPOINT_URL": f"http://{store.address}:{S3_PORT}",
        "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
        "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "AWS_EC2_METADATA_DISABLED": "true",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "0123456789abcdef" * 4,
    }
    flags = ("--image", "i", "--out", "s3://bucket/sweep", "--batch-size", "16", "32", "--repeats", "4")
    code, out, err = run("kubernetes", "train.py", *flags, "--", "--note", NOTE)
    assert code == 0, err
    job = yaml.safe_load(out)

    make_cluster(job, head, worker, tmp_path, env)
    first = head.start(submit(job, head, env, "first"), env=env)
    wait_for(lambda: len(keys(store, "runs")) >= 2 or first.poll() is not None, 240)
    assert first.poll() is None, first.printed()
    for host in (head, worker):
        host.kill()
    first.wait(60)
    kept = keys(store, "runs")
    assert 2 <= len(kept) < 8

    for host in (head, worker):
        host.revive()
    make_cluster(job, head, worker, tmp_path, env)
    done = head.run(submit(job, head, env, "second"), env=env, timeout=400)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(re.findall(r"^\[ *\d+/\d+\]", done.stdout, re.MULTILINE)) == 8 - len(kept), done.stdout
    assert {*kept} < {*keys(store, "runs")}
    assert len(keys(store, "sessions")) == 2

    head.run(["dmls-ray", "copy", "s3://bucket/sweep", str(tmp_path / "copy")], env=env, check=True)
    records = load(tmp_path / "copy").records
    assert [record.outcome for record in records] == ["ok"] * 8
    assert len({record.run_id for record in records}) == 8
    assert {rank.machine for record in records for rank in record.ranks} == {worker.name}, "no rank is on the head"
