"""`rayjob`: the RayJob that runs a sweep on Kubernetes, for KubeRay.

Its fields are those of `ray.io/v1` (KubeRay, `ray-operator/apis/ray/v1`, read at v1.7.0). `authOptions` came with
v1.5.1.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import PurePosixPath
from typing import Annotated, Any

from msgspec import Meta

from dmls_ray.cluster.resources import Machine, Resources
from dmls_ray.config.fields import Count, Name, WholeNumber, field_specs, set_checked, setting
from dmls_ray.util.errors import ConfigError
from dmls_ray.util.uri import check_location, is_uri

_SUBDOMAIN = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
"""Of RFC 1123: what Kubernetes takes for names of objects, with at most 253 characters."""
_LABEL = "[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?"
"""What Kubernetes takes for the value of a label, and for its key after a prefix."""

Quantity = Annotated[str, Meta(pattern=r"^(?=[0-9.]*[1-9])[0-9]+(\.[0-9]+)?([kMGTPE]|[KMGTPE]i)?\Z")]
"""Bytes, as Kubernetes writes them: 64Gi."""

RayVersion = Annotated[str, Meta(pattern=r"^[0-9]+\.[0-9]+\.[0-9]+[.+a-z0-9]*\Z")]

ResourceName = Annotated[str, Meta(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?\Z", max_length=47)]
"""What KubeRay takes for the name of a RayJob."""

ObjectName = Annotated[str, Meta(pattern=rf"^{_SUBDOMAIN}\Z", max_length=253)]

LabelName = Annotated[str, Meta(pattern=rf"^{_SUBDOMAIN}\Z", max_length=63)]
"""Name of an object that stands in a label."""

Image = Annotated[str, Meta(pattern=r"^([^\s/]+/)?[a-z0-9]+([._/-]+[a-z0-9]+)*([:@][-A-Za-z0-9_.:@]+)?\Z")]

Pods = Annotated[int, Meta(ge=1, le=150_000)]
"""Kubernetes supports no more in a cluster."""

_MEMORY = "an amount of memory, 64Gi for example"
_NAME = "a name of small letters, digits, dots and hyphens"

_TOKEN_FROM, _WORDS_FROM = (2, 52), (2, 56)
"""Versions of Ray from which on it asks for a token, and `ray job submit` passes on words with a space or a sign of the
shell as they are."""

_QUEUE, _PRIORITY = "kueue.x-k8s.io/queue-name", "kueue.x-k8s.io/priority-class"
"""Labels that Kueue reads."""

_GPU = "nvidia.com/gpu"
_SHARED_MEMORY = "shared-mem"
"""KubeRay's name of the volume that it would add itself."""

_TAKEN = {"/", "/dev", "/dev/shm"}
"""Paths at which a volume would hide that one."""


@dataclass(frozen=True, kw_only=True)
class RayJobOptions:
    """Of what a RayJob is made, besides the sweep. Names and defaults are those of `kubectl ray job submit`, where it
    has them.

    Raises:
        ConfigError: a value breaks a rule of its field.
    """

    image: Image | None = setting(None, group="cluster", expects="REGISTRY/NAME:TAG in small letters")
    """Image of all pods, with Ray, dmls_ray and what the script imports; and with the script, unless --working-dir
    brings that."""
    name: ResourceName | None = setting(None, group="cluster", expects="small letters, digits and -, a letter first")
    """Name of the RayJob; without it, that of what is run."""
    worker_replicas: Pods = setting(1, group="cluster")
    """Machines for ranks, one pod each."""
    worker_cpu: Count = setting(2, group="cluster")
    """Whole CPU cores of each."""
    worker_memory: Quantity = setting("4Gi", group="cluster", expects=_MEMORY)
    """Memory of each; what is in /dev/shm counts."""
    worker_gpu: WholeNumber = setting(0, group="cluster")
    """GPUs of each."""
    worker_node_selectors: tuple[str, ...] | None = setting(None, group="cluster")
    """Labels of the nodes that may be one of them: KEY=VALUE,KEY=VALUE."""
    head_cpu: Count = setting(2, group="cluster")
    """CPU cores of the head, on which no rank runs."""
    head_memory: Quantity = setting("4Gi", group="cluster", expects=_MEMORY)
    """Memory of the head."""
    ray_version: RayVersion | None = setting(None, group="cluster", expects="a version, 2.60.0 for example")
    """Version of Ray in the image; without it, that which is installed here."""
    working_dir: Name | None = setting(None, group="cluster")
    """URI of a zip file with the script, which Ray unpacks on each machine (runtime_env); without it, the script is in
    the image, in the folder that WORKDIR names."""
    volume: tuple[str, ...] | None = setting(None, group="cluster")
    """Persistent volume claims that all pods mount: CLAIM:/PATH,CLAIM:/PATH."""
    secret: ObjectName | None = setting(None, group="cluster", expects=_NAME)
    """Kubernetes Secret whose keys are environment variables of all pods: AWS_ACCESS_KEY_ID, for example."""
    service_account: ObjectName | None = setting(None, group="cluster", expects=_NAME)
    """Service account of all pods, where that grants the access to the bucket."""
    queue: LabelName | None = setting(None, group="cluster", expects=_NAME)
    """Local queue of Kueue."""
    priority_class: LabelName | None = setting(None, group="cluster", expects=_NAME)
    """Workload priority class of Kueue."""
    backoff_limit: WholeNumber = setting(3, group="cluster")
    """How often KubeRay makes a new cluster after a failure; the sweep continues there."""
    active_deadline_seconds: Count | None = setting(None, group="cluster")
    """Seconds after which KubeRay ends all of it."""

    def __post_init__(self) -> None:
        if self.image is None:
            raise ConfigError("--image is missing; give the image of the pods, which has Ray and dmls_ray.")
        set_checked(self, field_specs(RayJobOptions).values())
        if self.priority_class and not self.queue:
            raise ConfigError(f"--priority-class {self.priority_class} is for a queue of Kueue; add --queue.")
        if self.release < _TOKEN_FROM:
            raise ConfigError(f"--ray-version {self.ray} knows no token; use an image with Ray 2.52 or newer.")
        if self.worker_cpu < self.worker_gpu:
            raise ConfigError(
                f"--worker-cpu {self.worker_cpu} is less than a core for each of --worker-gpu {self.worker_gpu}; give "
                "what a node has for its GPUs."
            )
        for text in self.volume or ():
            if not re.fullmatch(rf"(?=[^:]{{1,253}}:){_SUBDOMAIN}:(/[^:/\s]+)+/?", text):
                raise ConfigError(f"--volume {text} is not CLAIM:/PATH; give the claim, and where pods mount it.")
        if self.volume and len(_TAKEN | self.mounts.keys()) < len(_TAKEN) + len(self.volume):
            raise ConfigError(f"--volume {','.join(self.volume)} has a path twice or hides /dev/shm; give other paths.")
        labels = self.worker_node_selectors or ()
        for text in labels:
            if not re.fullmatch(f"({_SUBDOMAIN}/)?{_LABEL}=({_LABEL})?", text):
                raise ConfigError(f"--worker-node-selectors {text} is not KEY=VALUE as labels have them; give a label.")
        if len(self.node_labels) < len(labels):
            raise ConfigError(f"--worker-node-selectors {','.join(labels)} has a key twice; drop one.")
        if self.working_dir:
            check_location(self.working_dir, "--working-dir")
            # What Ray 2.52 reads, without a sign that the shell of KubeRay's submitter would read.
            if not re.fullmatch(r"(https|s3|gs|azure|abfss|file)://[\w./~%+@=:,-]+\.zip", self.working_dir):
                raise ConfigError(
                    f"--working-dir {self.working_dir} is no zip file that pods can read; upload it as one and give "
                    "its URI without spaces, s3://BUCKET/code.zip say, or leave it out and copy it into the image."
                )

    @property
    def ray(self) -> str:
        """The version of Ray in the image."""
        return self.ray_version or version("ray")

    @property
    def release(self) -> tuple[int, ...]:
        """The first two numbers of the version of Ray."""
        return tuple(map(int, self.ray.split(".")[:2]))

    @property
    def mounts(self) -> dict[str, str]:
        """Path of a mount -> its persistent volume claim."""
        texts = self.volume or ()
        return {posixpath.normpath(path): claim for claim, _, path in (text.partition(":") for text in texts)}

    @property
    def node_labels(self) -> dict[str, str]:
        """Labels of the nodes that may be workers."""
        return dict(text.split("=", 1) for text in self.worker_node_selectors or ())

    @property
    def resources(self) -> Resources:
        """What the pods have for ranks."""
        names = [f"worker {number}" for number in range(self.worker_replicas)]
        machines = tuple(Machine(name, "", self.worker_cpu, self.worker_gpu) for name in names)
        return Resources(machines, more="raise --worker-replicas, --worker-cpu or --worker-gpu")

    def outlives_pods(self, folder: str) -> bool:
        """Whether results in a folder are there when the pods are gone."""
        path = PurePosixPath(posixpath.normpath(folder))
        return is_uri(folder) or any(path.is_relative_to(mount) for mount in self.mounts)


def rayjob(options: RayJobOptions, name: str, words: Sequence[str]) -> dict[str, Any]:
    """The RayJob that runs a command.

    Args:
        options: what it is made of.
        name: its name, where the options have none.
        words: the command.

    Raises:
        ConfigError: this version of Ray would change the words.
    """
    entrypoint = shlex.join(words)
    if entrypoint != " ".join(words) and options.release < _WORDS_FROM:
        raise ConfigError(
            f"--ray-version {options.ray} changes words of a job's command that have spaces or signs of the "
            "shell; use an image with Ray 2.56 or newer, or write the sweep as a file (sweep.toml)."
        )
    head = _pod(options, "ray-head", {"cpu": str(options.head_cpu), "memory": options.head_memory})
    amounts = {"cpu": str(options.worker_cpu), "memory": options.worker_memory}
    if options.worker_gpu:
        amounts[_GPU] = str(options.worker_gpu)
    worker = _pod(options, "ray-worker", amounts)
    if options.worker_gpu:
        # Many clusters keep other pods away from nodes with GPUs.
        worker["tolerations"] = [{"key": _GPU, "operator": "Exists", "effect": "NoSchedule"}]
    if options.worker_node_selectors:
        worker["nodeSelector"] = options.node_labels
    replicas = options.worker_replicas
    workers = {
        "groupName": "workers",
        "replicas": replicas,
        "minReplicas": replicas,
        "maxReplicas": replicas,
        "rayStartParams": {},
        "template": {"spec": worker},
    }
    spec: dict[str, Any] = {
        # A shell of KubeRay and `ray job submit` each make words of it. Before, it is an argument of a container, in
        # which Kubernetes replaces $(NAME), and $$ by $.
        "entrypoint": entrypoint.replace("$", "$$"),
        # It waits for the workers; SidecarMode submits as soon as there is a head.
        "submissionMode": "K8sJobMode",
        "backoffLimit": options.backoff_limit,
        "shutdownAfterJobFinishes": True,
        "rayClusterSpec": {
            "rayVersion": options.ray,
            "authOptions": {"mode": "token"},
            "headGroupSpec": {"rayStartParams": {"num-cpus": "0"}, "template": {"spec": head}},
            "workerGroupSpecs": [workers],
        },
    }
    if options.active_deadline_seconds:
        spec["activeDeadlineSeconds"] = options.active_deadline_seconds
    if options.working_dir:
        spec["runtimeEnvYAML"] = f"working_dir: {options.working_dir}\n"
    metadata: dict[str, Any] = {"name": options.name or resource_name(name)}
    if options.queue:
        metadata["labels"] = {_QUEUE: options.queue}
    if options.priority_class:
        metadata["labels"][_PRIORITY] = options.priority_class
    return {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": metadata, "spec": spec}


def _pod(options: RayJobOptions, name: str, amounts: dict[str, str]) -> dict[str, Any]:
    """The specification of a pod with one container."""
    shared_memory = {"medium": "Memory", "sizeLimit": amounts["memory"]}
    volumes: list[dict[str, Any]] = [{"name": _SHARED_MEMORY, "emptyDir": shared_memory}]
    mounts = [{"name": _SHARED_MEMORY, "mountPath": "/dev/shm"}]
    for number, claim in enumerate(dict.fromkeys(options.mounts.values())):
        volumes.append({"name": f"volume-{number}", "persistentVolumeClaim": {"claimName": claim}})
        paths = [path for path, mounted in options.mounts.items() if mounted == claim]
        mounts += [{"name": f"volume-{number}", "mountPath": path} for path in paths]
    container: dict[str, Any] = {
        "name": name,
        "image": options.image,
        # Equal requests and limits of whole cores get cores of their own where the kubelet has the static CPU manager.
        "resources": {"requests": {**amounts}, "limits": {**amounts}},
        # Ray would give ranks the lowest priority but four.
        "env": [{"name": "RAY_worker_niceness", "value": "0"}],
        "volumeMounts": mounts,
    }
    if options.secret:
        container["envFrom"] = [{"secretRef": {"name": options.secret}}]
    spec: dict[str, Any] = {"containers": [container], "volumes": volumes}
    if options.service_account:
        spec["serviceAccountName"] = options.service_account
    return spec


def resource_name(text: str) -> str:
    """A text as a name that KubeRay takes."""
    name = re.sub("[^a-z0-9]+", "-", text.lower()).strip("-")[:40].strip("-")
    return name if name[:1].isalpha() else f"sweep-{name}".strip("-")
