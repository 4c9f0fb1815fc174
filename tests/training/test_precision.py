from __future__ import annotations

import platform
from typing import Any

import pytest
import torch

from dmls_ray.config.training import Precision
from dmls_ray.training.precision import has_tf32, has_vnni, set_tf32
from dmls_ray.workloads.classification import workload
from tests.new_processes import run_inline
from tests.training.test_engine import config


@pytest.mark.skipif(not hasattr(torch.backends, "fp32_precision"), reason="needs PyTorch 2.9")
@pytest.mark.parametrize("allowed", [False, True])
def test_a_precision_that_an_earlier_run_set_by_the_newer_switches_does_not_reach_the_next(allowed: bool) -> None:
    backends = torch.backends
    backends.fp32_precision = backends.cudnn.fp32_precision = "tf32"
    backends.mkldnn.fp32_precision = backends.mkldnn.conv.fp32_precision = "bf16"
    set_tf32(allowed)
    assert backends.cuda.matmul.allow_tf32 == backends.cudnn.allow_tf32 == allowed
    assert backends.mkldnn.conv.fp32_precision not in ("bf16", "tf32")
    assert backends.mkldnn.matmul.fp32_precision not in ("bf16", "tf32")
    set_tf32(False)


@pytest.mark.parametrize(
    ("machine", "has", "vnni"),
    [
        ("x86_64", {"avx2": True}, False),
        ("x86_64", {"avx512_vnni": True}, True),
        ("aarch64", {"dot": True, "i8mm": True}, None),
    ],
)
def test_int8_may_overflow_on_x86_processors_without_vnni_alone(
    machine: str, has: dict[str, bool], vnni: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: has)
    assert has_vnni() is vnni


@pytest.mark.parametrize(
    ("machine", "has", "gpus", "slow"),
    [
        ("x86_64", {"avx512_fp16": True, "amx_bf16": False}, [], ["amp-bf16"]),
        ("x86_64", {}, [], ["amp-bf16", "amp-fp16"]),
        ("x86_64", {}, ["NVIDIA H200"], []),
        ("aarch64", {}, [], []),
    ],
)
def test_precisions_without_units_in_the_processor_are_named_before_the_runs(
    machine: str, has: dict[str, bool], gpus: list[str], slow: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: has)
    monkeypatch.setattr(workload, "machine_facts", lambda: {"gpus": gpus})
    notes: list[str] = []
    precisions: list[Precision] = ["fp32", "amp-bf16", "amp-fp16"]
    configs = [config(precision=precision) for precision in precisions]
    workload.ClassificationWorkload().prepare(configs, notes.append)
    named = [note.partition(":")[0] for note in notes if note.startswith("This processor")]
    assert named == [f"This processor has no hardware support for {name}" for name in slow]


@pytest.mark.parametrize("has_new_switch", [False, True])
def test_tf32_is_seen_whichever_switch_of_pytorch_was_set(has_new_switch: bool) -> None:
    products: Any = torch.backends.cuda.matmul
    if has_new_switch and not hasattr(products, "fp32_precision"):
        pytest.skip("PyTorch 2.9 has the new switch")
    assert not has_tf32()
    try:
        if has_new_switch:
            products.fp32_precision = "tf32"
        else:
            products.allow_tf32 = True
        assert has_tf32()
    finally:
        if has_new_switch:
            products.fp32_precision = "none"
        set_tf32(False)
    assert not has_tf32()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("precision", ["tf32", "amp-fp16", "amp-bf16"])
def test_every_format_trains_on_a_gpu(precision: str) -> None:
    full, other = (run_inline(config(device="cuda", precision=name)) for name in ("fp32", precision))
    losses = [[epoch.metrics["train_loss"] for epoch in item.run.epochs] for item in (full, other)]
    assert losses[1] == pytest.approx(losses[0], rel=0.1)
