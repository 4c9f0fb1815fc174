from __future__ import annotations

import sys
from typing import Any

import pytest
import torch

from dmls_ray.training.precision import has_vnni
from dmls_ray.training.sharding import hold_out
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.data.decoded_images import load_decoded
from dmls_ray.workloads.classification.data.loaders import normalize
from dmls_ray.workloads.classification.model_builder import build_model
from dmls_ray.workloads.classification.quantization import (
    QuantizedModel,
    checkpoint_bytes,
    compiled_for,
    prepare_for_training,
    to_int8,
    weights_of,
)
from tests.new_processes import run_inline, run_ranks
from tests.training.probes import train_and_return_int8

SHAPE = (1, 8, 8)


def config(**changes: Any) -> TrialConfig:
    base = {"dataset": "digits", "batch_per_rank": 32, "epochs": 3, "device": "cpu", "lr": 3e-3}
    return TrialConfig(**{**base, **changes})


def built() -> torch.nn.Module:
    torch.manual_seed(0)
    return build_model(config(), SHAPE, 10)


@pytest.fixture(scope="module")
def images() -> torch.Tensor:
    return torch.rand(64, *SHAPE, generator=torch.Generator().manual_seed(1)) * 2 - 1


@pytest.mark.parametrize("kind", ["static", "qat"])
def test_an_int8_model_has_int8_weights_and_differs_from_fp32_by_rounding_only(kind: str, images: torch.Tensor) -> None:
    model = built()
    trained = model
    if kind == "qat":
        trained = prepare_for_training(model, images[:2])
        trained.train()
        trained(images).sum().backward()
    before = {name: value.clone() for name, value in trained.state_dict().items()}
    int8 = to_int8(trained, kind, images[:2], [images])
    weights = weights_of(int8)
    shapes = sorted(tuple(value.shape) for value in weights.values() if value.dtype == torch.int8)
    assert shapes == sorted(tuple(item.shape) for item in model.parameters() if item.ndim > 1)
    assert largest_int8(int8) > 120
    assert not [name for name, value in weights.items() if value.ndim > 1 and value.dtype == torch.float32]
    assert 2 * checkpoint_bytes(int8) < checkpoint_bytes(model)
    with torch.no_grad():
        exact, rounded = model.eval()(images), int8(images)
    assert not torch.equal(exact, rounded)
    torch.testing.assert_close(rounded, exact, rtol=0.2, atol=0.1)
    after = trained.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items()), "the trained model stays as it is"


def test_dynamic_quantization_converts_the_linear_layers_alone(images: torch.Tensor) -> None:
    weights = weights_of(to_int8(built(), "dynamic", images[:2], [images[:2]]))
    assert [tuple(value.shape) for value in weights.values() if value.dtype == torch.int8] == [(10, 128)]
    assert "features.0.weight" in weights


@pytest.mark.parametrize("kind", ["static", "qat", "dynamic"])
def test_a_reduced_range_takes_a_bit_from_the_weights(kind: str, images: torch.Tensor) -> None:
    model = built()
    if kind == "qat":
        model = prepare_for_training(model, images[:2], reduce_range=True)
        model(images)
    int8 = to_int8(model, kind, images[:2], [images], reduce_range=True)
    assert 60 < largest_int8(int8) <= 64


def largest_int8(model: torch.nn.Module) -> int:
    return int(max(item.int().abs().max() for item in weights_of(model).values() if item.dtype == torch.int8))


@pytest.mark.slow
def test_a_compiled_int8_model_computes_what_the_converted_one_does_with_the_largest_activations_and_weights() -> None:
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 4)).requires_grad_(False)
    model[1].weight.fill_(1.0)
    images = torch.ones(8, *SHAPE)
    images[0, 0, 0, 0] = 0.0
    int8 = to_int8(model, "static", images[:2], [images], reduce_range=has_vnni() is False)
    forward = compiled_for(int8, len(images))
    with torch.inference_mode():
        torch.testing.assert_close(forward(images), int8(images), rtol=1e-3, atol=1e-3)
        torch.testing.assert_close(forward(images), model(images), rtol=0.02, atol=0.1)


@pytest.mark.slow
def test_a_compiled_int8_model_computes_with_int8_kernels_and_takes_short_batches(images: torch.Tensor) -> None:
    int8 = to_int8(built(), "static", images[:2], [images])
    forward = compiled_for(int8, 64)
    with torch.inference_mode():
        reference = int8(images)
        torch.testing.assert_close(forward(images), reference, rtol=0.05, atol=0.02)
        assert forward(images[:5]).shape == (5, 10)
        torch.testing.assert_close(forward(images[:5]), forward(images)[:5])
    with torch.profiler.profile() as profiler, torch.inference_mode():
        forward(images)
    assert any("qconv" in event.key for event in profiler.key_averages())


@pytest.mark.slow
def test_a_run_reports_the_numbers_of_report_c_for_the_fp32_and_the_int8_model() -> None:
    fp32 = run_inline(config(inference_batch=16)).run.metrics
    for kind in ("static", "qat"):
        result = run_inline(config(quantization=kind, inference_batch=16))
        assert result.outcome == "ok", result.traceback
        run = result.run.metrics
        assert run["int8_test_accuracy"] > 0.85
        assert run["int8_test_accuracy"] == pytest.approx(run["fp32_test_accuracy"], abs=0.03)
        assert run["int8_checkpoint_bytes"] < run["fp32_checkpoint_bytes"] == fp32["fp32_checkpoint_bytes"]
        assert all(
            0 < run[f"{name}_ms_p50"] <= run[f"{name}_ms_p95"]
            for name in ("fp32_eager", "fp32_compiled", "int8_compiled")
        )
        last = result.run.epochs[-1].metrics["test_accuracy"]
        assert last == run["int8_test_accuracy" if kind == "qat" else "fp32_test_accuracy"]
        assert run["quantize_s"] > 0
        assert result.run.facts.get("vnni") is has_vnni()
    assert "int8_test_accuracy" not in fp32


@pytest.mark.slow
def test_quantization_aware_training_under_ddp_gives_every_rank_the_same_int8_model() -> None:
    ranks = run_ranks(config(quantization="qat", world_size=2, epochs=2, batch_norm="on"), train=train_and_return_int8)
    assert [item.outcome for item in ranks] == ["ok", "ok"], ranks[0].traceback
    assert ranks[0].run.reported["returned"] == ranks[1].run.reported["returned"]
    assert ranks[0].run.metrics["int8_test_accuracy"] == ranks[0].run.epochs[-1].metrics["test_accuracy"] > 0.6


def test_activations_are_observed_over_the_same_images_on_every_rank_whatever_the_other_options() -> None:
    one = QuantizedModel(config(quantization="static"), built(), SHAPE)
    two = QuantizedModel(
        config(quantization="static", world_size=2, zero_redundancy=True, compression="fp16"), built(), SHAPE
    )
    batches = [list(item._calibration()) for item in (one, two)]
    assert sum(len(batch) for batch in batches[0]) == 16 * 32
    assert all(torch.equal(a, b) for a, b in zip(*batches, strict=True))


@pytest.mark.parametrize(
    ("missing", "message"),
    [("torchao", "needs torchao, which is not installed"), ("g++", "no C++ compiler is on the path")],
)
def test_without_its_library_or_a_compiler_a_run_is_skipped_with_the_reason(
    missing: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if missing == "torchao":
        monkeypatch.setitem(sys.modules, "torchao", None)
    else:
        monkeypatch.setattr("shutil.which", lambda name: None)
    result = run_inline(config(quantization="static"))
    assert result.outcome == "skipped"
    assert message in result.reason


def test_static_quantization_observes_no_validation_image() -> None:
    trial = config(quantization="static", validation_share=0.5)
    data = load_decoded("digits", None, None)
    _, held_out = hold_out(len(data.train_labels), trial)
    unseen = normalize(torch.from_numpy(data.train_images[held_out.numpy()]))
    seen = torch.cat(list(QuantizedModel(trial, built(), SHAPE)._calibration()))
    assert len(seen)
    assert {image.numpy().tobytes() for image in unseen}.isdisjoint(image.numpy().tobytes() for image in seen)
