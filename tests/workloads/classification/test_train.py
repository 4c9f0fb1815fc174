"""What a rank of a classification run does besides training."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dmls_ray.workloads.classification.config import TrialConfig
from tests.conftest import SMALL
from tests.new_processes import run_inline


def flat(shape: tuple[int, int, int], classes: int) -> nn.Module:
    """A model without convolutions, which no compiler may look into."""

    class Flat(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(64, classes)

        @torch.compiler.disable
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return self.layer(images.flatten(1))

    return Flat()


@pytest.mark.parametrize(
    ("model", "changes", "said"),
    [
        ("digits_convnet", {"memory_format": "channels_last"}, None),
        ("flat", {}, None),
        ("flat", {"memory_format": "channels_last"}, "memory_format=channels_last (no weight has its strides)"),
        pytest.param("flat", {"compile": "default"}, "compile=default (no graph was compiled)", marks=pytest.mark.slow),
    ],
)  # fmt: skip
def test_settings_without_effect_are_named(model: str, changes: dict[str, str], said: str | None) -> None:
    name = f"{__name__}:flat" if model == "flat" else model
    result = run_inline(TrialConfig(model=name, dataset=SMALL, batch_per_rank=8, epochs=1, device="cpu", **changes))
    assert result.outcome == "ok", result.reason
    assert result.run.facts.get("without_effect") == said
