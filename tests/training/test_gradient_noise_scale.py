from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from dmls_ray.training.gradient_noise_scale import NoiseMeter
from dmls_ray.training.sharding import MicroBatch
from dmls_ray.workloads.classification.config import TrialConfig
from tests.new_processes import run_inline
from tests.training.test_ddp import compare_noise


def test_short_windows_do_not_count_even_where_their_passes_are_full() -> None:
    # 160 samples are one window of four passes and one of a single full pass.
    trial = TrialConfig(
        model="tests.training.probes:watched",
        dataset="synthetic:shape=1x8x8,classes=4,train=160,test=8,seed=3",
        batch_per_rank=32,
        accum_steps=4,
        epochs=60,
        optimizer="sgd",
        lr=1e-9,
        noise_scale=True,
        device="cpu",
    )
    scales = run_inline(trial, train=compare_noise).run.reported["returned"]
    assert scales["metered"] == pytest.approx(scales["defined"], rel=0.4)


def metered(*norms: float) -> float | None:
    """The noise scale of a meter with two passes per step, local gradients of this size and averages of 0.8 of it."""
    config = TrialConfig(batch_per_rank=2, accum_steps=2, noise_scale=True)
    meter = NoiseMeter(config, torch.device("cpu"))
    weight = nn.Parameter(torch.zeros(1))
    passes = [MicroBatch(0, 2, 2, 0.25, False), MicroBatch(2, 4, 2, 0.25, True)]
    for norm in norms:
        for item in passes:
            meter.begin_pass(item, 1.0)
            weight.grad = torch.tensor([norm * 0.5])
            meter.end_pass([weight], item)
        weight.grad = torch.tensor([norm * 0.8])
        meter.add_averaged([weight])
    reported = meter.read(list)
    other = NoiseMeter(config, torch.device("cpu"))
    other.restore(meter.state())
    assert other.read(list) == reported
    return reported


def test_a_step_that_the_scaler_skips_does_not_spoil_the_others() -> None:
    alone = metered(1.0, 2.0)
    assert alone is not None
    assert metered(math.inf, 1.0, math.nan, 2.0) == alone
    assert metered(math.inf) is None
