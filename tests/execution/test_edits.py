"""After an edit of the user's files the same call runs other trials and shows only them; after an undo, the first."""

from __future__ import annotations

import itertools
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]
import pytest

from dmls_ray import load
from dmls_ray.analysis.results import Results
from dmls_ray.cli.sweep_script import main
from dmls_ray.config.axes import Range
from dmls_ray.config.options import Options
from dmls_ray.config.search_space import make_search_space
from dmls_ray.config.sweep_file import Preset
from dmls_ray.execution.executor import Executor
from dmls_ray.execution.next_runs import proposed_before
from dmls_ray.execution.planning import plan_of
from dmls_ray.execution.recorder import describe_session
from dmls_ray.execution.run_plan import run_plan
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
    "model": {"model": ["edited_m:net", "digits_convnet"], "dataset": "synthetic", "batch_per_rank": 8},
    "dataset": {"dataset": "edited_d:data", "batch_per_rank": [8, 16]},
    "train": {"lr": [0.1, 0.2]},
}


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the runs that were started; each ends ok at once."""
    names: list[str] = []

    def run(self: Executor) -> None:
        self.store.add_sessions({"started_at": self.session, **describe_session(self.plan, self.options)})
        for item in self.state.missing:
            names.append(item.label(self.plan.varied))
            self.store.append(self.recorder._record(item, Outcome.OK, ""))

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
    plan, space = plan_of(AXES[what], given, chosen)
    view = Notes()
    return run_plan(plan, given, view, space=space), view.notes  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("what", "file", "edited_runs"),
    [("model", "edited_m.py", 2), ("model", "edited_util.py", 2), ("dataset", "edited_d.py", 4),
     ("train", "edited_t.py", 4), ("train", "edited_util.py", 4)],
)  # fmt: skip
def test_an_edited_file_makes_its_runs_again_and_its_old_runs_are_left_out_until_the_edit_is_undone(
    what: str, file: str, edited_runs: int, files: Path, ran: list[str]
) -> None:
    call(what)
    call(what)
    assert len(ran) == 4, "the same call again runs nothing"
    (files / file).write_text(f"# A comment.\n{FILES[file]}")
    first, _ = call(what)
    assert len(ran) == 4, "a comment is no edit"

    (files / file).write_text(FILES[file].replace("8", "9").replace("1.0", "2.0"))
    found, notes = call(what)
    assert len(ran) == 4 + edited_runs
    assert f"{edited_runs} runs of other versions of {file}" in notes[0]
    assert found.left_out == load("out").left_out == notes[0]
    assert len(found.records) == len(load("out").records) == 4
    assert len((files / "out" / "runs.jsonl").read_text().splitlines()) == len(ran), "nothing is deleted"
    assert found.left_out in (files / "out" / "table.md").read_text()
    assert len(call(what, stale=True)[0].records) == len(load("out", stale=True).records) == len(ran)
    folders = {item.folder for item in load("out", stale=True).records}
    assert len(folders) == len(ran), "the files of two versions never mix"

    (files / file).write_text(FILES[file])
    found, notes = call(what)
    assert len(ran) == 4 + edited_runs, "the runs of the restored version are there"
    assert notes == ["Nothing to run: all runs have ended before (4)."]
    assert found.records == load("out").records == first.records


def test_a_dry_run_says_that_runs_of_other_versions_are_left_out_and_after_an_undo_that_there_is_nothing_to_run(
    files: Path, ran: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    def planned() -> list[str]:
        preset = Preset(name="grid", question="What?", axis=None, axes={})
        words = "--train edited_t:train --set lr 0.1 0.2 --out out --repeats 1 --dry-run"
        with pytest.raises(SystemExit) as ended:
            main(preset, words.split())
        assert ended.value.code == 0
        return [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]

    call("train")
    assert planned()[-1] == "Nothing to run: all runs have ended before (2)."
    (files / "edited_util.py").write_text("WIDTH = 9\n")
    lines = planned()
    assert [line.endswith(" to run") for line in lines[1:3]] == [True, True]
    assert lines[3] == "4 runs of other versions of edited_util.py left out; --stale includes them."
    (files / "edited_util.py").write_text(FILES["edited_util.py"])
    assert planned()[-1] == "Nothing to run: all runs have ended before (2)."
    assert len(ran) == 4


def test_a_function_of_a_notebook_is_run_again_only_after_an_edit(
    files: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook: Any = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", notebook)

    kernels = itertools.count()

    def train(cell: str) -> Results:
        exec(compile(cell, f"/tmp/ipykernel_{next(kernels)}/1.py", "exec"), vars(notebook))
        return call("train", notebook.train)[0]

    cell = "def train(config, rank, emit):\n    return {'x': 2 * config['lr']}\n"
    train(cell)
    train(f"\n\n{cell}")
    assert len(ran) == 4
    found = train(cell.replace("2 *", "3 *"))
    assert (len(ran), len(found.records), len(load("out").records)) == (8, 4, 4)
    assert found.left_out == "4 runs of other versions of train left out; --stale includes them."
    train(cell)
    assert len(ran) == 8


def test_a_search_has_the_runs_of_its_code_alone_in_each_process(files: Path) -> None:
    chosen = workload_of_function("edited_t:train", ["lr", "units"])
    given = Options(search=True, searcher="optuna")
    axes = {"lr": [0.1, 0.2], "units": Range(1, 9)}
    records = []
    for width in (8, 9):
        (files / "edited_util.py").write_text(f"WIDTH = {width}\n")
        _, space = plan_of(axes, given, chosen)
        assert space is not None
        run = space.run_of({"lr": 0.1, "units": 4.0})
        records.append(record(run_id=run.run_id, proposed={"lr": 0.1, "units": 4.0}))
    assert proposed_before(space, records) == records[1:]
    (files / "edited_util.py").write_text("WIDTH = 10\n")
    sent = cloudpickle.loads(cloudpickle.dumps(space))
    assert sent.run_of(records[1].proposed).run_id == records[1].run_id, "a process of Ray has the code of the driver"


def test_every_choice_of_a_search_space_has_its_code_before_anything_is_proposed() -> None:
    axes = {"model": ("a:net", "b:net"), "lr": Range(0.1, 1.0), "batch_per_rank": (8,)}
    space = make_search_space(axes, workload("classification").schema())
    assert {item.values["model"] for item in space.run_of_each_choice()} == {"a:net", "b:net"}


def test_a_module_that_extends_the_search_path_has_the_same_digest_in_each_process(
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


def test_a_file_that_a_module_tries_to_import_and_that_appears_makes_other_trials(
    files: Path, ran: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = f"try:\n    import edited_extra\nexcept ImportError: pass\n{FILES['edited_t.py']}"
    (files / "edited_t.py").write_text(source)
    call("train")
    (files / "edited_extra.py").write_text("")
    monkeypatch.setitem(AXES, "train", {"lr": 0.1})
    call("train")
    assert len(ran) == 6
    assert load("out").runs["lr"].tolist() == [0.1, 0.1]
    assert load("out").left_out.startswith("4 runs of other versions of edited_t.py and its imports left out")
    (files / "edited_extra.py").unlink()
    call("train")
    assert len(ran) == 6
    assert len(load("out").records) == 4


def test_the_identity_of_a_workload_of_this_package_imports_no_entry_point() -> None:
    program = (
        "import sys; from dmls_ray.config.options import Options\n"
        "from dmls_ray.execution.planning import plan_of; from dmls_ray.workloads.registry import workload\n"
        "plan, _ = plan_of({'implementation': 'numpy'}, Options(), workload('grayscale'))\n"
        "print(plan.runs[0].identity.modules, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=PROJECT)
    assert done.stdout == "() False\n"
