"""int8 models by torchao's PT2E flow: export, observe, convert, and compile with Inductor for the processor.

qat       trained with rounding simulated, as report C; converted after every epoch and tested as int8
static    trained in fp32; ranges of activations are observed over some training batches, then converted
dynamic   trained in fp32; linear layers are converted, and activations are measured as they come
"""

from __future__ import annotations

import copy
import importlib.util
import io
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dmls_ray.records.provenance import has_cpp_compiler
from dmls_ray.training.clocks import synchronize
from dmls_ray.training.data.cache import decoded
from dmls_ray.training.data.loaders import normalized
from dmls_ray.training.data.sharding import hold_out
from dmls_ray.util.errors import UnavailableError
from dmls_ray.workloads.classification.config import TrialConfig

CALIBRATION_BATCHES = 16
"""Training batches over which static quantization observes activations."""

_TIMED_PASSES = 200
_WARM_PASSES = 20

Forward = Callable[[Tensor], Tensor]


def check_available(config: TrialConfig) -> None:
    """Refuse where int8 cannot be had.

    Raises:
        UnavailableError: torchao or a C++ compiler is missing.
    """
    if config.quantization == "off" and config.inference_batch is None:
        return
    if config.quantization != "off" and importlib.util.find_spec("torchao") is None:
        raise UnavailableError(f"quantization={config.quantization} needs torchao: pip install torchao.")
    if not has_cpp_compiler():
        name = "inference_batch" if config.quantization == "off" else "quantization"
        raise UnavailableError(
            f"{name}={getattr(config, name)} compiles for this processor, and no C++ compiler is on the path; install "
            f"g++, say, or leave {name} out."
        )


class Int8:
    """The int8 side of a run; with quantization off, nothing but the model as it is.

    Args:
        config: quantization, and the batch of tests.
        model: as it was built.
        shape: channels, height, width.
    """

    def __init__(self, config: TrialConfig, model: nn.Module, shape: tuple[int, int, int]) -> None:
        self._config, self._built, self._shape = config, model, shape
        # An export that has seen one sample only takes a batch for a constant.
        self._example = torch.zeros(2, *shape)
        self.trained = prepare_for_training(model, self._example) if config.quantization == "qat" else model
        """What is trained: under qat the model with rounding simulated."""
        self.converted: nn.Module | None = None
        self.seconds = 0.0
        """Spent on converting and compiling."""

    def forward(self) -> Forward:
        """The present weights in int8, compiled for batches of tests."""
        config, began = self._config, time.perf_counter()
        # Else the converted form would be one for training, and be compiled once more at the first test.
        self.trained.eval()
        self.converted = to_int8(self.trained, config.quantization, self._example, self._calibration())
        batch = config.test_batch_per_rank or config.batch_per_rank
        assert batch is not None
        forward = compiled_for(self.converted, batch)
        with torch.inference_mode():
            forward(torch.zeros(batch, *self._shape))
        self.seconds += time.perf_counter() - began
        return forward

    def fp32(self) -> nn.Module:
        """The present weights in the model as it was built, in eval mode."""
        if self.trained is not self._built:
            weights = dict(self.trained.named_parameters()) | dict(self.trained.named_buffers())
            own = self._built.state_dict()
            self._built.load_state_dict({name: weights[name].detach() for name in own})
        return self._built.eval()

    def _calibration(self) -> Iterator[Tensor]:
        """Training images to observe activations over: the same on every rank, so that all have one int8 model."""
        config = self._config
        if config.quantization != "static":
            yield self._example
            return
        data, batch = decoded(config.dataset, config.data_dir, config.image_size), config.batch_per_rank
        assert batch is not None
        held_out = hold_out(len(data.train_labels), config)
        trained_on = held_out[0].numpy() if held_out else np.arange(len(data.train_labels))
        # Spread over the data set: an image folder lies sorted by class.
        count = min(CALIBRATION_BATCHES * batch, len(trained_on))
        places = trained_on[np.linspace(0, len(trained_on) - 1, count).astype(int)]
        for start in range(0, count, batch):
            yield normalized(torch.from_numpy(data.train_images[places[start : start + batch]]))


def prepare_for_training(model: nn.Module, example: Tensor) -> nn.Module:
    """The model with int8 rounding simulated in training (quantization-aware training); parameters keep their names."""
    with _quiet():
        from torchao.quantization.pt2e import allow_exported_model_train_eval
        from torchao.quantization.pt2e.quantize_pt2e import prepare_qat_pt2e

        prepared: nn.Module = prepare_qat_pt2e(_exported(model.train(), example), _quantizer("qat"))
        allow_exported_model_train_eval(prepared)
    return prepared


def to_int8(model: nn.Module, kind: str, example: Tensor, calibration: Iterable[Tensor]) -> nn.Module:
    """The int8 form of a trained model, in eval mode; the model itself stays as it is.

    Args:
        model: what was trained; for qat, what `prepare_for_training` gave.
        kind: qat, static or dynamic.
        example: a batch, for the export.
        calibration: batches to observe activations over.
    """
    with _quiet():
        from torchao.quantization.pt2e import allow_exported_model_train_eval
        from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e

        if kind == "qat":
            # A copy: evaluation would move the observers, and test images leak into the ranges.
            prepared = copy.deepcopy(model)
        else:
            prepared = prepare_pt2e(_exported(copy.deepcopy(model).eval(), example), _quantizer(kind))
            allow_exported_model_train_eval(prepared)
            prepared.eval()
            with torch.no_grad():
                for images in calibration:
                    prepared(images)
        converted: nn.Module = convert_pt2e(prepared)
        allow_exported_model_train_eval(converted)
        converted.eval()  # gives nothing back in an exported model
        return converted


def compiled_for(model: nn.Module, batch: int) -> Forward:
    """The model compiled for batches of one size; a shorter one is filled up, and the filling cut off again."""
    forward: Any = torch.compile(model, dynamic=False)

    def run(images: Tensor) -> Tensor:
        short = batch - len(images)
        whole = images if not short else torch.cat([images, images[:1].expand(short, *images.shape[1:])])
        with torch._inductor.config.patch(freezing=True), _quiet():
            logits: Tensor = forward(whole)
        return logits[: len(images)]

    return run


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """What a checkpoint of the model needs: of a converted one, without fp32 weights that its graph uses no more."""
    state = model.state_dict()
    if not isinstance(model, torch.fx.GraphModule):
        return state
    used = {node.target for node in model.graph.nodes if node.op == "get_attr"}
    return {name: value for name, value in state.items() if name in used}


def checkpoint_bytes(model: nn.Module) -> int:
    """Size of the file that `torch.save` makes of the model's weights."""
    file = io.BytesIO()
    torch.save(weights_of(model), file)
    return file.tell()


def latency_ms(forward: Forward, images: Tensor) -> tuple[float, float]:
    """Median and 95th percentile of a forward pass, in milliseconds, after a warm-up."""
    times = []
    with torch.inference_mode():
        for number in range(_WARM_PASSES + _TIMED_PASSES):
            began = time.perf_counter()
            forward(images)
            synchronize(images.device)
            if number >= _WARM_PASSES:
                times.append((time.perf_counter() - began) * 1e3)
    p50, p95 = np.percentile(times, [50, 95])
    return float(p50), float(p95)


def measure_inference(
    fp32: nn.Module, int8: nn.Module | None, images: Tensor, profiles: Path | None
) -> dict[str, float]:
    """Latency and checkpoint size of the fp32 model, eager and compiled, and of the int8 model where there is one.

    Args:
        fp32: the trained model as it was built.
        int8: its converted form.
        images: the batch to time.
        profiles: folder for PyTorch's profiler tables, `profile_fp32.txt` and `profile_int8.txt`.
    """
    fp32 = fp32.eval()
    forwards: dict[str, Forward] = {"fp32_eager": fp32, "fp32_compiled": compiled_for(fp32, len(images))}
    told: dict[str, float] = {"fp32_checkpoint_bytes": checkpoint_bytes(fp32)}
    if int8 is not None:
        forwards["int8_compiled"] = compiled_for(int8, len(images))
        told["int8_checkpoint_bytes"] = checkpoint_bytes(int8)
    for name, forward in forwards.items():
        told[f"{name}_ms_p50"], told[f"{name}_ms_p95"] = latency_ms(forward, images)
        if profiles is not None and name != "fp32_eager":
            _profile(forward, images, profiles / f"profile_{name.partition('_')[0]}.txt")
    return told


def _profile(forward: Forward, images: Tensor, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    kinds = torch.profiler.ProfilerActivity
    activities = [kinds.CPU, kinds.CUDA] if images.is_cuda else [kinds.CPU]
    with torch.profiler.profile(activities=activities) as profiler, torch.inference_mode():
        for _ in range(10):
            forward(images)
    path.write_text(profiler.key_averages().table(sort_by="self_cpu_time_total", row_limit=25) + "\n")


def _exported(model: nn.Module, example: Tensor) -> nn.Module:
    # The batch may be of any size: the last one is shorter.
    batch = {0: torch.export.Dim.DYNAMIC}
    exported: nn.Module = torch.export.export(model, (example,), dynamic_shapes=(batch,), strict=False).module()
    return exported


def _quantizer(kind: str) -> Any:
    from torchao.quantization.pt2e.quantizer.x86_inductor_quantizer import (
        X86InductorQuantizer,
        get_default_x86_inductor_quantization_config,
    )

    settings = get_default_x86_inductor_quantization_config(is_qat=kind == "qat", is_dynamic=kind == "dynamic")
    if kind == "dynamic":
        return X86InductorQuantizer().set_module_type_qconfig(nn.Linear, settings)
    return X86InductorQuantizer().set_global(settings)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings that export and conversion give about themselves."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
