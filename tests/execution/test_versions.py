"""After an edit of the user's files the same call runs the new version and shows only it."""

from __future__ import annotations

import subprocess
import sys
import types
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from dmls_ray import load
from dmls_ray.analysis.report.logs import run_files
from dmls_ray.analysis.results import Results
from dmls_ray.cli.sweep_script import Preset, main
from dmls_ray.cluster.resources import local_resources
from dmls_ray.config.grid import Run
from dmls_ray.config.options import Options
from dmls_ray.config.search_space import Range, make_search_space
from dmls_ray.execution.executor import Executor
from dmls_ray.execution.identities import Identities
from dmls_ray.execution.planning import plan_sweep
from dmls_ray.execution.recorder import describe_session
from dmls_ray.execution.run_plan import run_plan
from dmls_ray.execution.search import proposed_before
from dmls_ray.records.outcome import Outcome
from dmls_ray.workloads.registry import workload, workload_of_function
from tests.conftest import PROJECT
from tests.execution.test_run_plan import Notes
from tests.records.test_model import record

FILES = {
    "edited_m.py": "from edited_util import WIDTH\ndef net(shape, classes):\n    return ('linear', 1.0 * WIDTH)\n",
    "edited_util.py": "WIDTH = 8\n",
    "edited_d.py": "def data(split):\n    return [(__import__('numpy').zeros((8, 8), 'B'), 0)]\n",
    "edited_t.py": "import edited_util\ndef train(config, rank, emit):\n    return {'x': 1.0}\n",
}  # fmt: skip

AXES: dict[str, dict[str, Any]] = {
    "model": {"model": "edited_m:net", "dataset": "synthetic", "batch_per_rank": [8, 16]},
    "dataset": {"dataset": "edited_d:data", "batch_per_rank": [8, 16]},
    "train": {"lr": [0.1, 0.2]},
}


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the runs that were started; each ends ok at once."""
    names: list[str] = []

    def run(self: Executor, pending: Sequence[Run]) -> None:
        identity = self.identities.together(self.plan.runs)
        self.store.add_session({"started_at": self.session, **describe_session(self.plan, self.options, identity)})
        for item in pending:
            names.append(item.label(self.plan.varied))
            artifacts = self._job_factory(local_resources()).create(item).artifacts
            if artifacts is not None:
                Path(artifacts.folder).mkdir(parents=True)
                (Path(artifacts.folder) / "weights.pt").write_text(str(self.identities.of(item).code))
            self.store.append(self.recorder._record(item, Outcome.OK, "", {}))

    monkeypatch.setattr(Executor, "run", run)
    return names


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def call(what: str, train: str | Callable[..., Any] = "edited_t:train", **options: Any) -> tuple[Results, list[str]]:
    chosen = workload_of_function(train, AXES["train"]) if what == "train" else workload("classification")
    given = Options(out="out", repeats=2, tensorboard="off", **options)
    plan, space = plan_sweep(AXES[what], given, chosen)
    view = Notes()
    return run_plan(plan, given, view, space=space), view.notes  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("what", "file"),
    [("model", "edited_m.py"), ("model", "edited_util.py"), ("dataset", "edited_d.py"), ("train", "edited_t.py"),
     ("train", "edited_util.py")],
)  # fmt: skip
def test_an_edited_file_makes_its_runs_again_and_its_old_runs_are_left_out(
    what: str, file: str, files: Path, ran: list[str]
) -> None:
    call(what)
    call(what)
    assert len(ran) == 4, "the same call again runs nothing"
    edited = FILES[file].replace("8", "9").replace("1.0", "2.0")
    assert edited != FILES[file]

    (files / file).write_text(edited)
    found, notes = call(what)
    assert len(ran) == 8
    what_changed = f"{file} and edited_d:data" if what == "dataset" else file
    assert f"4 runs of an earlier version of {what_changed} do not count and are made again." in notes
    assert found.left_out == f"4 runs of an earlier version of {what_changed} are not shown; --stale includes them."
    assert len(found) == len(load("out")) == 4
    assert load("out").left_out == found.left_out
    assert len((files / "out" / "runs.jsonl").read_text().splitlines()) == 8, "nothing is deleted"
    assert found.left_out in (files / "out" / "table.md").read_text()
    assert len(call(what, stale=True)[0]) == len(load("out", stale=True)) == 8

    (files / file).write_text(FILES[file])
    found, notes = call(what)
    assert len(ran) == 8, "the runs of the restored version are there"
    assert notes == [f"Nothing to run: all 4 runs of the present version of {what_changed} are there."]
    restored = {record.code[file] for record in found.records}
    assert {record.code[file] for record in load("out").records} == restored
    assert len(load("out")) == 4


def test_the_note_before_a_sweep_counts_runs_and_not_their_records(files: Path, ran: list[str]) -> None:
    call("train")
    for value in ("2.0", "3.0"):
        (files / "edited_t.py").write_text(FILES["edited_t.py"].replace("1.0", value))
        _, notes = call("train")
        assert notes == ["4 runs of an earlier version of edited_t.py do not count and are made again."]
    assert len(ran) == 12


def test_the_files_of_a_run_are_those_of_the_version_that_is_shown(files: Path, ran: list[str]) -> None:
    def weights() -> None:
        records = load("out").records
        assert len(records) == 4
        for item in records:
            (file,) = run_files(item, files / "out")
            assert (files / "out" / file["href"]).read_text() == str(item.code)

    call("model", save_weights=True)
    weights()
    (files / "edited_util.py").write_text("WIDTH = 9\n")
    call("model", save_weights=True)
    weights()
    (files / "edited_util.py").write_text(FILES["edited_util.py"])
    call("model", save_weights=True)
    weights()
    assert len(ran) == 8
    for item in load("out", stale=True).records:
        (file,) = run_files(item, files / "out")
        assert (files / "out" / file["href"]).read_text() == str(item.code)


def test_a_dry_run_says_why_runs_are_made_again_and_after_an_undo_that_there_is_nothing_to_run(
    files: Path, ran: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    def planned() -> list[str]:
        preset = Preset(name="grid", question="What?", axis=None, axes={}, train="edited_t:train")
        with pytest.raises(SystemExit) as ended:
            main(preset, ["--set", "lr", "0.1", "0.2", "--out", "out", "--repeats", "1", "--dry-run"])
        assert ended.value.code == 0
        return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]

    assert [line.endswith(" to run") for line in planned()] == [False, True, True, False]
    call("train")
    assert planned()[-1] == "Nothing to run: all 2 runs are there."
    (files / "edited_util.py").write_text("WIDTH = 9\n")
    lines = planned()
    assert all(line.endswith("to run again: edited_util.py has changed") for line in lines[1:3])
    assert lines[3] == "2 runs of an earlier version of edited_util.py do not count and are made again."
    call("train")
    (files / "edited_util.py").write_text(FILES["edited_util.py"])
    assert planned()[-1] == "Nothing to run: all 2 runs of the present version of edited_util.py are there."
    assert len(ran) == 8


def test_a_comment_runs_nothing_again(files: Path, ran: list[str]) -> None:
    call("model")
    (files / "edited_m.py").write_text(f"# A comment.\n{FILES['edited_m.py']}")
    call("model")
    assert len(ran) == 4


def test_only_what_the_edit_concerns_runs_again(files: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    models = {**AXES["model"], "model": ["edited_m:net", "digits_convnet"], "batch_per_rank": 8}
    monkeypatch.setitem(AXES, "model", models)
    call("model")
    (files / "edited_util.py").write_text("WIDTH = 9\n")
    found, _ = call("model")
    assert ran[4:] == ["model=edited_m:net repeat=0", "model=edited_m:net repeat=1"]
    assert len(found) == 4


def test_runs_whose_version_was_not_recorded_are_made_again(files: Path, ran: list[str]) -> None:
    call("model")
    records = (files / "out" / "runs.jsonl").read_text().replace('"code":{"edited_m.py"', '"formerly":{"edited_m.py"')
    (files / "out" / "runs.jsonl").write_text(records)
    (files / "out" / "sweep.json").unlink()
    assert len(load("out")) == 4
    assert "4 runs of an earlier version of edited_m.py do not count" in call("model")[1][0]
    assert len(ran) == 8
    assert len(load("out")) == 4


def test_a_function_of_a_notebook_is_run_again_only_after_an_edit(
    files: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook: Any = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", notebook)

    def function_of(cell: str) -> Callable[..., Any]:
        exec(compile(cell, "/tmp/ipykernel_1/1.py", "exec"), vars(notebook))
        function: Callable[..., Any] = notebook.train
        return function

    def train(cell: str) -> Results:
        return call("train", function_of(cell))[0]

    cell = "def train(config, rank, emit):\n    return {'x': 2 * config['lr']}\n"
    train(cell)
    train(f"\n\n{cell}")
    assert len(ran) == 4
    found = train(cell.replace("2 *", "3 *"))
    assert len(ran) == 8
    assert (len(found), len(load("out"))) == (4, 4)
    assert found.left_out == "4 runs of an earlier version of train are not shown; --stale includes them."
    train(cell)
    assert len(ran) == 8


def test_what_a_search_proposed_with_an_earlier_version_is_no_result_of_the_search(
    files: Path,
) -> None:
    chosen = workload_of_function("edited_t:train", ["lr", "units"])
    space = make_search_space({"lr": [0.1, 0.2], "units": Range(1, 9)}, chosen.schema())
    run = space.run_of({"lr": 0.1, "units": 4.0})
    identities = Identities(chosen)
    now = record(run_id=run.run_id, proposed={"lr": 0.1, "units": 4.0}, code=dict(identities.of(run).code))
    before = now.replace(code={"edited_t.py": "earlier"})
    assert proposed_before(space, [before, now]) == [before, now]
    assert proposed_before(space, [before, now], identities) == [now]


def test_every_choice_of_a_search_space_has_its_version_before_anything_is_proposed() -> None:
    space = make_search_space(
        {"model": ["a:net", "b:net"], "lr": Range(0.1, 1.0), "batch_per_rank": 8}, workload("classification").schema()
    )
    assert {item.values["model"] for item in space.run_of_each_choice()} == {"a:net", "b:net"}


def test_a_module_that_extends_the_search_path_has_the_same_version_in_each_process(
    files: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (files / "lib").mkdir()
    (files / "lib" / "edited_lib.py").write_text("")
    source = f"import sys\nsys.path.insert(0, {str(files / 'lib')!r})\nimport edited_lib\n{FILES['edited_t.py']}"
    (files / "edited_t.py").write_text(source)
    for _ in range(2):
        monkeypatch.setattr(sys, "path", [path for path in sys.path if not path.endswith("lib")])
        monkeypatch.delitem(sys.modules, "edited_t", raising=False)
        found, _ = call("train")
    assert len(ran) == 4
    assert "edited_lib.py" in found.records[0].code


def test_a_file_that_a_module_tries_to_import_and_that_appears_makes_a_new_version(
    files: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (files / "edited_t.py").write_text(
        f"try:\n    import edited_extra\nexcept ImportError: pass\n{FILES['edited_t.py']}"
    )
    call("train")
    (files / "edited_extra.py").write_text("")
    monkeypatch.setitem(AXES, "train", {"lr": 0.1})
    call("train")
    assert len(ran) == 6
    assert load("out").runs["lr"].tolist() == [0.1, 0.1]
    assert load("out").left_out.startswith("4 runs of an earlier version of edited_t.py and its imports are not shown")
    (files / "edited_extra.py").unlink()
    call("train")
    assert len(ran) == 6
    assert len(load("out")) == 4


def test_the_identity_of_a_workload_of_this_package_imports_no_entry_point() -> None:
    program = (
        "import sys; from dmls_ray.execution.identities import Identities\n"
        "from dmls_ray.execution.planning import make_plan; from dmls_ray.workloads.registry import workload\n"
        "chosen = workload('grayscale'); plan = make_plan({'implementation': 'numpy'}, schema=chosen.schema())\n"
        "print(Identities(chosen).of(plan.runs[0]).modules, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=PROJECT)
    assert done.stdout == "() False\n"
