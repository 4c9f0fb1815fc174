from __future__ import annotations

import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from dmls_ray.records.run_events import RankResult
from dmls_ray.training.rank import ArtifactOptions
from dmls_ray.workloads.classification.config import TrialConfig
from dmls_ray.workloads.classification.model_builder import build_model
from tests.new_processes import run_inline, run_ranks
from tests.training.probes import Payload
from tests.training.test_engine import UNEVEN

METRICS = ("train_loss", "train_accuracy", "test_loss", "test_accuracy")


def config(**changes: Any) -> TrialConfig:
    # 13 passes an epoch at world size 1, 7 at world size 2.
    base = {"model": "tests.training.probes:dying_in_mid_epoch", "batch_per_rank": 8, "dataset": UNEVEN, "epochs": 4}
    options = {"augmentation": "flip-crop", "precision": "amp-fp16", "lr_schedule": "cosine", "device": "cpu"}
    return TrialConfig(**{**base, **options, **changes})


def losses(result: RankResult) -> list[tuple[float, ...]]:
    return [tuple(epoch.metrics[name] for name in METRICS) for epoch in result.run.epochs]


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
    assert resumed[0].run.metrics["resumed_epoch"] == 2
    assert losses(resumed[0]) == losses(undisturbed[0])
    expected = weights(tmp_path / "undisturbed")
    assert all(torch.equal(weight, expected[name]) for name, weight in weights(tmp_path / "cut").items())
    assert list((tmp_path / "cut" / "checkpoints").iterdir()), "they stay until the driver has the record"
    assert resumed[0].run.metrics["gradient_noise_scale"] == undisturbed[0].run.metrics["gradient_noise_scale"]
    values = resumed[0].values
    assert values["total_s"] >= sum(values[name] for name in ("setup_s", "warmup_s", "train_s", "eval_s"))


def truncate(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-100])


def flip_one_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    largest = max(zipfile.ZipFile(file).infolist(), key=lambda item: item.file_size)
    content[largest.header_offset + largest.file_size] ^= 1
    file.write_bytes(content)


def replace_by_a_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def replace_by_a_link(file: Path) -> None:
    file.symlink_to(file.rename(file.parent.with_name("elsewhere")))


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (truncate, ""),
        (flip_one_bit, ""),
        (replace_by_a_pipe, "it is no regular file"),
        (replace_by_a_link, "it is a link"),
    ],
)
def test_a_damaged_checkpoint_is_refused_and_the_one_before_it_used(
    damage: Callable[[Path], None], reason: str, tmp_path: Path
) -> None:
    trial, artifacts = config(epochs=3), ArtifactOptions(folder=str(tmp_path), checkpoints=True)
    undisturbed = run_inline(trial, artifacts=artifacts)
    files = sorted(path.name for path in (tmp_path / "checkpoints").iterdir())
    assert files == ["2.rank-0.pt", "3.rank-0.pt"], "the last two are kept"
    damage(tmp_path / "checkpoints" / "3.rank-0.pt")
    with pytest.warns(UserWarning, match=f"The checkpoint of epoch 3 cannot be read.*{reason}"):
        resumed = run_inline(trial, artifacts=artifacts)
    assert resumed.run.metrics["resumed_epoch"] == 2
    assert losses(resumed) == losses(undisturbed)


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
    assert (result.outcome, result.run.metrics.get("resumed_epoch")) == ("ok", None)
    assert not marker.exists()


def test_saved_weights_are_opened_by_plain_pytorch_and_fit_the_model(tmp_path: Path) -> None:
    trial = config(model="digits_convnet", dataset="digits", precision="fp32", epochs=1)
    run_inline(trial, artifacts=ArtifactOptions(folder=str(tmp_path), weights=True))
    model = build_model(trial, (1, 8, 8), 10)
    assert model.load_state_dict(weights(tmp_path)).missing_keys == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["weights.json", "weights.pt"]
