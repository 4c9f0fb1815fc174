"""Machines that share no disk train on the data that the driver has recorded, or say that they do not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PROJECT, command_line
from tests.multihost.hosts import Host, Network

pytestmark = [pytest.mark.multihost, pytest.mark.slow]

PATH = {"PYTHONPATH": str(PROJECT)}
WRITE = """
import shutil, sys
from pathlib import Path
from PIL import Image
shutil.rmtree("/tmp/images", ignore_errors=True)
names = [f"{split}/{label}/{item}.png" for split in ("train", "test") for label in "ab" for item in range(8)]
for number, name in enumerate(names):
    path = Path("/tmp/images", name)
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("L", (8, 8), number * int(sys.argv[1])).save(path)
"""


def test_a_machine_with_other_data_ends_the_run_in_an_error_that_names_it(network: Network, tmp_path: Path) -> None:
    hosts = network.add(2)
    network.cluster(1, 1, env=PATH)
    words = command_line(
        "grid", "--dataset", "image_folder", "--data-dir", "/tmp/images", "--batch-per-rank", "4", "--epochs", "1",
        "--world-size", "2", "--address", "auto", "--device", "cpu", "--repeats", "1", "--tensorboard", "off",
        "--out", str(tmp_path / "out"),
    )  # fmt: skip

    def write(host: Host, brightness: int) -> None:
        host.run([sys.executable, "-c", WRITE, str(brightness)], check=True)

    def run() -> dict[str, Any]:
        done = hosts[0].run(words, cwd=tmp_path, env=PATH, timeout=200)
        lines = (tmp_path / "out" / "runs.jsonl").read_text().splitlines()
        assert lines, done.stdout + done.stderr
        last: dict[str, Any] = json.loads(lines[-1])
        return last

    for host, brightness in zip(hosts, (1, 2), strict=True):
        write(host, brightness)
    record = run()
    assert record["outcome"] == "error"
    assert record["reason"].startswith(
        "DataError: image_folder in /tmp/images on machine host-2 is not what this sweep"
    )

    write(hosts[1], 1)
    record = run()
    assert (record["outcome"], record["independent_ranks"]) == ("ok", "")
    assert record["data"].keys() == {"image_folder in /tmp/images"}
    assert {rank["machine"] for rank in record["ranks"]} == {"host-1", "host-2"}
