from __future__ import annotations

import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from dmls_ray.launchers.inline import run_inline
from dmls_ray.records.run_events import RankResult
from dmls_ray.training.rank import ArtifactOptions
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.model_builder import build_model
from tests.new_processes import run_ranks
from tests.training.probes import Payload
from tests.training.test_engine import UNEVEN

METRICS = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")


def config(**changes: Any) -> TrialConfig:
    # 13 passes an epoch at world size 1, 7 at world size 2.
    base = {"model": "tests.training.probes:dying_in_mid_epoch", "batch_per_rank": 8, "dataset": UNEVEN, "epochs": 4}
    options = {"augmentation": "flip-crop", "precision": "amp-fp16", "lr_schedule": "cosine", "device": "cpu"}
    return TrialConfig(**{**base, **options, **changes})


def losses(result: RankResult) -> list[tuple[float, ...]]:
    return [tuple(epoch[name] for name in METRICS) for epoch in result.run["epochs"]]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    state: dict[str, torch.Tensor] = torch.load(folder / "weights.pt", weights_only=True)
    return state


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "die_in_pass"),
    [
        ({"world_size": 2, "zero_redundancy": True, "noise_scale": True}, 18),
        ({"loader": "dataloader"}, 30),
        ({"loader": "dataloader", "dataset": "tests.training.probes:turned_floats", "augmentation": "none"}, 30),
    ],
)
def test_a_run_killed_in_mid_epoch_ends_bit_for_bit_as_an_undisturbed_one(
    changes: dict[str, Any], die_in_pass: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = config(**changes)
    undisturbed = run_ranks(trial, artifacts=ArtifactOptions(folder=str(tmp_path / "undisturbed"), weights=True))
    assert undisturbed[0].outcome == "ok", undisturbed[0].traceback
    artifacts = ArtifactOptions(folder=str(tmp_path / "cut"), checkpoints=True, weights=True)
    monkeypatch.setenv("DIE_IN_PASS", str(die_in_pass))
    assert "killed" in [item.outcome for item in run_ranks(trial, artifacts=artifacts)]
    assert not (tmp_path / "cut" / "weights.pt").exists()
    monkeypatch.delenv("DIE_IN_PASS")
    resumed = run_ranks(trial, artifacts=artifacts)
    assert resumed[0].outcome == "ok", resumed[0].traceback
    assert resumed[0].run["resumed_epoch"] == 2
    assert losses(resumed[0]) == losses(undisturbed[0])
    expected = weights(tmp_path / "undisturbed")
    assert all(torch.equal(weight, expected[name]) for name, weight in weights(tmp_path / "cut").items())
    assert list((tmp_path / "cut" / "checkpoints").iterdir()), "they stay until the driver has the record"
    assert resumed[0].run["gradient_noise_scale"] == undisturbed[0].run["gradient_noise_scale"]
    values = resumed[0].values
    assert values["total_s"] >= sum(values[name] for name in ("setup_s", "warmup_s", "train_s", "eval_s"))


@pytest.mark.parametrize("damage", [pytest.param("truncated", marks=pytest.mark.slow), "one bit"])
def test_a_damaged_checkpoint_is_refused_and_the_one_before_it_used(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = config()
    undisturbed = run_inline(trial)
    artifacts = ArtifactOptions(folder=str(tmp_path), checkpoints=True)
    monkeypatch.setenv("DIE_IN_PASS", "45")  # in the fourth epoch
    run_ranks(trial, artifacts=artifacts)
    monkeypatch.delenv("DIE_IN_PASS")
    files = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert files == ["2.rank-0.pt", "3.rank-0.pt"], "the last two are kept"
    newest = tmp_path / "checkpoints" / "3.rank-0.pt"
    whole_file = bytearray(newest.read_bytes())
    if damage == "truncated":
        newest.write_bytes(whole_file[:-100])
    else:
        largest = max(zipfile.ZipFile(newest).infolist(), key=lambda item: item.file_size)
        whole_file[largest.header_offset + largest.file_size] ^= 1
        newest.write_bytes(whole_file)
    with pytest.warns(UserWarning, match="The checkpoint of epoch 3 cannot be read"):
        resumed = run_inline(trial, artifacts=artifacts)
    assert resumed.run["resumed_epoch"] == 2
    assert losses(resumed) == losses(undisturbed)


@pytest.mark.parametrize("kind", ["a pipe", "a link"])
def test_a_pipe_or_a_link_in_place_of_a_checkpoint_is_refused_and_the_one_before_it_used(
    kind: str, tmp_path: Path
) -> None:
    trial, artifacts = config(epochs=2), ArtifactOptions(folder=str(tmp_path), checkpoints=True)
    run_inline(trial, artifacts=artifacts)
    newest = tmp_path / "checkpoints" / "2.rank-0.pt"
    newest.rename(tmp_path / "elsewhere")
    if kind == "a pipe":
        os.mkfifo(newest)
    else:
        newest.symlink_to(tmp_path / "elsewhere")
    reason = "it is a link" if kind == "a link" else "it is no regular file"
    with pytest.warns(UserWarning, match=f"The checkpoint of epoch 2 cannot be read .*{reason}"):
        resumed = run_inline(trial, artifacts=artifacts)
    assert resumed.run["resumed_epoch"] == 1


@pytest.mark.parametrize("content", ["code", "code in a plain pickle", "no checkpoint"])
def test_a_checkpoint_that_would_run_code_is_refused(content: str, tmp_path: Path) -> None:
    trial = config(epochs=1)
    (tmp_path / "checkpoints").mkdir()
    file, marker = tmp_path / "checkpoints" / "3.rank-0.pt", tmp_path / "it ran"
    (tmp_path / "checkpoints" / "x.rank-0.pt").touch()
    if content == "code in a plain pickle":
        file.write_bytes(pickle.dumps(Payload(marker)))
    else:
        torch.save([1] if content == "no checkpoint" else {"local": Payload(marker), "random": {}}, file)
    with pytest.warns(UserWarning, match="The checkpoint of epoch 3 cannot be read"):
        result = run_inline(trial, artifacts=ArtifactOptions(folder=str(tmp_path), checkpoints=True))
    assert (result.outcome, result.run.get("resumed_epoch")) == ("ok", None)
    assert not marker.exists()


def test_saved_weights_are_opened_by_plain_pytorch_and_fit_the_model(tmp_path: Path) -> None:
    trial = config(model="digits_convnet", dataset="digits", precision="fp32", epochs=1)
    run_inline(trial, artifacts=ArtifactOptions(folder=str(tmp_path), weights=True))
    model = build_model(trial, (1, 8, 8), 10)
    assert model.load_state_dict(weights(tmp_path)).missing_keys == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["weights.json", "weights.pt"]
