"""By what ranks are compared."""

from __future__ import annotations

import torch

from dmls_ray.training.observed.first_batches import FirstBatches


def test_four_batches_of_the_loader_are_compared_or_of_the_model_where_it_trains_parts() -> None:
    batches = FirstBatches()
    for number in range(6):
        batches.model_given([torch.full((2,), float(number))])
    of_model = batches.digests(trains_part=False)
    batches.loader_read([torch.zeros(4)])
    assert len(set(of_model)) == 4
    assert batches.digests(trains_part=True) == of_model
    assert len(batches.digests(trains_part=False)) == 1
