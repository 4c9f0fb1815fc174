"""int8 models, and the latency and checkpoint size of trained models.

A model is converted by torchao's PT2E flow: export, observe, convert, and compile with Inductor for the processor.

qat       trained with simulated rounding, as in report C; converted after every epoch and tested as int8
static    trained in fp32; ranges of activations are observed over some training batches, then converted
dynamic   trained in fp32; linear layers are converted, and ranges of activations are measured during inference
"""

from __future__ import annotations

import copy
import io
import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dmls_ray.records.provenance import has_cpp_compiler
from dmls_ray.training.compat import inductor_freezing
from dmls_ray.training.marks import synchronize
from dmls_ray.training.sharding import hold_out
from dmls_ray.training.task import Forward
from dmls_ray.util.errors import UnavailableError
from dmls_ray.util.importing import missing_extra
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.data.decoded_images import load_decoded
from dmls_ray.workloads.classification.data.loaders import normalize
from dmls_ray.workloads.classification.data.sources import chosen_by_class

CALIBRATION_BATCHES = 16
"""Training batches over which static quantization observes activations."""

_TIMED_PASSES = 200
_WARMUP_PASSES = 20


def check_available(config: TrialConfig) -> None:
    """Refuse int8 on a machine that does not support it.

    Raises:
        UnavailableError: torchao or a C++ compiler is missing.
    """
    name = "inference_batch" if config.quantization == "off" else "quantization"
    given = f"{name}={getattr(config, name)}"
    if name == "quantization" and (reason := missing_extra("torchao", "int8", given)):
        raise UnavailableError(reason)
    if getattr(config, name) is not None and not has_cpp_compiler():
        raise UnavailableError(f"{given} compiles, and no C++ compiler is on the path; install g++, or leave it out.")


class QuantizedModel:
    """The model of a run and its int8 form; with quantization off, only the model.

    Args:
        config: quantization, and the batch of tests.
        model: as it was built.
        shape: channels, height, width.
        reduce_range: whether weights get 7 bits; the same on all ranks.
    """

    def __init__(
        self, config: TrialConfig, model: nn.Module, shape: tuple[int, int, int], *, reduce_range: bool = False
    ) -> None:
        self._config, self._built, self._shape, self._reduce_range = config, model, shape, reduce_range
        # With a single sample, the export would treat the batch size as a constant.
        self._example = torch.zeros(2, *shape)
        self.trained = model
        """The model to train: under qat with rounding simulated."""
        if config.quantization == "qat":
            self.trained = prepare_for_training(model, self._example, reduce_range=reduce_range)
        self.converted: nn.Module | None = None
        self.seconds = 0.0
        """Time spent on conversion and compilation."""

    def forward(self) -> Forward:
        """The current weights in int8, compiled for batches of tests."""
        config, began = self._config, time.perf_counter()
        # In training mode, the converted model would be compiled a second time at the first test.
        self.trained.eval()
        self.converted = to_int8(
            self.trained, config.quantization, self._example, self._calibration(), reduce_range=self._reduce_range
        )
        batch = config.test_batch_per_rank or config.batch_per_rank
        assert batch is not None
        forward = compiled_for(self.converted, batch)
        with torch.inference_mode():
            forward(torch.zeros(batch, *self._shape))
        self.seconds += time.perf_counter() - began
        return forward

    def fp32(self) -> nn.Module:
        """The current weights in the model without simulated rounding, in eval mode."""
        if self.trained is not self._built:
            weights = dict(self.trained.named_parameters()) | dict(self.trained.named_buffers())
            self._built.load_state_dict({name: weights[name].detach() for name in self._built.state_dict()})
        return self._built.eval()

    def _calibration(self) -> Iterator[Tensor]:
        """Training images to observe activations over: equal on every rank, so that all have the same int8 model."""
        config = self._config
        if config.quantization != "static":
            yield self._example
            return
        data = load_decoded(config.dataset, config.data_dir, config.image_size)
        batch = config.batch_per_rank
        assert batch is not None
        chosen = np.arange(len(data.train_labels))
        if config.train_samples is not None:
            chosen = chosen_by_class(data.train_labels, config.train_samples)
        trained_on = chosen[hold_out(len(chosen), config)[0].numpy()]
        # Spread over the data set, since an image folder is sorted by class.
        count = min(CALIBRATION_BATCHES * batch, len(trained_on))
        samples = trained_on[np.linspace(0, len(trained_on) - 1, count).astype(int)]
        for start in range(0, count, batch):
            yield normalize(torch.from_numpy(data.train_images[samples[start : start + batch]]))


def prepare_for_training(model: nn.Module, example: Tensor, *, reduce_range: bool = False) -> nn.Module:
    """The model with int8 rounding simulated in training (quantization-aware training); parameters keep their names."""
    with warnings.catch_warnings(action="ignore"):
        from torchao.quantization.pt2e import allow_exported_model_train_eval
        from torchao.quantization.pt2e.quantize_pt2e import prepare_qat_pt2e

        prepared: nn.Module = prepare_qat_pt2e(
            _exported(model.train(), example), _quantizer("qat", reduce_range=reduce_range)
        )
        allow_exported_model_train_eval(prepared)
    return prepared


def to_int8(
    model: nn.Module, kind: str, example: Tensor, calibration: Iterable[Tensor], *, reduce_range: bool = False
) -> nn.Module:
    """The int8 form of a trained model, in eval mode; the model itself is not changed.

    Args:
        model: the trained model; for qat, the result of `prepare_for_training`.
        kind: qat, static or dynamic.
        example: a batch, for the export.
        calibration: batches to observe activations over.
        reduce_range: whether weights get 7 bits; that of qat is decided by `prepare_for_training`.
    """
    with warnings.catch_warnings(action="ignore"):
        from torchao.quantization.pt2e import allow_exported_model_train_eval
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

        if kind == "qat":
            # A copy: evaluation would update the observers, so test images would change the ranges.
            prepared = copy.deepcopy(model)
        else:
            quantizer = _quantizer(kind, reduce_range=reduce_range)
            prepared = prepare_pt2e(_exported(copy.deepcopy(model).eval(), example), quantizer)
            allow_exported_model_train_eval(prepared)
            prepared.eval()
            with torch.no_grad():
                for images in calibration:
                    prepared(images)
        converted: nn.Module = convert_pt2e(prepared)
        allow_exported_model_train_eval(converted)
        converted.eval()  # returns None for an exported model
        return converted


def compiled_for(model: nn.Module, batch: int) -> Forward:
    """The model compiled for batches of one size; a shorter batch is padded, and the padding cut off again."""
    forward: Any = torch.compile(model, dynamic=False)

    def run(images: Tensor) -> Tensor:
        missing = batch - len(images)
        padded = images if not missing else torch.cat([images, images[:1].expand(missing, *images.shape[1:])])
        with inductor_freezing(), warnings.catch_warnings(action="ignore"):
            logits: Tensor = forward(padded)
        return logits[: len(images)]

    return run


def _exported(model: nn.Module, example: Tensor) -> nn.Module:
    # Any batch size, since the last batch is shorter.
    batch = {0: torch.export.Dim.DYNAMIC}
    exported: nn.Module = torch.export.export(model, (example,), dynamic_shapes=(batch,), strict=False).module()
    return exported


def _quantizer(kind: str, *, reduce_range: bool) -> Any:
    """Settings of torchao for a kind of quantization.

    Activations are 0 to 255. Without VNNI, kernels add two products of an activation and a weight in 16 bits, and
    2 x 255 x 64 is the largest sum that fits: with `reduce_range` weights are -64 to 63. torchao's own `reduce_range`
    halves the activations instead. But compiled kernels do not clip them at 127. So they overflow again, and do not
    compute what the converted model does: logits of `qat` on the digits data set differed by up to 0.4, here by 5e-4.
    """
    from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import (
        X86InductorQuantizer,
        get_default_x86_inductor_quantization_config,
    )

    settings = get_default_x86_inductor_quantization_config(is_qat=kind == "qat", is_dynamic=kind == "dynamic")
    if reduce_range:
        settings = replace(settings, weight=replace(settings.weight, quant_min=-64, quant_max=63))
    if kind == "dynamic":
        return X86InductorQuantizer().set_module_type_qconfig(nn.Linear, settings)
    return X86InductorQuantizer().set_global(settings)


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """The weights to save: of a converted model, without the fp32 weights that its graph no longer uses."""
    state = model.state_dict()
    if not isinstance(model, torch.fx.GraphModule):
        return state
    used = {node.target for node in model.graph.nodes if node.op == "get_attr"}
    return {name: value for name, value in state.items() if name in used}


def checkpoint_bytes(model: nn.Module) -> int:
    """Size of the model's weights as a file of `torch.save`."""
    file = io.BytesIO()
    torch.save(weights_of(model), file)
    return file.tell()


def latency_ms(forward: Forward, images: Tensor) -> tuple[float, float]:
    """Median and 95th percentile of a forward pass, in milliseconds, after a warm-up."""
    times = []
    with torch.inference_mode():
        for number in range(_WARMUP_PASSES + _TIMED_PASSES):
            began = time.perf_counter()
            forward(images)
            synchronize(images.device)
            if number >= _WARMUP_PASSES:
                times.append((time.perf_counter() - began) * 1e3)
    p50, p95 = np.percentile(times, [50, 95])
    return float(p50), float(p95)


def measure_inference(fp32: nn.Module, int8: nn.Module | None, images: Tensor) -> dict[str, float]:
    """Latency and checkpoint size of the fp32 model, eager and compiled, and of the int8 model if there is one.

    Args:
        fp32: the trained model.
        int8: its converted form.
        images: the batch to time.
    """
    fp32 = fp32.eval()
    forwards: dict[str, Forward] = {"fp32_eager": fp32, "fp32_compiled": compiled_for(fp32, len(images))}
    metrics: dict[str, float] = {"fp32_checkpoint_bytes": checkpoint_bytes(fp32)}
    if int8 is not None:
        forwards["int8_compiled"] = compiled_for(int8, len(images))
        metrics["int8_checkpoint_bytes"] = checkpoint_bytes(int8)
    for name, forward in forwards.items():
        metrics[f"{name}_ms_p50"], metrics[f"{name}_ms_p95"] = latency_ms(forward, images)
    return metrics
