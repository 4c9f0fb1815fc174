"""Machines that share no disk run the code and the data that the driver has recorded, or say that they do not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import PROJECT, command_line
from tests.multihost.hosts import Network

pytestmark = [pytest.mark.multihost, pytest.mark.slow, pytest.mark.timeout(600)]

WRITE_IMAGES = """
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
WRITE_CODE = """
import sys
from pathlib import Path
folder = Path("/tmp/files")
folder.mkdir(exist_ok=True)
text = "import user_value\\ndef train(config, rank, emit):\\n    return {'value': user_value.VALUE}\\n"
(folder / "user_t.py").write_text(text)
(folder / "user_value.py").write_text(f"VALUE = {sys.argv[1]}\\n")
"""


def records_with_differing_and_equal_files(
    network: Network, out: Path, write: str, *flags: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The records of a run of two ranks on two machines, before and after their files are equal.

    Args:
        network: the hosts are added to it.
        out: results folder.
        write: a program that writes the files, which depend on its argument.
        flags: of the sweep.
    """
    hosts = network.add(2)
    path = {"PYTHONPATH": f"{PROJECT}:/tmp/files"}
    network.cluster(1, 1, env=path)
    words = command_line(
        "grid", *flags, "--world-size", "2", "--address", "auto", "--device", "cpu", "--repeats", "1",
        "--tensorboard", "off", "--out", str(out),
    )  # fmt: skip

    def run(*versions: str) -> dict[str, Any]:
        for host, version in zip(hosts, versions, strict=True):
            host.run([sys.executable, "-c", write, version], check=True)
        done = hosts[0].run(words, cwd=out.parent, env=path, timeout=200)
        lines = (out / "runs.jsonl").read_text().splitlines()
        assert lines, done.stdout + done.stderr
        last: dict[str, Any] = json.loads(lines[-1])
        return last

    return run("1", "2"), run("1", "1")


def test_a_machine_with_other_data_ends_the_run_in_an_error_that_names_it(network: Network, tmp_path: Path) -> None:
    flags = (
        "--dataset", "image_folder", "--data-dir", "/tmp/images", "--batch-per-rank", "4", "--epochs", "1",
    )  # fmt: skip
    refused, record = records_with_differing_and_equal_files(network, tmp_path / "out", WRITE_IMAGES, *flags)
    assert refused["outcome"] == "error"
    assert refused["reason"].startswith(
        "DataError: image_folder in /tmp/images on machine host-2 is not what this sweep"
    )
    assert record["outcome"] == "ok"
    assert "independent_ranks" not in record
    assert record["data"].keys() == {"image_folder in /tmp/images"}
    assert {rank["machine"] for rank in record["ranks"]} == {"host-1", "host-2"}


def test_a_machine_with_another_version_of_the_users_files_ends_the_run_in_an_error_that_names_it(
    network: Network, tmp_path: Path
) -> None:
    flags = ("--train", "user_t:train", "--set", "x", "1")
    refused, record = records_with_differing_and_equal_files(network, tmp_path / "out", WRITE_CODE, *flags)
    assert refused["outcome"] == "error"
    assert refused["reason"].startswith("CodeDiffersError: the files on machine host-2 are not those")
    assert "(user_value.py)" in refused["reason"]
    assert (record["outcome"], record["metrics"]["value"]) == ("ok", 1)
    assert set(record["code"]) == {"user_t.py", "user_t.py and its imports", "user_value.py"}
