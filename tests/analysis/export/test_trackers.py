from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dmls_ray.analysis.export.trackers import TRACKERS, TrackedRun, tracked_runs
from dmls_ray.analysis.results import Results, load
from dmls_ray.analysis.summary import summarize
from tests.analysis.samples import own_results, results
from tests.conftest import PROJECT, DmlsRay

NOISE = (1.0, 1.02, 0.99)


def swept() -> Results:
    """Two batches with three repeats each; one run of a third ran out of memory."""

    def rate(values: dict[str, Any], repeat: int) -> float | None:
        return None if values["batch_per_rank"] == 64 else values["batch_per_rank"] * NOISE[repeat]

    return results({"batch_per_rank": [16, 32, 64]}, rate)


def keep(runs: Results, folder: Path) -> Path:
    folder.mkdir()
    lines = [json.dumps(record.to_dict()) for record in runs.records]
    (folder / "runs.jsonl").write_text("\n".join(lines) + "\n")
    session = {"axis": "batch_per_rank", "axes": {"batch_per_rank": [16, 32, 64]}, "command": ["a.py"]}
    (folder / "sweep.json").write_text(json.dumps({"sessions": [session]}))
    return folder


def by_id(runs: Results) -> dict[str, TrackedRun]:
    return {item.id: item for item in tracked_runs(summarize(runs))}


def test_each_run_has_its_configuration_its_results_and_its_epochs_and_the_answer_is_one_more() -> None:
    runs = swept()
    tracked = by_id(runs)
    assert tracked.keys() == {record.run_id for record in runs.records} | {"answer"}
    for record in runs.records:
        item = tracked[record.run_id]
        assert item.config["batch_per_rank"] == record.config["batch_per_rank"]
        assert (item.config["trial_id"], item.config["repeat"]) == (record.trial_id, record.repeat)
        assert item.metrics == record.metrics
        assert [epoch["epoch/test_accuracy"] for epoch in item.epochs] == [
            epoch.metrics["test_accuracy"] for epoch in record.epochs
        ]
        assert item.facts["reason"] == record.reason
        assert item.name == f"{item.group} repeat={record.repeat}"
    answer = summarize(runs).answer
    assert tracked["answer"].facts["headline"] == answer.headline
    assert answer.headline in tracked["answer"].text


def test_the_repeats_of_a_configuration_are_a_group() -> None:
    groups: dict[str, set[str]] = {}
    for item in by_id(swept()).values():
        groups.setdefault(item.group, set()).add(item.config.get("trial_id", ""))
    assert len(groups) == 4
    assert all(len(trials) == 1 for trials in groups.values())


def test_runs_that_shared_the_machine_have_no_times() -> None:
    runs = swept()
    for record in runs.records:
        record.mode = "search"
    tracked = by_id(runs)[runs.records[0].run_id]
    assert "test_accuracy" in tracked.metrics
    assert not {"total_s", "images_per_s"} & tracked.metrics.keys()


def test_a_field_with_the_name_of_a_column_stands_next_to_it() -> None:
    runs = own_results({"repeat": [7]}, lambda values, repeat: (1.0, {"loss@1": 0.5}))
    config = by_id(runs)[runs.records[1].run_id].config
    assert (config["repeat"], config["config_repeat"]) == (1, 7)


@pytest.mark.parametrize("tracker", [name for name in TRACKERS if importlib.util.find_spec(name) is None])
def test_without_its_library_an_export_names_the_extra(tracker: str, tmp_path: Path, run: DmlsRay) -> None:
    code, _, err = run("export", keep(swept(), tmp_path / "sample"), "--to", tracker)
    assert (code, err.count("\n")) == (2, 1)
    assert f"pip install 'dmls_ray[{tracker}]'" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--out", "x"], "--out is for files; the variables of the library after --to say where its runs go."),
        (["--format", "json"], "not allowed with argument"),
    ],
)
def test_the_flags_of_files_are_refused(words: list[str], message: str, tmp_path: Path, run: DmlsRay) -> None:
    code, _, err = run("export", keep(swept(), tmp_path / "sample"), "--to", "wandb", *words)
    assert (code, err.count("\n")) == (2, 1)
    assert message in err


READ = {
    "wandb": """
import json, pathlib
from wandb.proto.wandb_internal_pb2 import Record
found = {}

def records(content):
    "The messages of a file: a log of LevelDB, of blocks of 32 KiB, after 7 bytes of a header."
    at, message = 7, b""
    while at + 7 <= len(content):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        size, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        message += content[at + 7 : at + 7 + size]
        at += 7 + size
        if kind in (1, 4):  # a whole message, or its last part
            yield Record.FromString(message)
            message = b""

for path in pathlib.Path("wandb").glob("offline-run-*/run-*.wandb"):
    run = {"project": "", "config": {}, "metrics": {}, "text": "", "steps": 0, "failed": False}
    for record in records(path.read_bytes()):
        if record.HasField("run"):
            run |= {"project": record.run.project, "text": record.run.notes, "group": record.run.run_group}
            run["config"] |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
            name = record.run.run_id
        run["steps"] += record.HasField("history")
        for item in record.summary.update:
            run["metrics"][item.key or item.nested_key[0]] = json.loads(item.value_json)
        run["failed"] = run["failed"] or record.exit.exit_code != 0
    found.setdefault(name, []).append(run)
""",
    "mlflow": """
import mlflow
client, found = mlflow.MlflowClient(), {}
for run in client.search_runs([item.experiment_id for item in client.search_experiments()]):
    data, name = run.data, run.data.tags["run_id"]
    project = client.get_experiment(run.info.experiment_id).name
    steps = len(client.get_metric_history(run.info.run_id, "epoch/test_accuracy"))
    found.setdefault(name, []).append({
        "project": project, "config": data.params, "metrics": data.metrics | data.tags, "steps": steps,
        "text": data.tags["mlflow.note.content"], "group": data.tags["group"], "failed": run.info.status == "FAILED",
    })
""",
    "trackio": """
import trackio
from trackio.sqlite_storage import SQLiteStorage
found = {}
for run in trackio.Api().runs("sample"):
    logs = SQLiteStorage.get_logs("sample", run.name, run_id=run.id)
    steps = sum("epoch/test_accuracy" in log for log in logs)
    config = run.config
    found.setdefault(config["run_id"], []).append({
        "project": "sample", "config": config, "metrics": config | logs[-1], "steps": steps,
        "text": str(logs[-1]["text"]), "group": config["_Group"], "failed": bool(config.get("reason")),
    })
""",
}
"""Library -> what reads its runs by their ids, as `found`."""


def call(*words: str, folder: Path) -> str:
    """Run Python in a folder where each library writes, and reaches no network."""
    variables = {
        "WANDB_MODE": "offline", "WANDB_SILENT": "true", "TRACKIO_DIR": str(folder / "trackio"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db", "PYTHONPATH": str(PROJECT),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, env=os.environ | variables, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("tracker", TRACKERS)
def test_an_export_that_is_made_twice_leaves_each_run_once_with_what_its_record_says(
    tracker: str, tmp_path: Path
) -> None:
    pytest.importorskip(tracker, reason=f"{tracker} is not installed")
    runs = swept()
    folder = keep(runs, tmp_path / "sample")
    for accuracy in (0.5, 0.75):  # the second export replaces what the first one wrote
        for record in runs.records[:1]:
            record.metrics["test_accuracy"] = accuracy
        lines = [json.dumps(record.to_dict()) for record in runs.records]
        (folder / "runs.jsonl").write_text("\n".join(lines) + "\n")
        out = call("-m", "dmls_ray", "export", str(folder), "--to", tracker, folder=tmp_path)
        assert out.splitlines()[-1] == f"{tracker}: 9 runs and the answer are in project sample"
    read = READ[tracker] + "\nimport json; print('found', json.dumps(found, default=str))"
    found = json.loads(call("-c", read, folder=tmp_path).rpartition("found ")[2])
    expected = by_id(load(folder))
    assert found.keys() == expected.keys()
    for name, item in expected.items():
        (written,) = found[name]
        assert (written["project"], written["group"] or "") == ("sample", item.group)
        assert {key: str(value) for key, value in item.config.items()}.items() <= {
            key: str(value) for key, value in written["config"].items()
        }.items()
        assert {key: written["metrics"].get(key) for key in item.metrics} == pytest.approx(item.metrics)
        assert item.facts.items() <= written["metrics"].items()
        assert (written["steps"], written["failed"]) == (len(item.epochs), bool(item.facts.get("reason")))
        assert item.text.partition("\n")[0] in written["text"]
