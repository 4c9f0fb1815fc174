"""Work that was done with other data is not done: each workload says which data a run reads, and what they contain."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from dmls_ray.config.options import Options
from dmls_ray.config.schema import Schema
from dmls_ray.execution.identities import Identities
from dmls_ray.execution.planning import finished_run_ids, make_plan
from dmls_ray.records.identity import Identity
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.training.rank import Emit, RankInfo
from dmls_ray.util.errors import DataError
from dmls_ray.workloads import data_check, registry
from dmls_ray.workloads.base import Workload
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.workload import ClassificationWorkload
from dmls_ray.workloads.data_check import check_data
from tests.new_processes import run_ranks
from tests.workloads.classification.data.samples import READ_ARRAYS, write_arrays, write_folder


def work_is_done(workload: Workload, schema: Schema, axes: dict[str, Any], records: list[RunRecord]) -> bool:
    """Whether a new call of the sweep finds its one run done; appends its record if there is none."""
    plan = make_plan(axes, schema=schema, repeats=1)
    (run,) = plan.runs
    identities = Identities(workload)
    if not records:
        records.append(
            RunRecord(
                run_id=run.run_id,
                trial_id=run.trial_id,
                repeat=0,
                order=0,
                order_seed=0,
                seed=0,
                outcome=Outcome.OK,
                code=dict(identities.of(run).code),
                data=dict(identities.of(run).data),
            )
        )
    return bool(finished_run_ids(plan, records, Options(), identities))


def images_are_done(records: list[RunRecord], **axes: Any) -> bool:
    workload = ClassificationWorkload()
    return work_is_done(workload, workload.schema(), {"batch_per_rank": 8, **axes}, records)


def test_an_edited_image_makes_the_work_on_its_folder_undone_and_undone_work_is_done_again_when_it_is_restored(
    tmp_path: Path,
) -> None:
    write_folder(tmp_path)
    records: list[RunRecord] = []
    axes = {"dataset": "image_folder", "data_dir": str(tmp_path)}
    assert images_are_done(records, **axes)
    assert images_are_done(records, **axes)

    image = tmp_path / "train" / "cat" / "0000.jpg"
    before = image.read_bytes()
    Image.new("RGB", (8, 8)).save(image)
    assert not images_are_done(records, **axes)
    image.write_bytes(before)
    assert images_are_done(records, **axes)


def test_data_that_are_not_on_this_machine_are_no_reason_to_run_again(tmp_path: Path) -> None:
    for dataset in ("mnist", "image_folder"):
        records: list[RunRecord] = []
        assert images_are_done(records, dataset=dataset, data_dir=str(tmp_path))
        assert records[0].data == {}
    assert not list(tmp_path.iterdir()), "nothing is downloaded"


def test_an_edited_file_of_a_user_defined_data_set_makes_the_work_on_it_undone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "arrays_in_folder.py").write_text(READ_ARRAYS)
    monkeypatch.syspath_prepend(tmp_path)
    folder, other = write_arrays(tmp_path / "data"), write_arrays(tmp_path / "other")
    records: list[RunRecord] = []
    axes = {"dataset": "arrays_in_folder:data", "data_dir": str(folder)}
    assert images_are_done(records, **axes)
    write_arrays(folder, other_label=True)
    assert not images_are_done(records, **axes)
    assert records[0].data.keys() == {f"arrays_in_folder:data in {folder}"}
    assert records[0].data.keys() != ClassificationWorkload().data_sets(config(data_dir=str(other))).keys()


def config(**changes: Any) -> TrialConfig:
    return TrialConfig(**{"dataset": "image_folder", "batch_per_rank": 8, **changes})


def test_data_sets_that_their_names_fix_leave_the_work_of_earlier_versions_done() -> None:
    for dataset in ("digits", "synthetic:train=5"):
        assert ClassificationWorkload().data_sets(config(dataset=dataset)) == {}


def train(config: dict[str, Any], rank: RankInfo, emit: Emit) -> None: ...


def test_an_edited_file_that_a_field_of_a_training_function_names_makes_its_work_undone(tmp_path: Path) -> None:
    corpus, log = tmp_path / "corpus.txt", tmp_path / "log.txt"
    corpus.write_text("one")
    axes = {"data_file": str(corpus), "log_file": str(log), "data_kind": "text"}
    workload = registry.workload_of_function(train, axes)
    records: list[RunRecord] = []
    assert work_is_done(workload, workload.schema(), axes, records)
    log.write_text("what the run wrote")
    assert work_is_done(workload, workload.schema(), axes, records)
    corpus.write_text("two")
    assert not work_is_done(workload, workload.schema(), axes, records)
    assert records[0].data.keys() == {f"data_file={corpus}"}


def test_an_edited_picture_makes_the_work_on_a_folder_of_pictures_undone(tmp_path: Path) -> None:
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    workload = registry.workload("grayscale")
    records: list[RunRecord] = []
    axes = {"pictures": str(tmp_path)}
    assert work_is_done(workload, workload.schema(), axes, records)
    Image.new("RGB", (8, 8), (9, 9, 9)).save(tmp_path / "a.png")
    assert not work_is_done(workload, workload.schema(), axes, records)


def test_a_rank_refuses_data_that_the_sweep_did_not_begin_with_and_names_its_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_check, "_found", {})
    write_folder(tmp_path)
    workload, trial = ClassificationWorkload(), config(data_dir=str(tmp_path))
    ((name, arguments),) = workload.data_sets(trial).items()
    right = Identity(data={name: workload.fingerprint(*arguments)})
    checked = check_data(workload, trial, RankInfo(identity=right, instruments_s=1.0))
    assert checked.instruments_s > 1.0

    wrong = RankInfo(identity=Identity(data={name: "another"}), machine="host-2")
    with pytest.raises(
        DataError, match="^image_folder in .* on machine host-2 is not what this sweep began with; copy it"
    ):
        check_data(workload, trial, wrong)
    check_data(workload, trial, RankInfo(identity=Identity(data={})))


def test_a_rank_may_download_what_the_driver_did_not_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data_check, "_found", {})
    trial = config(dataset="mnist", data_dir=str(tmp_path))
    ((name, _),) = ClassificationWorkload().data_sets(trial).items()
    check_data(ClassificationWorkload(), trial, RankInfo(identity=Identity(data={name: "of the driver"})))


def check_slowly(config: TrialConfig, rank: RankInfo, emit: Emit) -> dict[str, Any]:
    """The time of the check of data that rank 1 reads for half a second."""

    class Slow(ClassificationWorkload):
        def data_sets(self, config: TrialConfig) -> dict[str, tuple[Any, ...]]:
            return {"images": ("images",)}

        def fingerprint(self, *arguments: Any) -> str:
            time.sleep(0.5 * rank.rank)
            return "as before"

    return {"run": {}, "instruments_s": check_data(Slow(), config, rank).instruments_s}


def test_a_rank_that_has_read_its_data_before_the_others_waits_for_them_in_no_time_of_the_run() -> None:
    trial = TrialConfig(dataset="digits", batch_per_rank=8, world_size=2, device="cpu")
    results = run_ranks(trial, train=check_slowly, identity=Identity(data={"images": "as before"}))
    assert [item.outcome for item in results] == ["ok", "ok"], results[0].traceback
    assert all(item.values["instruments_s"] > 0.3 for item in results)
