"""One file adds a model or a data set."""

from __future__ import annotations

import pytest

from dmls_ray.workloads.classification import datasets
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.workload import ClassificationWorkload


def test_options_of_a_data_set_without_options_are_not_built_in() -> None:
    assert datasets.builtin_dataset("digits:all") is None
    assert datasets.builtin_dataset("synthetic:train=8") is not None


@pytest.mark.parametrize(
    ("dataset", "seconds"),
    [
        ("digits", 2 * 45 * 0.003),
        ("synthetic:train=64", 2 * 2 * 0.003),
        ("synthetic", 2 * 64 * 0.003),
        ("image_folder", None),
        ("module:function", None),
    ],
)
def test_the_estimate_follows_the_number_of_training_samples(dataset: str, seconds: float | None) -> None:
    config = TrialConfig(dataset=dataset, batch_per_rank=32, epochs=2)
    assert ClassificationWorkload().estimate_s(config) == (None if seconds is None else pytest.approx(seconds))


def test_each_decoded_data_set_is_prepared_once() -> None:
    configs = [TrialConfig(batch_per_rank=size, loader=name) for size in (8, 16) for name in ("resident", "dataloader")]
    assert ClassificationWorkload().cached_data(configs) == (("digits", None, None),)
