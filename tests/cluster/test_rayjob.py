"""The RayJob of a sweep: its fields against KubeRay's, and what its shells make of the entrypoint."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dmls_ray.cluster.rayjob import RayJobOptions, rayjob, resource_name
from dmls_ray.util.errors import ConfigError

TEXT, WHOLE, FLAG, MAP, AMOUNT = "string", "int32", "boolean", "map of strings", "quantity"

KUBERAY = {
    "apiVersion": TEXT,
    "kind": TEXT,
    "metadata.name": TEXT,
    "metadata.labels": MAP,
    "spec.entrypoint": TEXT,
    "spec.submissionMode": TEXT,
    "spec.backoffLimit": WHOLE,
    "spec.activeDeadlineSeconds": WHOLE,
    "spec.shutdownAfterJobFinishes": FLAG,
    "spec.runtimeEnvYAML": TEXT,
    "spec.rayClusterSpec.rayVersion": TEXT,
    "spec.rayClusterSpec.authOptions.mode": TEXT,
    "spec.rayClusterSpec.headGroupSpec.rayStartParams": MAP,
    "spec.rayClusterSpec.headGroupSpec.template": "pod",
    "spec.rayClusterSpec.workerGroupSpecs[].groupName": TEXT,
    "spec.rayClusterSpec.workerGroupSpecs[].replicas": WHOLE,
    "spec.rayClusterSpec.workerGroupSpecs[].minReplicas": WHOLE,
    "spec.rayClusterSpec.workerGroupSpecs[].maxReplicas": WHOLE,
    "spec.rayClusterSpec.workerGroupSpecs[].rayStartParams": MAP,
    "spec.rayClusterSpec.workerGroupSpecs[].template": "pod",
}
"""Field of a RayJob -> its type, in the custom resource definition of KubeRay v1.7.0 (2026-08-19): rayjobs.ray.io,
version v1. v1.5.1 and v1.6.2 have the same."""

POD = {
    "spec.containers[].name": TEXT,
    "spec.containers[].image": TEXT,
    "spec.containers[].resources.requests": "map of quantities",
    "spec.containers[].resources.limits": "map of quantities",
    "spec.containers[].env[].name": TEXT,
    "spec.containers[].env[].value": TEXT,
    "spec.containers[].envFrom[].secretRef.name": TEXT,
    "spec.containers[].volumeMounts[].name": TEXT,
    "spec.containers[].volumeMounts[].mountPath": TEXT,
    "spec.volumes[].name": TEXT,
    "spec.volumes[].emptyDir.medium": TEXT,
    "spec.volumes[].emptyDir.sizeLimit": AMOUNT,
    "spec.volumes[].persistentVolumeClaim.claimName": TEXT,
    "spec.tolerations[].key": TEXT,
    "spec.tolerations[].operator": TEXT,
    "spec.tolerations[].effect": TEXT,
    "spec.nodeSelector": MAP,
    "spec.serviceAccountName": TEXT,
}
"""The same of a pod template."""

REQUIRED = {
    "spec.rayClusterSpec.headGroupSpec.template",
    "spec.rayClusterSpec.workerGroupSpecs[].groupName",
    "spec.rayClusterSpec.workerGroupSpecs[].minReplicas",
    "spec.rayClusterSpec.workerGroupSpecs[].maxReplicas",
    "spec.rayClusterSpec.workerGroupSpecs[].template",
}

QUANTITY = re.compile(r"\d+(\.\d+)?([KMGTPE]i|[numkMGTPE])?")

CHECKS: dict[str, Callable[[Any], bool]] = {
    TEXT: lambda value: isinstance(value, str),
    WHOLE: lambda value: type(value) is int and abs(value) < 2**31,
    FLAG: lambda value: isinstance(value, bool),
    MAP: lambda value: all(isinstance(text, str) for text in [*value, *value.values()]),
    AMOUNT: lambda value: isinstance(value, str) and bool(QUANTITY.fullmatch(value)),
    "map of quantities": lambda value: all(QUANTITY.fullmatch(amount) for amount in value.values()),
}

EVERYTHING = RayJobOptions(
    image="registry/train:1", name="a-sweep", worker_replicas=2, worker_cpu=96, worker_memory="900Gi", worker_gpu=8,
    worker_node_selectors=("gpu=h100", "zone=a"), head_cpu=4, head_memory="8Gi", ray_version="2.60.0",
    working_dir="s3://bucket/code.zip", volume=("data:/data", "more:/more", "data:/again"), secret="aws",
    service_account="trainer", queue="team-a", priority_class="dev", backoff_limit=2, active_deadline_seconds=7200,
)  # fmt: skip
WORDS = ["dmls-ray", "sweep", "train.py", "--batch-size", "16", "32", "--out", "s3://bucket/x"]


def leaves(value: Any, path: str, ends: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """The values of an object by their paths, as deep as the paths of a table."""
    if path in ends or not isinstance(value, dict | list):
        yield path, value
    elif isinstance(value, list):
        for part in value:
            yield from leaves(part, f"{path}[]", ends)
    else:
        for name, part in value.items():
            yield from leaves(part, f"{path}.{name}".lstrip("."), ends)


def check(value: dict[str, Any], table: dict[str, str]) -> set[str]:
    """Check the types of all fields; returns those that there are."""
    found = set()
    for path, leaf in leaves(value, "", list(table)):
        assert path in table, f"{path} is no field"
        found.add(path)
        if table[path] == "pod":
            check(leaf, POD)
        else:
            assert CHECKS[table[path]](leaf), (path, leaf)
    return found


@pytest.mark.parametrize("options", [EVERYTHING, RayJobOptions(image="i")])
def test_every_field_is_one_of_kuberay_and_has_its_type(options: RayJobOptions) -> None:
    found = check(rayjob(options, "train", WORDS), KUBERAY)
    assert found >= REQUIRED
    if options is EVERYTHING:
        assert found == KUBERAY.keys(), "each field of the table is written"


def pods_of(job: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """What the pods of the head and of the workers are made of."""
    cluster = job["spec"]["rayClusterSpec"]
    (workers,) = cluster["workerGroupSpecs"]
    return cluster["headGroupSpec"]["template"]["spec"], workers["template"]["spec"]


def test_no_rank_runs_on_the_head_and_workers_have_what_was_asked_for() -> None:
    job = rayjob(EVERYTHING, "train", WORDS)
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["headGroupSpec"]["rayStartParams"] == {"num-cpus": "0"}
    assert cluster["authOptions"] == {"mode": "token"}
    (workers,) = cluster["workerGroupSpecs"]
    assert (workers["replicas"], workers["minReplicas"], workers["maxReplicas"]) == (2, 2, 2)
    head, worker = pods_of(job)
    assert worker["nodeSelector"] == {"gpu": "h100", "zone": "a"}
    asked = {"cpu": "96", "memory": "900Gi", "nvidia.com/gpu": "8"}
    # Equal, so that the static CPU manager gives whole cores.
    assert worker["containers"][0]["resources"] == {"requests": asked, "limits": asked}
    assert "nvidia.com/gpu" not in head["containers"][0]["resources"]["limits"]
    for pod, size in ((head, "8Gi"), (worker, "900Gi")):
        assert pod["volumes"][0] == {"name": "shared-mem", "emptyDir": {"medium": "Memory", "sizeLimit": size}}
        mounts = {mount["mountPath"]: mount["name"] for mount in pod["containers"][0]["volumeMounts"]}
        claims = {item["name"]: item["persistentVolumeClaim"]["claimName"] for item in pod["volumes"][1:]}
        assert mounts.pop("/dev/shm") == "shared-mem"
        assert {path: claims[name] for path, name in mounts.items()} == {
            "/data": "data", "/more": "more", "/again": "data",
        }  # fmt: skip
        assert sorted(claims.values()) == ["data", "more"], "a claim is one volume"
        assert pod["containers"][0]["envFrom"] == [{"secretRef": {"name": "aws"}}]


def test_a_new_cluster_is_made_after_a_failure_and_the_queue_is_that_of_kueue() -> None:
    job = rayjob(EVERYTHING, "train", WORDS)
    assert job["spec"]["backoffLimit"] == 2
    assert job["metadata"]["labels"] == {
        "kueue.x-k8s.io/queue-name": "team-a",
        "kueue.x-k8s.io/priority-class": "dev",
    }
    plain = rayjob(RayJobOptions(image="i"), "train", WORDS)
    assert plain["metadata"] == {"name": "train"}
    assert plain["spec"]["entrypoint"] == " ".join(WORDS)


@pytest.mark.parametrize(
    ("text", "name"), [("train", "train"), ("My_Train.2", "my-train-2"), ("3d", "sweep-3d"), ("a" * 60, "a" * 40)]
)
def test_the_name_of_what_is_run_becomes_a_name_that_kuberay_takes(text: str, name: str) -> None:
    assert resource_name(text) == name
    RayJobOptions(image="i", name=name)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "--image is missing"),
        ({"image": "i", "name": "A_b"}, "name=A_b"),
        ({"image": "i", "name": "a" * 48}, "name=aaa"),
        ({"image": "i", "worker_memory": "4 GB"}, "worker_memory=4 GB"),
        ({"image": "i", "worker_memory": "0"}, "worker_memory=0"),
        ({"image": "i", "head_memory": "0.0Gi"}, "head_memory=0.0Gi"),
        ({"image": "i", "worker_cpu": 0}, "worker_cpu=0"),
        ({"image": "i", "worker_replicas": 10**9}, "worker_replicas=1000000000"),
        ({"image": "my image"}, "image=my image"),
        ({"image": "registry/Train"}, "image=registry/Train"),
        ({"image": ""}, "image="),
        ({"image": "i", "secret": "My Secret"}, "secret=My Secret"),
        ({"image": "i", "secret": "a..b"}, "secret=a..b"),
        ({"image": "i", "service_account": "A B"}, "service_account=A B"),
        ({"image": "i", "queue": "Q Q"}, "queue=Q Q"),
        ({"image": "i", "queue": "q" * 64}, "queue=qqq"),
        ({"image": "i", "queue": "q", "priority_class": "high "}, "priority_class=high"),
        ({"image": "i", "worker_gpu": 8}, "--worker-cpu 2 is less than a core for each of --worker-gpu 8"),
        ({"image": "i", "backoff_limit": -1}, "backoff_limit=-1"),
        ({"image": "i", "priority_class": "p"}, "add --queue"),
        ({"image": "i", "volume": ("data",)}, "--volume data is not CLAIM:/PATH"),
        ({"image": "i", "volume": ("c:/data:ro",)}, "--volume c:/data:ro is not CLAIM:/PATH"),
        ({"image": "i", "volume": ("C:/data",)}, "--volume C:/data is not CLAIM:/PATH"),
        ({"image": "i", "volume": ("c:/data /more",)}, "--volume c:/data /more is not CLAIM:/PATH"),
        ({"image": "i", "volume": ("c:/data", "d:/data/")}, "--volume c:/data,d:/data/ has a path twice"),
        ({"image": "i", "volume": ("c:/dev/shm",)}, "hides /dev/shm"),
        ({"image": "i", "volume": ("c:/data/../dev",)}, "hides /dev/shm"),
        ({"image": "i", "worker_node_selectors": ("gpu",)}, "--worker-node-selectors gpu is not KEY=VALUE"),
        ({"image": "i", "worker_node_selectors": ("bad key!=v w",)}, "--worker-node-selectors bad key!=v w is not"),
        ({"image": "i", "worker_node_selectors": ("a=" + "b" * 64,)}, "--worker-node-selectors a=bbb"),
        ({"image": "i", "worker_node_selectors": ("a=b", "a=c")}, "--worker-node-selectors a=b,a=c has a key twice"),
        ({"image": "i", "ray_version": "2.51.2"}, "--ray-version 2.51.2 knows no token"),
        ({"image": "i", "ray_version": "nightly"}, "ray_version=nightly"),
        ({"image": "i", "ray_version": "2.60.0 x"}, "ray_version=2.60.0 x"),
        ({"image": "i", "working_dir": "code"}, "--working-dir code is no zip file"),
        ({"image": "i", "working_dir": "s3://b/a #c: d.zip"}, "--working-dir s3://b/a #c: d.zip is no zip file"),
        ({"image": "i", "working_dir": "s3://b/$HOME.zip"}, "--working-dir s3://b/$HOME.zip is no zip file"),
        ({"image": "i", "working_dir": "s3://b/code.tar.gz"}, "--working-dir s3://b/code.tar.gz is no zip file"),
        ({"image": "i", "working_dir": "ftp://b/code.zip"}, "--working-dir ftp://b/code.zip is no zip file"),
        ({"image": "i", "working_dir": "s3:///code.zip"}, "--working-dir s3:// has no bucket"),
        ({"image": "i", "working_dir": "s3://key:secret@bucket/x.zip"}, "credentials"),
    ],
)
def test_what_kuberay_would_refuse_or_nobody_could_read_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as refused:
        RayJobOptions(**given)
    assert "\n" not in str(refused.value)


def test_a_name_that_ends_in_a_new_line_is_refused() -> None:
    with pytest.raises(ConfigError, match="name=train"):
        RayJobOptions(image="i", name="train\n")


@pytest.mark.parametrize(
    "image",
    ["i", "rayproject/ray:2.60.0-py311-gpu", "REG.io:5000/my_org/a.b__c:V1", "r.io/a@sha256:0af1", "[::1]:5000/a"],
)
def test_images_of_any_registry_are_taken(image: str) -> None:
    assert RayJobOptions(image=image).image == image


@pytest.mark.parametrize("label", ["gpu=h100", "cloud.google.com/gke-accelerator=nvidia-h100", "Zone_1.a=", "n=1e3"])
def test_labels_of_nodes_are_taken_as_kubernetes_has_them(label: str) -> None:
    assert "=".join(*RayJobOptions(image="i", worker_node_selectors=(label,)).node_labels.items()) == label


@pytest.mark.parametrize(
    ("folder", "is_kept"),
    [
        ("s3://b/x", True), ("gs://b/x", True), ("/data/x", True), ("/tmp/../data/x", True), ("/data/../more", True),
        ("/database/x", False), ("x", False), ("data/x", False), ("/data/../tmp/x", False), ("/data/..", False),
    ],
)  # fmt: skip
def test_results_outlive_pods_on_a_store_or_a_mounted_volume(folder: str, is_kept: bool) -> None:
    assert EVERYTHING.outlives_pods(folder) == is_kept


NASTY = [
    ["--batch-size", "16", "32"],
    ["--note", "two words", ""],
    ["--note", "$(RAY_ADDRESS)", "$$(RAY_ADDRESS)", "$$$(RAY_ADDRESS)", "$(NONE)", "$", "$$", "a$"],
    ["--note", "it's", 'a "quote"', "$HOME `id` $(id) $$ ${x}", "*?[a]{b,c}~", "; true | false & > x #", "!x"],
    ["--metric-regex", "loss", r"loss: (\d+\.\d+)\s*$"],
    ["back\\slash", "\\", "\\\\", '\\"', 'a\\\\"b', "a b\\", "'\\''", "\\$HOME", '"\\"'],
    ["tab\there", "line\nbreak", " ", "\u00fc\u4e2d"],
]

SAYS_ITS_WORDS = f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n"

SUBMIT = """
import subprocess, sys
from unittest.mock import patch
import click.testing
from ray.dashboard.modules.job import cli

class Client:
    def __init__(self, *_, **__): pass
    get_address = submit_job = lambda self, *_, entrypoint="", **__: given.append(entrypoint) or "job"

given = []
# The command itself, without the cluster that it would ask.
with patch.object(cli, "_get_sdk_client", Client):
    done = click.testing.CliRunner().invoke(cli.submit, ["--no-wait", "--", *sys.argv[1:]])
assert given, done.output
subprocess.run(given[-1], shell=True, check=True)  # as the supervisor of a job does
"""


def as_kubernetes_expands(text: str) -> str:
    """An argument of a container that has RAY_ADDRESS: $(RAY_ADDRESS) is replaced, and $$ by $."""
    return re.sub(r"\$(\$|\(RAY_ADDRESS\))", lambda found: "$" if found[1] == "$" else "http://head:8265", text)


@pytest.mark.parametrize("words", NASTY, ids=range(len(NASTY)))
def test_kubernetes_two_shells_and_ray_job_submit_make_the_same_words_of_the_entrypoint(
    words: list[str], tmp_path: Path
) -> None:
    command = tmp_path / "dmls-ray"
    command.write_text(SAYS_ITS_WORDS)
    command.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    job = rayjob(RayJobOptions(image="i"), "train", ["dmls-ray", "sweep", *words])
    # As KubeRay puts it into the container of the submitter.
    entrypoint = as_kubernetes_expands(job["spec"]["entrypoint"].strip())
    line = f"{shlex.join([sys.executable, '-c', SUBMIT])} {entrypoint} ;"
    done = subprocess.run(["bash", "-ce", line], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == ["sweep", *words]


def test_words_that_an_older_ray_would_change_are_refused() -> None:
    older = RayJobOptions(image="i", ray_version="2.55.1")
    assert rayjob(older, "train", WORDS)["spec"]["entrypoint"] == " ".join(WORDS)
    with pytest.raises(ConfigError, match=re.escape("--ray-version 2.55.1 changes words")):
        rayjob(older, "train", [*WORDS, "--", "--note", "two words"])
