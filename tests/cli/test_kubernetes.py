"""`dmls-ray kubernetes`, as typed in a folder with a script."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.conftest import DmlsRay

SCRIPT = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=8)
parser.add_argument("--name", default="x")
parser.add_argument("--note", default="")
parser.add_argument("--queue", type=int, nargs="+", default=[1])
print(parser.parse_args())
"""
KEPT = ("--image", "registry/train:1", "--out", "s3://bucket/x")


@pytest.fixture
def kubernetes(run: DmlsRay, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DmlsRay:
    """Function that runs the command in a folder with train.py."""
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.chdir(tmp_path)
    return lambda *words: run("kubernetes", *words)


def test_the_entrypoint_is_the_command_of_the_sweep_without_the_flags_of_the_job(kubernetes: DmlsRay) -> None:
    words = (
        "--worker-gpu=4",
        "--worker-cpu",
        "16",
        "train.py",
        "--batch-size",
        "16",
        "32",
        *KEPT,
        "--secret",
        "aws",
        "--repeats",
        "3",
    )
    code, out, err = kubernetes(*words, "--worker-replicas", "2", "--", "--note", "x y")
    assert (code, err) == (0, "")
    job = yaml.safe_load(out)
    assert job["metadata"]["name"] == "train"
    assert shlex.split(job["spec"]["entrypoint"]) == [
        "dmls-ray", "sweep", "train.py", "--batch-size", "16", "32", "--out", "s3://bucket/x", "--repeats", "3",
        "--address", "auto", "--", "--note", "x y",
    ]  # fmt: skip
    (workers,) = job["spec"]["rayClusterSpec"]["workerGroupSpecs"]
    assert workers["replicas"] == 2
    assert workers["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "4"


@pytest.mark.parametrize("what", ["batch_size", "sweep.toml", "-m train", "train.py"])
def test_whatever_a_sweep_takes_is_taken(what: str, kubernetes: DmlsRay) -> None:
    Path("sweep.toml").write_text('script = "train.py"\n[axes]\nbatch_size = [16, 32]\nname = ["a", "b"]\n')
    code, out, err = kubernetes(*what.split(), *KEPT)
    assert (code, err) == (0, "")
    assert yaml.safe_load(out)["spec"]["entrypoint"] == f"dmls-ray sweep {what} --out s3://bucket/x --address auto"


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("", "names nothing to run"),
        ("train.py --out s3://b/x", "--image is missing"),
        ("train.py --image i", "--out is missing"),
        ("train.py --image i --out results/x", "--out results/x is lost with its pod"),
        ("train.py --image i --out /data/x --volume data:/other", "--out /data/x is lost with its pod"),
        ("train.py --image i --out s3://b/x --batch-sizes 16 32", "did you mean --batch-size?"),
        ("train.py --image i --out s3://b/x --batch-size a", "--batch-size a"),
        ("train.py --image i --out s3://b/x --repeats 0", "--repeats 0"),
        ("tran.py --image i --out s3://b/x", "no such file"),
        ("train.py --image i --out s3://b/x --world-size 4", "--worker-replicas 1, --worker-cpu 2, --worker-gpu 0"),
        ("train.py --image i --out /data/../tmp/x --volume data:/data", "--out /data/../tmp/x is lost with its pod"),
        ("train.py --image i --out s3://", "--out s3:// has no bucket"),
        ("train.py --image i --out s3://b/x --equivalent 2", "--equivalent 2"),
        ("train.py --image i --out s3://b/x --max-repeats 1", "--max-repeats 1"),
        ("train.py --image i --out s3://b/x --machines 1 2", "machines=2"),
        ("train.py --image i --out s3://b/x --machines 1 2", "raise --worker-replicas"),
        ("train.py --image i --out s3://b/x --world-size 4 --worker-gpu 2", "world_size=4"),
        ("train.py --image i --out s3://b/x --device cuda", "device=cuda needs a GPU"),
        ("train.py --image i --out s3://b/x --launcher torchrun", "launcher"),
        ("train.py --image i --out s3://b/x --address auto", "--address: the cluster is that which KubeRay makes"),
        ("train.py --image i --out s3://b/x --fresh", "--fresh would begin anew"),
        ("train.py --image i --out s3://b/x --dry-run", "--dry-run would run nothing"),
        ("train.py --image i --out s3://b/x --worker-cpu 500m", "--worker-cpu 500m"),
        ("train.py --image i --out s3://b/x --name mine", "--name is a flag of train.py, too"),
        ("train.py --image i --out s3://b/x --queue 1 2", "--queue is a flag of train.py, too"),
        ("--queue team train.py --image i --out s3://b/x --queue 1 2", "--queue is a flag of train.py, too"),
        ("train.py --image i --out s3://b/x --worker-gpu 1 2", "--worker-gpu 1 2"),
        ("train.py --image i --out s3://b/x --volume a:/a b:/b", "--volume a:/a b:/b"),
        ("train.py --out s3://b/x --image", "--image"),
        ("train.py --image i --out s3://b/x --worker-memory 900GB", "--worker-memory 900GB"),
        ("train.py --image i --out s3://b/x --backoff-limit -1", "--backoff-limit -1"),
        ("train.py --image i --out s3://b/x -- --nothing", "train.py"),
    ],
)
def test_bad_input_is_refused_with_one_line_and_nothing_is_written(
    words: str, reason: str, kubernetes: DmlsRay
) -> None:
    code, out, err = kubernetes(*words.split())
    assert (code, out) == (2, "")
    assert reason in err
    assert err.count("\n") == 1
    assert err.startswith("dmls-ray kubernetes")


def test_a_flag_that_the_script_has_too_is_given_before_it(kubernetes: DmlsRay) -> None:
    code, out, _ = kubernetes("--name", "mine", "train.py", *KEPT, "--", "--name", "its")
    assert code == 0
    job = yaml.safe_load(out)
    assert job["metadata"]["name"] == "mine"
    assert job["spec"]["entrypoint"].endswith("-- --name its")


def test_the_largest_value_is_found_on_the_cluster(kubernetes: DmlsRay) -> None:
    code, out, _ = kubernetes("train.py", *KEPT, "--batch-size", "max")
    assert code == 0
    assert "--batch-size max" in yaml.safe_load(out)["spec"]["entrypoint"]


def test_a_folder_of_a_volume_keeps_results(kubernetes: DmlsRay) -> None:
    code, _, _ = kubernetes("train.py", "--image", "i", "--out", "/data/x", "--volume", "data:/data")
    assert code == 0


def test_texts_that_kubectl_would_read_as_numbers_or_truth_values_are_quoted(kubernetes: DmlsRay) -> None:
    labels = "a=1e3,b=y,c=0o17,d=1.5e3,e=No,f=017,g=1_0,h=x"
    code, out, _ = kubernetes("train.py", *KEPT, "--worker-node-selectors", labels, "--secret", "12e03")
    assert code == 0
    for label in labels.split(",")[:-1]:
        key, value = label.split("=")
        assert re.search(f"""^ +'?{key}'?: ['"]{value}['"]$""", out, re.MULTILINE), label
    assert "name: '12e03'" in out


def test_help_has_the_flags_of_the_job(kubernetes: DmlsRay) -> None:
    code, out, _ = kubernetes("--help")
    assert code == 0
    assert {"--image", "--worker-gpu", "--queue", "--backoff-limit"} <= set(out.split())


def test_neither_pytorch_nor_ray_is_loaded_and_no_file_is_written(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    words = ["kubernetes", "train.py", "--batch-size", "16", "32", *KEPT]
    code = (
        "import sys\nfrom dmls_ray.cli.main import main\n"
        f"try: main({words!r})\nexcept SystemExit as end: assert not end.code\n"
        "print('# loaded', *[name for name in ('torch', 'ray', 'pandas') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "# loaded"
    assert sorted(path.name for path in tmp_path.iterdir() if path.name != "__pycache__") == ["train.py"]
