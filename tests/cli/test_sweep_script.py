from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dmls_ray import load
from dmls_ray.cli.console import Parser
from dmls_ray.cli.request import kept_defaults, parse_request
from dmls_ray.cli.sweep_script import main
from dmls_ray.config.sweep_file import Preset
from dmls_ray.storage.store import Store
from dmls_ray.workloads.user_function.schema import user_function_schema
from tests.analysis.samples import results
from tests.conftest import PROJECT, Command, command_line

FUNCTIONS = "tests.workloads.user_function.test_schema"

SWEEPS = sorted(path.stem for path in (PROJECT / "sweeps").glob("*.py"))


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*flags: str, **changes: Any) -> int:
    axes = {"batch_per_rank": [16, 32]}
    preset = Preset(**{"name": "test", "question": "What?", "axis": "batch_per_rank", "axes": axes, **changes})
    with pytest.raises(SystemExit) as ended:
        main(preset, flags)
    assert isinstance(ended.value.code, int)
    return ended.value.code


def test_what_is_typed_first_is_what_a_script_without_an_axis_asks_about() -> None:
    preset = Preset(name="test", axis=None, axes={"batch_per_rank": [16]})
    asked = [
        parse_request(Parser(), preset, words.split()).options.axis
        for words in ("--lr 0.1 0.2 --world-size 1 2", "--world-size 1 2 --lr 0.1 0.2", "--lr 0.1", "")
    ]
    assert asked == ["lr", "world_size", None, None]


BAD_INPUT = [
    (["--batch-per-rank", "x"], "--batch-per-rank x: expected int"),
    (["--dry-run", "--batchsize-per-rank", "16"], "--batchsize-per-rank is no flag; did you mean --batch-per-rank?"),
    (["--repeats", "1", "--patience", "1", "2"], "patience=1 has no effect with early_stopping=off"),
    (["--validation-share", "0.0001"], "validation_share=0.0001 of 1438 samples holds out 0"),
    (
        ["--model", "torchvision:resnet18", "--batch-norm", "on", "--dataset", "synthetic:train=64,test=32"],
        "batch_norm=on puts layers into built-in models, and model=torchvision:resnet18 is none",
    ),
    (["--model", "simplecnn", "--image-size", "4", "--loader", "dataloader"], "does not take images of 1x4x4"),
    (["--model", "torchvision:alexnet", "--dataset", "synthetic:shape=3x32x32"], "does not take images of 3x32x32"),
    (["--dry-run", "--address", ""], "--address is empty"),
    (["--restarts", "-1"], "--restarts -1 is out of range; give 0 or more."),
    (["--batch", "8"], "--batch is no flag; did you mean --batch-per-rank or --batch-norm?"),
    (["--xyzzy"], "--xyzzy is no flag; --help lists them all"),
    (["--global-batch", "100", "--world-size", "3"], "the nearest that do: 99 and 102"),
    (["--global-batch", "8", "--batch-per-rank", "8"], "batch_per_rank=8 and global_batch=8 are both given; give one"),
    (["--model", "resnet"], "model=resnet is unknown; choose from convnet"),
    (["--dataset", "imagenet"], "dataset=imagenet is unknown; choose from cifar10, digits"),
    (["--dataset", "image_folder", "--data-dir", "/absent"], "there is no folder /absent/train"),
    # Before the next, which ends while another thread still loads Ray's libraries.
    (["--search", "--searcher", "magic"], "searcher=magic is unknown; choose from grid, random"),
    (["--address", "127.0.0.1:1", "--repeats", "1"], "Address 127.0.0.1:1 cannot be reached"),
    (["--dataset", "mnist", "--data-dir", "/absent", "--loader", "dataloader"], "dataset=mnist is not in /absent"),
    (["--out", "/dev/null/below"], "--out /dev/null/below cannot be made a folder"),
    (["--train", "absent_module:train"], "--train=absent_module:train: no module named 'absent_module'"),
    (["--model", "my-nets/m.py:net"], "or a user-defined module:function"),
    (["--train", f"{FUNCTIONS}:of_two"], "cannot be called as train(config, rank, emit)"),
    (["--train", f"{FUNCTIONS}:train"], "batch_per_rank, which this script asks about, is no field of"),
    (["--set", "lr", "0.1"], "--set lr is for a training function; give it with --train module:function"),
    (["--workload", "blur"], "--workload blur: unknown workload; installed are "),
    (["--workload", "grayscale", "--train", "m:f"], "--workload grayscale and --train m:f are both given"),
    (["--trials", "3"], "trials=3 only applies to a search; add --search"),
    (["--range", "lr", "0.1", "1"], "lr has a range, which a grid cannot enumerate"),
    (["--range", "lr", "low", "1"], "the range of lr from low to 1 needs two numbers"),
    (["--search", "--metric", "val_loss"], "--metric val_loss: unknown metric; classification reports train_loss,"),
    (
        ["--search", "--metric", "validation_loss"],
        "--metric validation_loss needs validation samples, and validation_share=0 holds none out; add "
        "--validation-share 0.1",
    ),
    (["--search", "--searcher", "random", "--batch-per-rank", "8"], "search has nothing to search"),
]


@pytest.mark.parametrize(("flags", "expected"), BAD_INPUT, ids=[" ".join(flags) for flags, _ in BAD_INPUT])
def test_bad_input_is_one_line_and_exit_code_2_and_starts_nothing(
    flags: list[str], expected: str, capsys: pytest.CaptureFixture[str], empty_folder: Path
) -> None:
    assert run(*flags) == 2
    out, err = capsys.readouterr()
    assert expected in err
    assert err.count("\n") == 1
    assert not [line for line in out.splitlines() if not line.startswith("Preparing ")]
    assert not list(empty_folder.rglob("runs.jsonl"))


def test_another_launcher_than_rays_group_is_no_part_of_a_search(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--search", "--launcher", "inline", "--dry-run") == 0
    assert "a search stops runs through Ray's worker group" in capsys.readouterr().out


def test_a_script_that_searches_measures_as_any_other_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    how = {"search": True, "searcher": "random", "trials": 5}
    assert run("--dry-run", options=how) == 0
    assert capsys.readouterr().out.startswith("2 runs in 1 blocks")
    assert run("--dry-run", "--search", "false", options=how) == 0
    assert capsys.readouterr().out.startswith("6 runs in 3 blocks")


OWN_MODELS = """
from torch import nn

def plain(shape, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))

def with_dropout(classes):
    return nn.Sequential(nn.Flatten(), nn.Dropout1d(0.2), nn.Linear(64, classes))
"""


@pytest.fixture
def own_models(empty_folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (empty_folder / "own_models.py").write_text(OWN_MODELS)
    monkeypatch.syspath_prepend(empty_folder)
    monkeypatch.delitem(sys.modules, "own_models", raising=False)
    return "own_models"


@pytest.mark.parametrize(
    ("script", "model", "skipped", "varied"),
    [
        ("search", "plain", ["model=own_models:plain has no dropout layer; use dropout none"], ""),
        ("search", "with_dropout", [], "dropout="),
        (
            "regularization",
            "plain",
            ["dropout=0.3: model=own_models:plain has no dropout layer", "model=own_models:plain is none"],
            "weight_decay=0.001",
        ),
        ("grid", "plain --batch-norm on off", ["batch_norm=on puts layers into built-in models"], "batch_norm=off"),
    ],
)
def test_runs_with_values_that_a_model_cannot_take_are_skipped_with_the_reason(
    script: str, model: str, skipped: list[str], varied: str, own_models: str, sweep_in_process: Command
) -> None:
    words = ("--model", *f"{own_models}:{model}".split(), "--dry-run", "--device", "cpu")
    done = sweep_in_process(script, *words)
    assert done.returncode == (0 if varied else 2), done.stderr
    assert all(reason in done.stdout + done.stderr for reason in skipped)
    planned = [line for line in done.stdout.splitlines() if line.endswith("to run")]
    assert bool(planned) is bool(varied)
    assert all("dropout=" not in line for line in planned) is (model != "with_dropout")
    assert any(varied in line for line in planned) is bool(varied)


def test_default_axes_that_a_function_lacks_are_left_out_and_named(
    empty_folder: Path, monkeypatch: pytest.MonkeyPatch, sweep_in_process: Command
) -> None:
    (empty_folder / "own_function.py").write_text(
        "from dataclasses import dataclass\nfrom typing import Literal\n"
        "@dataclass\nclass Config:\n    lr: float = 0.1\n    optimizer: Literal['sgd', 'lion'] = 'lion'\n"
        "def train(config: Config, rank, emit): ...\n"
    )
    monkeypatch.syspath_prepend(empty_folder)
    flags = ("--train", "own_function:train", "--dry-run")
    refused = sweep_in_process("search", *flags)
    assert (refused.returncode, refused.stderr.count("choose from sgd, lion")) == (2, 1)
    replaced = sweep_in_process("search", *flags, "--optimizer", "lion", "sgd")
    assert replaced.stdout.startswith("Left out: batch_per_rank, dropout (not for the configuration of own_function:")
    assert "optimizer=lion" in replaced.stdout
    assert " lr=0.0" in replaced.stdout
    of_a_dict = sweep_in_process("search", "--train", f"{FUNCTIONS}:of_a_dict", "--range", "x", "0", "1", "--dry-run")
    assert of_a_dict.stdout.startswith("Left out: lr, batch_per_rank, optimizer, dropout (not for "), of_a_dict.stderr
    few = sweep_in_process("regularization", *flags)
    assert few.stdout.startswith("Left out: dropout, batch_norm, label_smoothing, ")


def test_a_user_function_brings_its_flags(capsys: pytest.CaptureFixture[str]) -> None:
    function = ("--train", f"{FUNCTIONS}:train", "--depth", "1", "2", "--kind", "wide")
    assert run(*function, "--world-size", "1", "2", "--repeats", "1", "--dry-run", axis=None) == 0
    expected = capsys.readouterr().out
    assert expected.startswith(
        f"Left out: batch_per_rank (not for the configuration of {FUNCTIONS}:train).\n"
        "4 runs in 1 blocks, order seed 0, into results/tests-workloads-user_function-test_schema-train:"
    )
    assert "world_size=2 depth=1" in expected
    assert (
        run("--train", f"{FUNCTIONS}:of_a_dict", "--set", "x", "1", "2", "--set", "y", "a", "--dry-run", axis=None) == 0
    )
    assert "x=2 repeat=0" in capsys.readouterr().out
    assert run(*function[:2], "--help", axis=None) == 0
    assert "Layers" in capsys.readouterr().out


def test_a_key_of_a_dict_may_have_a_range_and_needs_a_value(capsys: pytest.CaptureFixture[str]) -> None:
    how = ("--search", "--searcher", "random", "--trials", "2", "--dry-run")
    key = ("--log-range", "x", "0.01", "1")
    assert run("--train", f"{FUNCTIONS}:of_a_dict", *how, *key, axis=None) == 0
    assert capsys.readouterr().out.count(" x=0.") == 2
    assert run("--train", f"{FUNCTIONS}:of_a_dict", "--set", "x", axis=None) == 2
    assert "x has no value; give at least one." in capsys.readouterr().err


def test_a_field_with_the_name_of_a_flag_is_refused_with_the_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--train", f"{FUNCTIONS}:of_a_dict", "--set", "search", "a", "b", axis=None) == 2
    assert capsys.readouterr().err.endswith(
        "of_a_dict has a field search, and every sweep has --search: rename the field, my_search say, or call sweep() "
        "from Python, which has no flags.\n"
    )
    assert user_function_schema(f"{FUNCTIONS}:of_a_dict", ["search"]).make(search="a").values["search"] == "a"


def test_a_damaged_results_folder_is_one_line_and_nothing_in_it_is_lost(
    capsys: pytest.CaptureFixture[str], empty_folder: Path
) -> None:
    runs = empty_folder / "results" / "test" / "runs.jsonl"
    runs.parent.mkdir(parents=True)
    runs.write_text('{"schema": 99}\n')
    assert run() == 2
    assert "schema 99" in capsys.readouterr().err
    assert runs.read_text() == '{"schema": 99}\n'


def test_a_folder_in_use_is_one_line(sweep_command: Command, empty_folder: Path) -> None:
    with Store(empty_folder / "results" / "test"):
        done = sweep_command("batch_size", "--out", "results/test")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "in use by another process" in done.stderr


def test_a_dry_run_says_that_it_did_not_ask_the_cluster(capsys: pytest.CaptureFixture[str], empty_folder: Path) -> None:
    assert run("--dry-run", "--address", "192.0.2.1:6379", "--world-size", "99", "--device", "cpu") == 0
    assert "The cluster (192.0.2.1:6379) was not contacted" in " ".join(capsys.readouterr().out.split())
    assert run("--dry-run", "--address", "local") == 0
    assert "was not contacted" not in capsys.readouterr().out


def test_a_dry_run_prints_the_plan_and_starts_nothing(capsys: pytest.CaptureFixture[str], empty_folder: Path) -> None:
    assert run("--dry-run", "--world-size", "1", "99", "--device", "cpu") == 0
    out = capsys.readouterr().out
    first, second, third = out.splitlines()[:3]
    assert first.startswith("Every run with world_size=99 is skipped: world_size=99 does not fit on this machine of")
    assert second == "No values of world_size can be compared: only 1 is feasible."
    assert third == "12 runs in 3 blocks (up to 120 in 30), order seed 0, into results/test:"
    assert out.count("to run") == 6
    assert out.count("repeat=0  skipped: world_size=99 does not fit on this machine of") == 2
    assert "No estimate" in out
    assert run("--dry-run", "--world-size", "99", "--device", "cpu", "--budget", "none") == 0
    out = capsys.readouterr().out
    assert "more block" not in out
    assert "estimate" not in out
    assert list(empty_folder.iterdir()) == []


def test_help_shows_question_flags_choices_and_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help-all") == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "What?" in out
    assert "--optimizer {adam,adamw,sgd,rmsprop} ..." in out
    assert "Samples a rank takes in one forward pass (default: 16 32)" in out
    assert "--budget TIME" in out
    assert "--within SHARE" in out


def test_help_describes_the_usual_flags_and_names_all_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--help-all") == 0
    everything = capsys.readouterr().out
    assert run("--help") == 0
    short = capsys.readouterr().out
    flags = set(re.findall(r"^  (?:-h, )?(--[a-z0-9-]+)", everything, re.MULTILINE))
    assert len(flags) > 70
    assert flags == set(re.findall(r"--[a-z0-9-]+", short.partition("all flags")[2]))
    assert len(short.splitlines()) < len(everything.splitlines()) / 3
    assert "Optimizer of PyTorch" in everything
    assert "Optimizer of PyTorch" not in short
    assert "Exit codes: 0 answered" in short


def test_commas_between_values_are_refused_with_the_way_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--batch-per-rank", "16,32", "--dry-run") == 2
    line = capsys.readouterr().err
    assert line.endswith(
        "--batch-per-rank 16,32: expected int | none; several values are separated by spaces: 16 32.\n"
    )


def test_a_flag_that_is_given_twice_has_its_last_values(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--batch-per-rank", "8", "--batch-per-rank", "16", "32", "--repeats", "1", "--dry-run")
    assert run(*flags, "--world-size", "1") == 0
    out = capsys.readouterr().out
    assert "batch_per_rank=16" in out
    assert "batch_per_rank=32" in out
    assert "batch_per_rank=8" not in out


def test_with_nothing_missing_the_table_is_printed_without_ray_or_torch(empty_folder: Path) -> None:
    with Store(empty_folder / "done") as store:
        grid = {"batch_per_rank": [16, 32, 64, 128], "world_size": [1, 2]}
        store.append(*results(grid, lambda values, repeat: 100.0 * values["batch_per_rank"]).records)
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('LOADED', *[name for name in ('ray', 'torch') if name in sys.modules]))\n"
        f"sys.argv = ['batch_size.py', '--out', 'done']\n"
        f"exec(open({str(PROJECT / 'sweeps' / 'batch_size.py')!r}).read())\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("LOADED\n")
    assert "batch_per_rank 128 vs 16" in done.stdout
    assert (empty_folder / "done" / "table.md").exists()


def test_a_sweep_in_which_every_run_is_skipped_has_the_exit_code_1(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ("--world-size", "99", "--device", "cpu", "--repeats", "1")
    assert run(*flags) == run(*flags) == 1
    out = capsys.readouterr().out
    assert out.startswith("Every run is skipped: world_size=99 does not fit on this machine of")


def test_one_rank_of_a_script_of_ours_is_one_on_each_machine_that_is_asked_for() -> None:
    ours = {"batch_per_rank": [32], "world_size": [1]}
    assert kept_defaults(ours, ["machines"]) == kept_defaults(ours, ["ranks_per_machine"]) == {"batch_per_rank": [32]}
    two = {"batch_per_rank": [32], "world_size": [2]}
    assert kept_defaults(two, ["machines"]) == two


@pytest.mark.parametrize("flags", [[], ["--dry-run"]])
def test_a_machine_with_a_gpu_that_pytorch_cannot_use_is_refused_with_a_line_and_exit_code_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("dmls_ray.cluster.resources.usable_gpus", lambda: 0)
    monkeypatch.setattr("dmls_ray.cluster.resources.machine_facts", lambda: {"gpus": ["L4"]})
    assert run("--repeats", "1", *flags) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "(L4)" in line
    assert line.endswith("or pass --device cpu to train on its CPU.")
    assert run("--repeats", "1", "--device", "cpu", "--dry-run") == 0


def test_a_reader_of_the_output_that_leaves_does_not_end_a_sweep(empty_folder: Path) -> None:
    with Store(empty_folder / "done") as store:
        store.append(*results({"batch_per_rank": [16, 32, 64, 128]}, lambda values, repeat: 100.0).records)
    read, write = os.pipe()
    os.close(read)
    with open(write, "wb") as pipe:
        command = command_line("batch_size", "--out", "done", "--world-size", "1")
        done = subprocess.run(command, stdout=pipe, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (empty_folder / "done" / "report.html").exists()


@pytest.mark.parametrize("script", SWEEPS)
def test_each_sweep_script_plans_its_question(script: str, sweep_in_process: Command) -> None:
    done = sweep_in_process(script, "--dry-run", "--oversubscribe", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    assert f"into results/{script}" in done.stdout
    skipped = [line for line in done.stdout.splitlines() if "skipped" in line]
    known = (
        "needs GPUs",
        "launcher=inline runs one process",
        "does not fit on this machine of",
        "needs as many machines, and this is one",
        "runs on cuda, but device=cpu",
    )
    assert all(any(reason in line for reason in known) for line in skipped)
    assert "to run" in done.stdout


OWN_MODULES = {
    "optimizer.py": "VALUE = 1\n",
    "records.py": "VALUE = 2\n",
    "data/__init__.py": "VALUE = 3\n",
    "mine_imports.py": (
        "import importlib.util\nimport data\nimport optimizer\nimport queue\n"
        "def train(config, rank, emit):\n    import records\n"
        "    others = [name for name in ('search', 'grid') if importlib.util.find_spec(name)]\n"
        "    return {'sum': optimizer.VALUE + records.VALUE + data.VALUE, 'others': len(others)}\n"
    ),
    "queue.py": "raise SystemExit('installed packages import this name')\n",
}
"""A user's files, among them one with the name of a script and one with the name of a module of Python."""


@pytest.fixture
def own_modules(empty_folder: Path) -> Path:
    for name, content in OWN_MODULES.items():
        (empty_folder / name).parent.mkdir(exist_ok=True)
        (empty_folder / name).write_text(content)
    return empty_folder


def test_a_script_finds_the_users_modules_and_is_no_module_itself(
    own_modules: Path, sweep_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # a plan without GPUs needs no PyTorch
    (own_modules / "mine_finds.py").write_text(
        "from mine_imports import train as original\ndef train(config, rank, emit): ...\n"
        "assert original(None, None, None) == {'sum': 6, 'others': 0}\n"
    )
    done = sweep_command("grid", "--train", "mine_finds:train", "--dry-run")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_ranks_find_the_modules_that_the_driver_finds_under_every_launcher(
    own_modules: Path, sweep_command: Command
) -> None:
    launchers = ("ray", "inline", "spawn", "torchrun")
    flags = ("--train", "mine_imports:train", "--launcher", *launchers, "--repeats", "1", "--out", "out")
    done = sweep_command("grid", *flags)
    assert done.returncode == 0, done.stdout + done.stderr
    records = load(own_modules / "out").records
    measures = {record.config["launcher"]: (record.metrics["sum"], record.metrics["others"]) for record in records}
    assert measures == dict.fromkeys(launchers, (6, 0))


def test_a_switch_that_stands_alone_is_on(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--dry-run", "--repeats", "1", "--zero-redundancy", "--world-size", "2", "--oversubscribe") == 0
    alone = capsys.readouterr().out
    assert run("--dry-run", "--repeats", "1", "--zero-redundancy", "true", "--world-size", "2", "--oversubscribe") == 0
    assert capsys.readouterr().out == alone
    assert run("--dry-run", "--repeats", "1", "--zero-redundancy", "maybe") == 2
    assert "--zero-redundancy maybe: expected bool" in capsys.readouterr().err


def test_a_flag_for_what_variants_change_asks_for_a_grid_in_their_place(capsys: pytest.CaptureFixture[str]) -> None:
    variants = [{}, {"dropout": 0.3}, {"l1": 0.1}]
    assert run("--dry-run", "--repeats", "1", variants=variants) == 0
    assert capsys.readouterr().out.startswith("6 runs")
    assert run("--dry-run", "--repeats", "1", "--dropout", "0.1", "0.2", variants=variants) == 0
    assert capsys.readouterr().out.startswith("4 runs")
