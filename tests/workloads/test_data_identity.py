"""Other data make other trials: each workload says which data a run reads, and what they contain."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from dmls_ray.config.identity import Identity
from dmls_ray.config.options import Options
from dmls_ray.execution.planning import plan_of
from dmls_ray.records.run_events import RankResult
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.util.errors import DataError
from dmls_ray.workloads import base, registry
from dmls_ray.workloads.base import Workload, check_data
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.workload import ClassificationWorkload
from tests.new_processes import run_ranks
from tests.workloads.classification.data.samples import write_folder, write_mnist
from tests.workloads.classification.test_config import hash_of


def trial_of(workload: Workload, **axes: Any) -> str:
    """The id of the one trial that a new call of a sweep has."""
    plan, _ = plan_of(axes, Options(repeats=1), workload)
    (run,) = plan.runs
    return run.trial_id


def trial_of_images(**axes: Any) -> str:
    return trial_of(ClassificationWorkload(), batch_per_rank=8, **axes)


def test_an_edited_image_makes_another_trial_and_a_restored_one_the_first(tmp_path: Path) -> None:
    write_folder(tmp_path)
    axes = {"dataset": "image_folder", "data_dir": str(tmp_path)}
    first = trial_of_images(**axes)
    image = tmp_path / "train" / "cat" / "0000.jpg"
    before = image.read_bytes()
    Image.new("RGB", (8, 8)).save(image)
    assert trial_of_images(**axes) != first
    image.write_bytes(before)
    assert trial_of_images(**axes) == first


def test_a_download_changes_no_trial(tmp_path: Path) -> None:
    first = trial_of_images(dataset="mnist", data_dir=str(tmp_path))
    assert not list(tmp_path.iterdir()), "nothing is downloaded"
    write_mnist(tmp_path / "MNIST" / "raw")
    assert trial_of_images(dataset="mnist", data_dir=str(tmp_path)) == first


def config(**changes: Any) -> TrialConfig:
    return TrialConfig(**{"dataset": "image_folder", "batch_per_rank": 8, **changes})


@pytest.mark.parametrize("dataset", ["digits", "synthetic:train=5", "mnist"])
def test_trials_of_data_sets_that_their_names_fix_are_named_by_their_configuration_alone(dataset: str) -> None:
    assert trial_of_images(dataset=dataset) == hash_of(config(dataset=dataset))


def train(config: dict[str, Any], rank: RankInfo, emit: Emit) -> None: ...


def test_an_edited_file_that_a_field_of_a_training_function_names_makes_another_trial(tmp_path: Path) -> None:
    corpus, log = tmp_path / "corpus.txt", tmp_path / "log.txt"
    corpus.write_text("one")
    axes = {"data_file": str(corpus), "log_file": str(log), "data_kind": "text"}
    workload = registry.workload_of_function(train, axes)
    first = trial_of(workload, **axes)
    log.write_text("what the run wrote")
    assert trial_of(workload, **axes) == first
    corpus.write_text("two")
    assert trial_of(workload, **axes) != first


def test_an_edited_picture_makes_another_trial(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    workload = registry.workload("grayscale")
    first = trial_of(workload, pictures=str(tmp_path))
    Image.new("RGB", (8, 8), (9, 9, 9)).save(tmp_path / "a.png")
    assert trial_of(workload, pictures=str(tmp_path)) != first


def test_a_rank_refuses_data_that_the_sweep_did_not_begin_with_and_names_its_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "_found", {})
    write_folder(tmp_path)
    workload, trial = ClassificationWorkload(), config(data_dir=str(tmp_path))
    ((name, arguments),) = workload.data_sets(trial).items()
    right = Identity(data={name: workload.fingerprint(*arguments)})
    rank = RankInfo(identity=right)
    check_data(workload, trial, rank)
    assert rank.clock.instruments_s > 0.0

    wrong = RankInfo(identity=Identity(data={name: "another"}), machine="host-2")
    with pytest.raises(
        DataError, match="^image_folder in .* on machine host-2 is not what this sweep began with; copy it"
    ):
        check_data(workload, trial, wrong)
    check_data(workload, trial, RankInfo(identity=Identity(data={})))


def check_slowly(config: TrialConfig, rank: RankInfo, emit: Emit) -> RankResult:
    """The time of the check of data that rank 1 reads for half a second."""

    class Slow(ClassificationWorkload):
        def data_sets(self, config: TrialConfig) -> dict[str, tuple[Any, ...]]:
            return {"images": ("images",)}

        def fingerprint(self, *arguments: Any) -> str:
            time.sleep(0.5 * rank.rank)
            return "as before"

    check_data(Slow(), config, rank)
    return RankResult(metrics={"instruments_s": rank.clock.instruments_s})


def test_a_rank_that_has_read_its_data_before_the_others_waits_for_them_in_no_time_of_the_run() -> None:
    trial = TrialConfig(dataset="digits", batch_per_rank=8, world_size=2, device="cpu")
    results = run_ranks(trial, train=check_slowly, identity=Identity(data={"images": "as before"}))
    assert [item.outcome for item in results] == ["ok", "ok"], results[0].traceback
    assert all(item.values["instruments_s"] > 0.3 for item in results)
