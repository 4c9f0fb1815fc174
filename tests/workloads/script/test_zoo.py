"""Training loops of many shapes: what is stated of each is what it says of itself, or nothing is stated."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.workloads.script.conftest import Runner
from tests.workloads.script.zoo.zoo import FOLDER, SCRIPTS, STEPS, Seen, ranks_of, run_zoo, together, truth_of

ABSENT = frozenset(
    {
        # tokens or sequences without a loader: which dimension is the batch?
        "estimate_loss_without_loader",
        "memory_mapped_tokens_micro_steps",
        "sequences_time_first_sliced",
        "token_buckets_generator",
        "word_language_model_by_hand",
        # rows of the model that are no samples, without a loader
        "embedding_bag_without_loader",
        "facts_with_corrupted_ones",
        "full_batch_graph_edge_list",
        "graphs_without_loader",
        "list_of_dicts_without_loader",
        "neighbours_without_loader",
        # several tensors, models or optimizers, without a loader
        "actor_critic_of_several_environments",
        "collocation_points",
        "rays_in_chunks",
        "toy_gan_without_loader",
        "maml_single_task",
        "reinforce_episodes",
        "reptile",
        "samples_without_batch",
        "sac_two_critics",
        "td3_delayed_actor",
        "character_rnn",
        "noise_levels",
        # two trainings, of which one lies between the steps of the other
        "probe_of_features",
        # neither a loader nor a module
        "tensors_without_modules_or_loader",
        "batch_twice_for_consistency",
        "most_batches_thrown_away",
        # loader and model contradict each other
        "documents_packed",
        "samples_left_out_by_collate",
        "link_prediction",
        "purchases_with_negatives",
        "samples_of_a_batch_in_a_loop",
        "augmentation_doubles",
        "combined_loaders",
        "data_set_of_batches",
        "maml",
        "prompts_then_ppo",
        "rehearsal_apart",
        "rehearsal_memory",
        "replays_after_batch",
        "small_loader_cycled",
    }
)
"""Shapes whose samples may be unknown."""
TIMES_UNKNOWN = {
    "attack_of_inputs": "test",
    "cross_validation": "test",
    "dagger_growing_data": "training",
    "ddp_distributed_sampler": "test",
    "deep_cluster": "training",
    "estimate_loss_without_loader": "test",
    "full_batch_graph_convolution": "test",
    "pictures_drawn_now_and_then": "test",
    "swa_with_update_bn": "test",
    "training_data_tested": "test",
}
"""Shapes of which it is not seen whether a time is a test, and what their owner calls it."""
COUNTS = 0.01
TIMES = 0.15
"""Relative differences up to which numbers are equal."""
SWEPT = (
    "batch_list_of_dicts", "sequences_time_major", "graphs_nodes_first", "loader_one_ahead", "echo_four_steps",
    "validation_each_epoch_eval_mode", "distributed_validation", "ddp_without_sampler", "dispatched_batches",
    "tensor_parallel_by_hand",
)  # fmt: skip
"""Scripts that are swept through Ray, too."""


@pytest.mark.parametrize(
    "name",
    # Every fourth one is enough in each run of all tests.
    [pytest.param(name, marks=[pytest.mark.slow] * bool(place % 4)) for place, name in enumerate(SCRIPTS)],
)
def test_what_is_stated_of_a_script_is_what_it_says_of_itself(run: Runner, name: str) -> None:
    for _ in range(3):  # a busy machine may halt a script between the end of its step and its note of it
        seen = run_zoo(run, name)
        check_counts(seen, name)
        if times_are_right(seen, name):
            return
    pytest.fail(f"stated {seen.stated}, and right is {seen.truth}")


def check_counts(seen: Seen, name: str) -> None:
    stated = seen.stated.samples_per_step
    if stated is None:
        assert seen.record.facts["samples_unknown"]
        assert name in ABSENT, seen.record.facts["samples_unknown"]
    else:
        assert stated == pytest.approx(seen.truth.samples_per_step, rel=COUNTS), seen.record.facts


def times_are_right(seen: Seen, name: str) -> bool:
    stated, truth = seen.stated, seen.truth
    if stated.step_ms is None:
        assert seen.record.facts["time_unknown"]
        assert stated.samples_per_s is None
        return name in TIMES_UNKNOWN
    has_rate = stated.samples_per_s is None or stated.samples_per_s == pytest.approx(truth.samples_per_s, rel=TIMES)
    return has_rate and stated.step_ms == pytest.approx(truth.step_ms, rel=TIMES)


@pytest.mark.parametrize("name", ["dagger_growing_data", "training_data_tested", "attack_of_inputs"])
def test_times_are_right_once_the_user_says_what_looks_like_a_test(run: Runner, name: str) -> None:
    for _ in range(3):
        seen = run_zoo(run, name, TIMES_UNKNOWN[name])
        check_counts(seen, name)
        if seen.stated.step_ms == pytest.approx(seen.truth.step_ms, rel=TIMES):
            return
    pytest.fail(f"stated {seen.stated}, and right is {seen.truth}")


def test_at_most_a_third_of_the_shapes_may_be_unknown() -> None:
    unknown = ABSENT | TIMES_UNKNOWN.keys()
    assert set(SCRIPTS) >= unknown
    assert 3 * len(unknown) <= len(SCRIPTS)


@pytest.mark.slow
@pytest.mark.parametrize("name", SWEPT)
def test_a_sweep_through_ray_states_the_same(tmp_path: Path, name: str) -> None:
    world_size = ranks_of(name)
    sweep = ["sweep", str(FOLDER / f"{name}.py"), "--env", f"ZOO_TRUTH={tmp_path / 'truth'}", "--out", "out"]
    length = ["--steps", str(STEPS), "--repeats", "1", "--threads-per-rank", "1", "--world-size", str(world_size)]
    command = [sys.executable, "-m", "dmls_ray", *sweep, *length]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = (tmp_path / "out" / "runs.jsonl").read_text(encoding="utf-8").splitlines()
    record = json.loads(line)
    counted = int(record["metrics"]["counted_steps"])
    truth = together([truth_of(tmp_path / f"truth{rank}", counted) for rank in range(world_size)])
    assert record["metrics"]["samples_per_step"] == pytest.approx(truth.samples_per_step, rel=COUNTS)
    assert record["metrics"]["samples_per_s"] == pytest.approx(truth.samples_per_s, rel=2 * TIMES)
