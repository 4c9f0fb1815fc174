from __future__ import annotations

import itertools
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from dmls_ray.cluster import resources as resources_module
from dmls_ray.cluster.resources import (
    Machine,
    RankRequest,
    Resources,
    WorkerGroupSpec,
    check_accelerator,
    local_resources,
    may_have_accelerator,
    place_ranks,
    slots_for,
    usable_gpus,
)
from dmls_ray.util.errors import ClusterError
from dmls_ray.workloads.classification.config import TrialConfig

LAPTOP = Resources((Machine("laptop", "", 2, 0),))
SERVER = Resources((Machine("one", "1", 8, 2), Machine("two", "2", 8, 2)))


def config(**changes: Any) -> TrialConfig:
    return TrialConfig(**{"batch_per_rank": 8, **changes})


@pytest.mark.parametrize(
    ("resources", "changes", "message"),
    [
        (LAPTOP, {}, ""),
        (LAPTOP, {"world_size": 2}, ""),
        (LAPTOP, {"world_size": 3}, "world_size=3 does not fit on this machine of 2 cores. Lower .*--oversubscribe"),
        (LAPTOP, {"world_size": 2, "threads_per_rank": 2}, "world_size=2 x threads_per_rank=2 does not fit"),
        (LAPTOP, {"device": "cuda"}, "device=cuda needs a GPU and this machine has none. .*pass --device cpu"),
        (LAPTOP, {"backend": "nccl"}, "backend=nccl needs GPUs, but this run would train on CPUs. Use backend gloo"),
        (SERVER, {"quantization": "qat"}, "quantization=qat is for CPUs, but this run would train on GPUs"),
        (SERVER, {"world_size": 4}, ""),
        (SERVER, {"world_size": 5}, "world_size=5 does not fit on this cluster of 2, 2 GPUs. Lower it, add"),
        (SERVER, {"world_size": 16, "device": "cpu"}, ""),
        (SERVER, {"world_size": 17, "device": "cpu"}, "world_size=17 does not fit on this cluster of 8, 8 cores"),
        (SERVER, {"machines": 2, "ranks_per_machine": 2}, ""),
        (SERVER, {"machines": 2, "ranks_per_machine": 3}, "machines=2 ranks_per_machine=3 does not fit .* 2, 2 GPUs."),
        (
            SERVER,
            {"machines": 3, "ranks_per_machine": 1},
            "machines=3 needs as many machines with a GPU, and .* has 2; ",
        ),
        (SERVER, {"world_size": 3, "threads_per_rank": 5, "device": "cpu"}, "world_size=3 x threads_per_rank=5 does"),
    ],
)
def test_a_run_that_does_not_fit_is_refused_with_the_way_out(
    resources: Resources, changes: dict[str, Any], message: str
) -> None:
    objection = resources.infeasible_reason(config(**changes), oversubscribe=False)
    assert re.fullmatch(f"{message}.*" if message else "", objection)


def test_more_ranks_than_cores_may_be_asked_for_and_not_more_machines_than_there_are() -> None:
    spread = config(machines=2, ranks_per_machine=20, device="cpu")
    assert SERVER.infeasible_reason(spread, oversubscribe=True) == ""
    assert SERVER.oversubscribes(spread)
    assert not SERVER.oversubscribes(config(world_size=2, device="cpu"))


@pytest.mark.parametrize("oversubscribe", [False, True])
def test_too_few_machines_are_the_reason_and_neither_cores_nor_oversubscription(oversubscribe: bool) -> None:
    def reason(resources: Resources, machines: int, ranks: int) -> str:
        spread = config(machines=machines, ranks_per_machine=ranks, device="cpu")
        return resources.infeasible_reason(spread, oversubscribe=oversubscribe)

    way_out = "add machines (ray start --address=...), or lower --machines."
    for ranks in (1, 20):
        assert reason(LAPTOP, 2, ranks) == f"machines=2 needs as many machines, and this is one; {way_out}"
        assert reason(SERVER, 3, ranks) == f"machines=3 needs as many machines, and this cluster has 2; {way_out}"
    head_only = Resources((*SERVER.machines, Machine("head", "3", 0, 0)))
    assert reason(head_only, 3, 1) == f"machines=3 needs as many machines, and this cluster has 2; {way_out}"


def test_resources_kept_for_gpu_runs_go_by_gpus_and_not_by_threads() -> None:
    demand = WorkerGroupSpec(needs=[RankRequest(world_size=4, threads=8)], device="cuda")
    assert SERVER.ranks_to_hold(demand) == {"one": 2, "two": 2}


@pytest.fixture
def has_gpus(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Function that gives this machine the GPUs that NVML lists, and those that PyTorch can use."""

    def make(names: list[str], usable: int) -> None:
        monkeypatch.setattr(resources_module, "machine_facts", lambda: {"gpus": names})
        monkeypatch.setattr(torch.cuda, "device_count", lambda: usable)
        monkeypatch.setattr(torch.version, "cuda", "13.0")
        monkeypatch.setattr(resources_module, "may_have_accelerator", lambda: True)

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return make


def test_the_gpus_of_this_machine_are_those_that_pytorch_can_use(has_gpus: Any) -> None:
    has_gpus(["H200", "H200"], 1)
    assert local_resources().gpus == 1
    check_accelerator(local_resources(), [config()])


def test_device_auto_is_refused_where_it_would_leave_a_gpu_unused(has_gpus: Any) -> None:
    has_gpus(["L4", "L4"], 0)
    with pytest.raises(ClusterError, match=r"^device=auto: .*GPUs \(L4, L4\)\..* pass --device cpu"):
        check_accelerator(local_resources(), [config(device="cpu"), config()])
    check_accelerator(local_resources(), [config(device="cpu")])
    check_accelerator(LAPTOP, [config()])


@pytest.mark.parametrize(("kind", "hip", "names"), [("xpu", None, "xpu, xpu"), ("cuda", "6.4", "ROCm, ROCm")])
def test_device_auto_is_refused_where_it_would_leave_another_accelerator_unused(
    monkeypatch: pytest.MonkeyPatch, has_gpus: Any, kind: str, hip: str | None, names: str
) -> None:
    has_gpus([], 0)
    monkeypatch.setattr(torch.version, "cuda", None)
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device(kind))
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 2)
    with pytest.raises(ClusterError, match=rf"GPUs \({names}\)"):
        check_accelerator(local_resources(), [config()])


@pytest.mark.parametrize("visible", ["", "-1"])
def test_gpus_that_are_left_out_on_purpose_are_no_reason_to_refuse(
    monkeypatch: pytest.MonkeyPatch, has_gpus: Any, visible: str
) -> None:
    has_gpus(["L4"], 0)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    check_accelerator(local_resources(), [config()])


@pytest.mark.parametrize("visible", ["", "-1"])
def test_where_gpus_are_left_out_on_purpose_pytorch_is_not_asked(monkeypatch: pytest.MonkeyPatch, visible: str) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert usable_gpus() == 0


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ((), False),
        (("null", "nvme0n1", "dri/card0", "hlx"), False),
        (("nvidiactl",), True),
        (("dxg",), True),
        (("kfd", "dri/renderD128"), True),
        (("accel/accel0",), True),
    ],
)
def test_pytorch_is_asked_only_where_the_system_has_a_file_of_an_accelerator(
    tmp_path: Path, files: tuple[str, ...], expected: bool
) -> None:
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    assert may_have_accelerator(tmp_path) is (expected or sys.platform != "linux")


ROOMS = {"large": 4, "small": 2, "tiny": 1}


@pytest.mark.parametrize(
    ("rooms", "need", "expected"),
    [
        # The first machine that has room is taken though another one has more, or else as few as it takes.
        ({"first": 2, "larger": 8}, {"world_size": 2}, {"first": 2}),
        (ROOMS, {"world_size": 4}, {"large": 4}),
        (ROOMS, {"world_size": 5}, {"large": 4, "small": 1}),
        (ROOMS, {"world_size": 7}, {"large": 4, "small": 2, "tiny": 1}),
        (ROOMS, {"world_size": 8}, {}),
        # As many machines as were asked for have their share, or none has.
        (ROOMS, {"world_size": 4, "machines": 2}, {"large": 2, "small": 2}),
        (ROOMS, {"world_size": 3, "machines": 1}, {"large": 3}),
        (ROOMS, {"world_size": 3, "machines": 3}, {"large": 1, "small": 1, "tiny": 1}),
        (ROOMS, {"world_size": 6, "machines": 2}, {}),
        (ROOMS, {"world_size": 4, "machines": 4}, {}),
    ],
)
def test_where_ranks_are_placed(rooms: dict[str, int], need: dict[str, int], expected: dict[str, int]) -> None:
    assert place_ranks(rooms, RankRequest(**need)) == expected


@pytest.mark.parametrize(
    ("need", "expected"),
    [
        ({"world_size": 9}, {"large": 6, "small": 3}),
        ({"world_size": 12, "machines": 2}, {"large": 6, "small": 6}),
        ({"world_size": 3}, {"large": 3}),
    ],
)
def test_more_ranks_than_cores_are_shared_out_by_cores_where_that_is_allowed(
    need: dict[str, int], expected: dict[str, int]
) -> None:
    request = RankRequest(**need)
    slots = slots_for({"none": 0, "large": 4, "small": 2}, request, oversubscribe=True)
    assert place_ranks(slots, request) == expected


def test_a_rank_of_several_threads_takes_so_many_cores_of_one_machine() -> None:
    need = RankRequest(world_size=3, threads=2)
    assert slots_for({"a": 5, "b": 3}, need, oversubscribe=False) == {"a": 2, "b": 1}
    assert not place_ranks(slots_for({"a": 3, "b": 3}, need, oversubscribe=False), need)


def held(needs: list[RankRequest], **cores: int) -> dict[str, int]:
    machines = tuple(Machine(name, name, count, 0) for name, count in cores.items())
    return Resources(machines).ranks_to_hold(WorkerGroupSpec(needs=needs, device="cpu"))


def test_a_sweep_holds_what_its_largest_run_needs_of_each_machine_and_no_more() -> None:
    cores = {"a": 4, "b": 4, "c": 4}
    packed = [RankRequest(world_size=size) for size in (1, 2)]
    assert held(packed, **cores) == {"a": 2}
    assert held([*packed, RankRequest(world_size=2, machines=2)], **cores) == {"a": 2, "b": 1}
    assert held([RankRequest(world_size=6)], **cores) == {"a": 4, "b": 2}
    assert held([RankRequest(world_size=13)], **cores) == {}


def test_each_run_finds_its_ranks_among_those_that_are_held() -> None:
    needs = [RankRequest(world_size=size) for size in range(1, 13)]
    spread = itertools.product((1, 2, 3), repeat=2)
    needs += [RankRequest(world_size=machines * each, machines=machines) for machines, each in spread]
    for count in range(1, len(needs) + 1):
        ranks = held(needs[:count], a=3, b=5, c=4)
        assert all(place_ranks(ranks, need) for need in needs[:count])
