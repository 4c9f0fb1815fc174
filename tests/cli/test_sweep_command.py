"""`dmls-ray sweep WHAT`: scripts, functions and presets, from the command line and from Python."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch

from dmls_ray import load, sweep
from dmls_ray.cli.ab import _asked
from dmls_ray.cli.call import Call
from dmls_ray.cli.presets import PRESETS
from dmls_ray.execution.supervisor import Heartbeat
from dmls_ray.util.errors import ConfigError
from tests.conftest import PROJECT, Command

SCRIPT = """
import argparse

print("more than a pipe holds " * 10_000)
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16, help="samples of a step")
parser.add_argument("--opt", choices=["sgd", "adam"], default="sgd")
parser.add_argument("--amp", action="store_true")
parser.add_argument("--steps", type=int)
parser.add_argument("--seed", type=int, default=0)
parser.add_argument("--data", required=True)
given = parser.parse_args()

import torch

torch.manual_seed(given.seed)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for number in range(10**6):
    optimizer.zero_grad()
    model(torch.randn(given.batch_size, 8)).square().mean().backward()
    optimizer.step()
    if number % 10 == 0:
        print("step", number)
"""


COMMANDS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_subparsers(required=True).add_parser("train").add_argument("--batch-size", "--bs", type=int)
parser.parse_args()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text(SCRIPT)
    (tmp_path / "plain.py").write_text("train()")
    (tmp_path / "writes.py").write_text("open('log', 'w')\nimport argparse")
    (tmp_path / "commands.py").write_text(COMMANDS)
    (tmp_path / "bad.toml").write_text('script = "train.py"\nrepeat = 3')
    (tmp_path / "nothing.toml").write_text("repeats = 3")
    (tmp_path / "axis.toml").write_text('script = "train.py"\nargs = ["--data", "d"]\n[axes]\nbatch_sise = [16]')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def dmls_ray(*words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dmls_ray", *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=None, check=False)


def test_the_names_of_presets_are_those_of_the_scripts_in_sweeps() -> None:
    assert sorted(PRESETS) == sorted(path.stem for path in (PROJECT / "sweeps").glob("*.py"))


def test_a_shell_sees_the_exit_code_of_help_and_of_wrong_usage(tmp_path: Path) -> None:
    """Both end in the parser, in the process that the supervisor starts."""
    assert dmls_ray("sweep", "--help", folder=tmp_path).returncode == 0
    assert dmls_ray("sweep", "batch_size", "--repeat", "3", folder=tmp_path).returncode == 2


@pytest.mark.parametrize("words", [["sweep"], ["sweep", "--help"]])
def test_help_says_what_can_be_swept(typed: Command, words: list[str]) -> None:
    shown = typed(*words)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "train.py" in shown.stdout
    assert "batch_size, critical_batch" in shown.stdout


def test_help_shows_the_flags_of_the_script(folder: Path, typed: Command) -> None:
    shown = typed("sweep", "train.py", "--help")
    assert shown.returncode == 0, shown.stderr
    texts = "--batch-size INT|samples of a step|--opt {sgd,adam}|--amp|--script-steps INT|--steps VALUE"
    assert all(text in shown.stdout for text in texts.split("|"))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("sweep missing.py", "missing.py: there is no such file"),
        ("sweep batch_siz", "did you mean batch_size?"),
        ("sweep train.py --batch-sise 16 -- --data d", "did you mean --batch-size"),
        ("sweep train.py --opt rmsprop -- --data d", "--opt rmsprop is unknown; choose from sgd, adam"),
        ("sweep train.py --batch-size x -- --data d", "--batch-size x: expected int"),
        ("sweep train.py --batch_size x -- --data d", "--batch-size x: expected int"),  # as the script writes it
        ("sweep train.py --batch-size 16", "the following arguments are required: --data"),
        ("sweep train.py --batch-size 16 -- --data d --lr 1", "unrecognized arguments: --lr 1"),
        ("sweep train.py --batch-size 16 -- --data d --batch-s=8", "--batch-size is given before -- and after it"),
        ("sweep train.py --batch-size 16 -- --data d --dry-run", "--dry-run is a flag of dmls-ray"),
        ("sweep train.py --set rate 1 2 -- --data d", "A name in braces among the words after -- is a field"),
        ("sweep train.py --gpus 1 2 -- --data d", "--gpus is no flag; did you mean --world-size?"),
        ("sweep plain.py --gpus 1 2", "--gpus is no flag of dmls-ray; did you mean --world-size? Those of plain.py"),
        ("sweep plain.py --batch_size 2 4", "--set batch_size 2 4 -- --batch_size={batch_size}."),
        ("sweep plain.py --batch_size 2 4 -- x", "--set batch_size 2 4 -- x --batch_size={batch_size}."),
        ("sweep plain.py --num-workers=2", "(nothing in it looks like a parser); as it writes them: --set num_workers"),
        ("sweep writes.py --bs 2 4", "(it opens log for writing (writes.py, line 1) before a parser"),
        ("sweep train.py --rate 1 2 -- --data d", "one that train.py reads by itself: --set rate 1 2 -- --data d --r"),
        ("sweep commands.py --bs 2 4", "--bs is a flag of commands.py train: give its subcommand after --"),
        ("sweep commands.py --batch-size x -- train", "--batch-size x: expected int"),
        ("sweep commands.py", "the following arguments are required"),
        ("sweep plain.py -- n={other}", "{other} among the words after -- is filled by nothing; give --set other"),
        ("sweep plain.py --set other 1", "other is no field of plain.py"),
        ("sweep plain.py --env seed=1,2", "--env seed: a setting or a flag of plain.py has this name"),
        ("sweep plain.py --samples batch*2", "--samples batch*2: there is no flag or field batch"),
        ("sweep -m", "dmls-ray sweep: -m names no module"),
        ("sweep -m missing.train", "-m missing.train: there is no such file"),
        ("sweep train.py --batch-size max:2 -- --data d", "batch_size=max:2: a share is above 0 and at most 1"),
        ("sweep train.py --batch-size max --dry-run -- --data d", "--batch-size max is found by short runs"),
        ("sweep train.py --batch-size max --script-steps max -- --data d", "--script-steps max depend on each other"),
        ("sweep missing.toml", "missing.toml cannot be read"),
        ("sweep bad.toml", "bad.toml: repeat is no key of a sweep; did you mean repeats?"),
        ("sweep nothing.toml", "nothing.toml: it names nothing to run; give one of script, command, train"),
        ("sweep axis.toml", "batch_sise is no field of train.py; did you mean batch_size?"),
        ("sweep train.py --env OMP_NUM_THREADS -- --data d", "--env OMP_NUM_THREADS has no value"),
        ("sweep train.py --metric-regex loss ( -- --data d", "is no regular expression"),
        ("sweep train.py --share plain.py -- --data d", "--share plain.py is for runs of a --revision"),
        ("sweep batch_size --share plain.py", "--share plain.py is for a script with --revision"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line_before_anything_starts(folder: Path, words: str, line: str, typed: Command) -> None:
    done = typed(*words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_sweep_of_a_script_measures_it_and_keeps_what_it_prints(folder: Path, typed: Command) -> None:
    words = "--batch-size 8 64 --env MODE=a --env OTHER=b --repeats 3 --steps 20 --out out"
    flags = words.split()
    done = dmls_ray("sweep", "train.py", *flags, "--", "--data", "d", folder=folder)
    assert done.returncode == 0, done.stderr
    assert "batch_size 64 vs 8" in done.stdout
    results = load(folder / "out")
    assert [record.outcome.value for record in results.records] == ["ok"] * 6
    for record in results.records:
        assert record.metrics["steps"] == 20
        assert (record.config["MODE"], record.config["OTHER"]) == ("a", "b")
        assert record.metrics["samples_per_step"] == record.config["batch_size"]
        log = (folder / "out" / record.folder / "rank0.log").read_text()
        assert "step 10" in log
    # Each repeat has its own seed, and both trials of a block have the same.
    assert len({record.metrics["first_loss"] for record in results.records}) == 6
    assert "step 10" in typed("show", results.records[0].run_id, "out").stdout
    assert "all runs have ended before" in typed("sweep", "train.py", *flags, "--", "--data", "d").stdout
    done = typed("sweep", "out/sweep.toml", "--format", "json")
    answer = json.loads(done.stdout)
    assert "all runs have ended before" in done.stderr
    assert (answer["schema"], answer["kind"], answer["folder"]) == (1, "sweep", "out")
    assert {effect["pair"] for effect in answer["effects"]} == {"batch_size 64 vs 8"}
    small, large = answer["trials"]
    assert (small["values"], small["n"]) == ({"batch_size": 8}, 3)
    rate = large["metrics"]["samples_per_s"]
    assert rate["low"] <= rate["value"] <= rate["high"]
    shares = typed("table", "out", "--columns", "tflop_per_s", "mfu", "hfu", "--format", "csv").stdout
    _, *rows = (line.split(",") for line in shares.splitlines())
    assert len(rows) == 2
    assert all(0 < float(mfu) <= float(hfu) < 1 for *_, mfu, hfu in rows)
    other = typed("sweep", "out/sweep.toml", "--batch-size", "16", "--dry-run")
    assert "3 runs in 3 blocks" in other.stdout


def test_an_edited_script_makes_other_trials(folder: Path) -> None:
    from dmls_ray.util.digests import source_digests

    before = source_digests([str(folder / "train.py")])
    (folder / "train.py").write_text(SCRIPT.replace("lr=0.01", "lr=0.02"))
    assert source_digests([str(folder / "train.py")]) != before


def test_arguments_of_a_script_are_for_a_script(folder: Path) -> None:
    with pytest.raises(ConfigError, match="args, env and share are those of a script"):
        sweep({"batch_per_rank": 8}, args=["--lr", "1"])


def test_help_says_where_flags_are_not_known_and_what_works(folder: Path, typed: Command) -> None:
    shown = typed("sweep", "writes.py", "--help")
    assert shown.returncode == 0, shown.stderr
    text = " ".join(shown.stdout.split())
    assert "The flags of writes.py are not known: it opens log for writing (writes.py, line 1)" in text
    assert "--set batch 16 32 -- --batch_size={batch}, and --env NAME=1,2" in text
    assert not (folder / "log").exists()


def test_any_name_of_a_flag_and_a_subcommand_make_a_plan(folder: Path, typed: Command) -> None:
    done = typed("sweep", "commands.py", "--bs", "2", "4", "--dry-run", "--", "train")
    assert "batch_size=4" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("main -- sweep train.py", "dmls-ray ab main: name two revisions"),
        ("main main -- sweep train.py", "dmls-ray ab main main: name two revisions"),
        ("main next main -- sweep train.py", "dmls-ray ab main next main: name two revisions"),
        ("main next -- sweep train.py --revision v1", "dmls-ray ab main next: name two revisions"),
        ("main next sweep train.py", "dmls-ray ab main next sweep train.py: name two revisions"),
        ("main next -- train.py", "dmls-ray ab main next: say after -- which script is run"),
        ("main next -- sweep batch_size", "dmls-ray ab main next: say after -- which script is run"),
        (
            "main next -- sweep train.py --batch-size max -- --data d",
            "--batch-size max may differ between the revisions",
        ),
        ("main next -- sweep train.py -- --data d", "--revision main: train.py is in no git repository"),
        ("main next --share d -- sweep train.py -- --data d", "--revision main: train.py is in no git repository"),
        ("main next -- command", "dmls-ray ab main next: say after -- which script is run, or which command"),
        ("main next -- sleep 1", "dmls-ray ab main next: say after -- which script is run, or which command"),
        ("main next -- command sleep --revision v1", "is in no git repository"),
        ("main next --revision v1 -- command sleep 1", "dmls-ray ab main next: name two revisions"),
        ("main next --train a:b -- command sleep 1", "--train and --workload take the place of sleep"),
        ("main next --steps 5 -- command sleep 1", "-- command sleep 1: --steps"),
    ],
)
def test_ab_refuses_wrong_words_in_one_line(folder: Path, words: str, line: str, typed: Command) -> None:
    done = typed("ab", *words.split())
    assert (done.returncode, done.stdout) == (2, "")
    assert line in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_flag_of_the_script_makes_no_metric_of_ab() -> None:
    allowed = []
    for words in ("-- sweep train.py -- --metric x", "-- sweep train.py", "--metric x -- sweep train.py"):
        preset, _, _ = _asked(Call("dmls-ray ab", ["a", "b", *words.split()], Heartbeat()))
        allowed.append(preset.options.get("equivalent"))
    assert allowed == [None, None, 0.0]


@pytest.mark.slow
def test_ab_discards_a_revision_that_is_slower_and_keeps_one_that_is_not(folder: Path) -> None:
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@b.c"]
    code = (folder / "train.py").read_text().replace("import torch\n", "import time\nimport torch\n")
    for name, waits in (("old", 0.010), ("slow", 0.013), ("same", 0.010)):
        (folder / "train.py").write_text(code.replace("for number", f"# {name}\nfor number"))
        waiting = f"    optimizer.step()\n    time.sleep({waits})\n"
        text = (folder / "train.py").read_text().replace("    optimizer.step()\n", waiting)
        (folder / "train.py").write_text(text)
        for words in (["init", "--quiet"], ["add", "train.py"], ["commit", "--quiet", "-m", name], ["tag", name]):
            subprocess.run([*git, *words], cwd=folder, check=True)
    how = ["--format", "json", "--out", "out", "--equivalent", "10%"]
    for name, code_of_exit, word in (("slow", 3, "discard"), ("same", 0, "keep")):
        done = dmls_ray("ab", "old", name, *how, "--", "sweep", "train.py", "--", "--data", "d", folder=folder)
        assert done.returncode == code_of_exit, done.stderr
        found = json.loads(done.stdout)
        assert (found["kind"], found["verdict"], found["exit_code"]) == ("ab", word, code_of_exit)
        (speed,) = found["judged"]
        assert speed["low"] <= speed["value"] <= speed["high"]
        # The first revision has runs of the call before, which this one does not take.
        assert [trial["n"] for trial in found["trials"]] == [speed["n"]] * 2
        assert speed["n"] >= 3
    written = ["--format", "github", "--out", "out", "--equivalent", "10%"]
    done = dmls_ray("ab", "old", "same", *written, "--", "sweep", "train.py", "--", "--data", "d", folder=folder)
    assert done.stdout.splitlines()[-1].startswith("::notice title=dmls-ray ab old same::keep: same is ")
    git_state = subprocess.run(["git", "worktree", "list"], cwd=folder, capture_output=True, text=True, check=True)
    assert len(git_state.stdout.splitlines()) == 1


LEARNS = """
import argparse
import random
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int, default=0)
args = parser.parse_args()
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
model(torch.ones(1, 1)).mean().backward()
optimizer.step()
print(f"score {random.Random(f'GAIN {args.seed}').gauss(0, 1) + GAIN:.4f} with seed {args.seed}")
"""


@pytest.mark.slow
def test_ab_keeps_a_revision_whose_metric_is_better_beyond_chance_and_confirms_it_with_other_seeds(
    tmp_path: Path,
) -> None:
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@b.c"]
    for name, gain in (("old", "0.0"), ("better", "2.0"), ("worse", "-2.0"), ("same", "0")):
        (tmp_path / "train.py").write_text(LEARNS.replace("GAIN", gain))
        for words in (["init", "--quiet"], ["add", "train.py"], ["commit", "--quiet", "-m", name], ["tag", name]):
            subprocess.run([*git, *words], cwd=tmp_path, check=True)
    how = ["--metric", "score", "--metric-regex", "score", r"score (\S+)", "--format", "json", "--max-repeats", "12"]
    script = ["--", "sweep", "train.py", "--steps", "none"]
    done = dmls_ray("ab", "old", "better", *how, *script, folder=tmp_path)
    assert done.returncode == 2, "whether more is better is not known"
    assert "--goal" in done.stderr
    seeds = {}
    for name, flags, word, code in (
        ("better", [], "keep", 0),
        ("worse", [], "discard", 3),
        ("same", [], "cannot say", 4),
        ("better", ["--confirm"], "keep", 0),
    ):
        out = f"{name}{''.join(flags)}"
        given = [*how, "--goal", "max", "--out", out, *flags]
        done = dmls_ray("ab", "old", name, *given, *script, folder=tmp_path)
        assert done.returncode == code, (name, done.stdout, done.stderr)
        found = json.loads(done.stdout)
        assert (found["verdict"], found["allowed"]) == (word, None)
        (effect,) = found["judged"]
        assert effect["metric"] == "score"
        lines = (tmp_path / out / "runs.jsonl").read_text().splitlines()
        seeds[out] = {json.loads(line)["seed"] for line in lines}
        assert len(seeds[out]) >= 3, "each repeat has a seed of its own"
    assert not seeds["better"] & seeds["better--confirm"]


BENCH = """#!/bin/sh
sleep WAIT
[ -e broken.txt ] && echo "no such library" >&2 && exit 7
echo "score $((DMLS_RAY_SEED % 97 + GAIN)) of $1"
"""


@pytest.mark.slow
def test_ab_judges_revisions_of_a_command_by_its_time_and_by_a_number_that_it_prints(tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@b.c"]
    bench = tmp_path / "bench.sh"

    def write(wait: str, gain: int) -> None:
        bench.write_text(BENCH.replace("WAIT", wait).replace("GAIN", str(gain)))
        bench.chmod(0o755)

    for name, wait, gain in (("old", "0.3", 0), ("slow", "0.5", 0), ("same", "0.30", 0), ("better", "0.3", 200)):
        write(wait, gain)
        for words in (["init", "--quiet"], ["add", "bench.sh"], ["commit", "--quiet", "-m", name], ["tag", name]):
            subprocess.run([*git, *words], cwd=tmp_path, check=True)

    def ab(first: str, second: str, *flags: str) -> tuple[int, dict[str, Any]]:
        command = ["--", "command", "./bench.sh", "a b", "--repeats", "3"]  # a flag of its own
        done = dmls_ray("ab", first, second, "--format", "json", "--out", "out", *flags, *command, folder=tmp_path)
        assert done.stdout, done.stderr
        found = json.loads(done.stdout)
        assert found["exit_code"] == done.returncode
        return done.returncode, found

    by_time = ("--equivalent", "25%")
    assert ab("old", "slow", *by_time)[0] == 3
    assert ab("old", "same", *by_time)[0] == 0
    by_score = ("--metric-regex", "score", r"score (\S+) of a b", "--metric", "score", "--max-repeats", "12")
    assert ab("old", "better", *by_score, "--goal", "max")[0] == 0
    assert ab("old", "better", *by_score, "--goal", "min")[0] == 3

    # As they are: like the last commit, then slower, which no run from before stands for.
    assert ab("better", ".", *by_time)[0] == 0
    write("0.6", 200)
    assert ab("better", ".", *by_time)[0] == 3
    (tmp_path / "broken.txt").touch()
    code, found = ab("old", ".", "--repeats", "1")
    assert (code, found["verdict"]) == (1, "failed"), "the file is in the copies of both"
    records = [json.loads(line) for line in (tmp_path / "out" / "runs.jsonl").read_text().splitlines()]
    as_they_are = [record for record in records if record["config"]["revision"] == "."]
    assert len({record["trial_id"] for record in as_they_are}) == 3
    assert as_they_are[-1]["reason"] == "exit code 7: no such library"


RESUMES = """
import os
import torch

os.makedirs("ckpt", exist_ok=True)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
step = torch.load("ckpt/latest.pt")["step"] if os.path.exists("ckpt/latest.pt") else 0
print("resumed from step", step)
while True:
    optimizer.zero_grad()
    model(torch.randn(4, 8)).square().mean().backward()
    optimizer.step()
    step += 1
    if step % 10 == 0:
        torch.save({"step": step}, "ckpt/latest.pt")
"""


@pytest.mark.slow
def test_ab_leaves_the_users_checkpoint_alone_and_a_sweep_names_one_that_runs_go_on_from(tmp_path: Path) -> None:
    git = ["git", "-c", "user.name=A", "-c", "user.email=a@b.c"]
    (tmp_path / ".gitignore").write_text("ckpt/\nresults/\n")
    for name in ("one", "two"):
        (tmp_path / "train.py").write_text(f"# {name}\n{RESUMES}")
        for words in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "-m", name]):
            subprocess.run([*git, *words], cwd=tmp_path, check=True)
    checkpoint = tmp_path / "ckpt" / "latest.pt"
    checkpoint.parent.mkdir()
    torch.save({"step": 400}, checkpoint)
    before = checkpoint.read_bytes(), checkpoint.stat().st_mtime_ns
    how = ["--repeats", "2", "--out", "results/ab", "--", "sweep", "train.py"]
    done = dmls_ray("ab", "HEAD~1", "HEAD", *how, folder=tmp_path)
    assert "Runs wrote ckpt/latest.pt in copies of the repository; your files are unchanged" in done.stdout, done.stderr
    assert (checkpoint.read_bytes(), checkpoint.stat().st_mtime_ns) == before
    logs = [*(tmp_path / "results" / "ab" / "runs").glob("*/rank0.log")]
    assert [log.read_text().splitlines()[0] for log in logs] == ["resumed from step 400"] * 4

    (tmp_path / "train.py").write_text(f"# three\n{RESUMES}")
    done = dmls_ray("ab", "HEAD", ".", *how, folder=tmp_path)
    lines = (tmp_path / "results" / "ab" / "runs.jsonl").read_text().splitlines()
    sessions = Counter(json.loads(line)["session"] for line in lines)
    assert [*sessions.values()] == [4, 4], "HEAD is measured again, beside the files as they are"
    assert "revision . vs HEAD" in done.stdout, done.stderr
    assert "1 comparison" not in done.stdout, "the last line says what is open"

    done = dmls_ray("sweep", "train.py", "--repeats", "2", "--out", "results/plain", folder=tmp_path)
    assert "Runs read files that earlier runs wrote (ckpt/latest.pt), so they may resume" in done.stdout, done.stderr


def test_a_library_that_cannot_be_imported_is_refused_before_anything_starts(folder: Path, typed: Command) -> None:
    done = typed("sweep", "train.py", "--preload", "not_installed", "--out", "out", "--", "--data", "/d")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--preload not_installed: ModuleNotFoundError: No module named 'not_installed'" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (folder / "out").exists()
    done = typed("sweep", "batch_size", "--preload", "psutil", "--out", "out")
    assert (done.returncode, "--preload psutil is for scripts and functions" in done.stderr) == (2, True)


@pytest.mark.slow
def test_a_library_is_imported_once_for_all_runs_which_stay_the_same_trial(tmp_path: Path) -> None:
    libraries = tmp_path / "site-packages"
    libraries.mkdir()
    (libraries / "heavy_library.py").write_text("import time\ntime.sleep(2)\n")
    loop = SCRIPT.replace("import torch\n", "import heavy_library, torch\n").replace("required=True", "default='/d'")
    (tmp_path / "train.py").write_text(loop)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(libraries), str(PROJECT)])}
    trials, said = {}, {}
    for name, words in (("without", []), ("with", ["--preload", "heavy_library"])):
        command = [sys.executable, "-m", "dmls_ray", "sweep", "train.py", "--repeats", "2", "--out", name, *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        said[name] = re.findall("Set-up takes .* --preload", done.stdout)
        trials[name] = load(tmp_path / name).records
    assert all(record.metrics["setup_s"] > 2 for record in trials["without"])
    assert all(record.metrics["setup_s"] < 2 for record in trials["with"])
    assert [record.run_id for record in trials["without"]] == [record.run_id for record in trials["with"]]
    assert (len(said["without"]), said["with"]) == (1, [])
