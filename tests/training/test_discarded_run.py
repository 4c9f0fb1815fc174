from __future__ import annotations

import functools
from typing import Any

import pytest
import torch.distributed as dist

from dmls_ray.training.compat import after_each_ddp, ddp_logging_data
from dmls_ray.training.discarded_run import discard_first_run
from dmls_ray.workloads.classification.config import TrialConfig
from tests.new_processes import call_in_new_process, run_inline

TRIAL = TrialConfig(
    dataset="synthetic:shape=1x8x8,classes=4,train=64,test=8", batch_per_rank=8, epochs=2, device="cpu", dropout=0.3,
    model="digits_convnet",
)  # fmt: skip


def _losses(*, discards: bool) -> list[Any]:
    if discards:
        discard_first_run("cpu")
    return [(epoch["train_loss"], epoch["test_loss"]) for epoch in run_inline(TRIAL).run["epochs"]]


def test_it_trains_under_ddp_and_leaves_no_process_group() -> None:
    models: list[Any] = []
    with after_each_ddp(models.append):
        assert 0 < discard_first_run("cpu") < 60
    (model,) = models
    assert ddp_logging_data(model)["avg_backward_comm_time"] > 0
    assert not dist.is_initialized()


def test_a_run_after_it_has_the_losses_of_a_run_without() -> None:
    after, at_once = (call_in_new_process(functools.partial(_losses, discards=discards)) for discards in (True, False))
    assert after == at_once


def test_a_device_that_cannot_be_used_is_left_to_the_runs() -> None:
    with pytest.warns(UserWarning, match="The first run of this process may be slow: .*Error"):
        discard_first_run("cuda:99")
    assert not dist.is_initialized()
