from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dmls_ray.training.sharding import epoch_order, evaluation_shards, micro_batches, steps_per_epoch
from dmls_ray.workloads.classification.config import TrialConfig

configs = st.builds(
    TrialConfig,
    batch_per_rank=st.integers(1, 9),
    world_size=st.integers(1, 5),
    accum_steps=st.integers(1, 4),
    test_batch_per_rank=st.none() | st.integers(1, 9),
)


@given(config=configs, samples=st.integers(1, 200))
def test_every_training_sample_counts_once_an_epoch_and_all_ranks_take_equal_steps(
    config: TrialConfig, samples: int
) -> None:
    ranks = [micro_batches(samples, config, rank) for rank in range(config.world_size)]
    taken = [index for passes in ranks for item in passes for index in range(item.start, item.stop) if item.count]
    assert sorted(taken) == list(range(samples))
    assert len({len(passes) for passes in ranks}) == 1
    ends = [[item.ends_step for item in passes] for passes in ranks]
    assert all(end == ends[0] for end in ends)
    assert sum(ends[0]) == steps_per_epoch(samples, config)
    assert ends[0][-1]


@given(config=configs, samples=st.integers(1, 200))
def test_scales_make_each_step_the_mean_over_the_samples_it_really_has(config: TrialConfig, samples: int) -> None:
    weights = [0.0] * samples
    for rank in range(config.world_size):
        for item in micro_batches(samples, config, rank):
            for index in range(item.start, item.stop):
                weights[index] += item.scale / config.world_size  # DDP averages over the ranks
    for start in range(0, samples, config.global_batch):
        window = weights[start : start + config.global_batch]
        assert window == pytest.approx([1 / len(window)] * len(window))


@given(config=configs, samples=st.integers(1, 200))
def test_a_step_takes_the_same_samples_at_any_world_size(config: TrialConfig, samples: int) -> None:
    def steps(of: TrialConfig) -> list[set[int]]:
        found: list[set[int]] = []
        for rank in range(of.world_size):
            step = 0
            for item in micro_batches(samples, of, rank):
                if len(found) <= step:
                    found.append(set())
                if item.count:
                    found[step] |= set(range(item.start, item.stop))
                step += item.ends_step
        return found

    assert steps(config) == steps(TrialConfig(global_batch=config.global_batch))


@given(config=configs, samples=st.integers(1, 200))
def test_every_test_sample_is_on_exactly_one_rank(config: TrialConfig, samples: int) -> None:
    shards = [list(evaluation_shards(samples, config, rank)) for rank in range(config.world_size)]
    indices = torch.arange(samples)
    batches = [[indices[part].tolist() for part in shard] for shard in shards]
    taken = [index for shard in batches for batch in shard for index in batch]
    assert sorted(taken) == list(range(samples))
    limit = config.test_batch_per_rank or config.batch_per_rank
    for shard in batches:
        assert all(len(batch) == limit for batch in shard[:-1])
        assert all(0 < len(batch) <= limit for batch in shard)


@given(world_size=st.integers(1, 5), of_each_class=st.integers(5, 20))
def test_each_rank_tests_all_classes_of_a_split_that_is_sorted_by_class(world_size: int, of_each_class: int) -> None:
    config = TrialConfig(batch_per_rank=3, world_size=world_size)
    labels = torch.arange(4).repeat_interleave(of_each_class)
    for rank in range(world_size):
        parts = [labels[part] for part in evaluation_shards(len(labels), config, rank)]
        counts = torch.cat(parts).bincount(minlength=4)
        assert counts.max() - counts.min() <= 1


def test_the_order_is_a_permutation_that_changes_with_epoch_and_seed() -> None:
    config = TrialConfig(batch_per_rank=4)
    first, second = epoch_order(50, config, 0), epoch_order(50, config, 1)
    assert sorted(first.tolist()) == list(range(50))
    assert not torch.equal(first, second)
    assert not torch.equal(second, epoch_order(50, config.replace(seed=1), 0))
    assert torch.equal(first, epoch_order(50, config.replace(world_size=3), 0))


def test_without_shuffling_samples_keep_their_order() -> None:
    assert epoch_order(5, TrialConfig(batch_per_rank=4, shuffle=False), 3).tolist() == [0, 1, 2, 3, 4]


evaluation_shards.__test__ = False  # type: ignore[attr-defined]  # a function under test, and no test
