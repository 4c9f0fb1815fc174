"""The reading of a program's flags: which parsers it meets, and where it ends instead of doing anything."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from dmls_ray.util.errors import UserCodeError
from dmls_ray.workloads.script.flags import FlagReader

Read = Callable[..., FlagReader]

PARSES = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=16)
parser.parse_args()
"""
WENT_ON = "\nraise SystemExit('went on')\n"


@pytest.fixture
def read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Read]:
    """Reads the flags of a source as `train.py` in the working folder."""
    monkeypatch.chdir(tmp_path)
    readers = []

    def read(source: str, words: Sequence[str] = (), program: str = "train.py", **how: object) -> FlagReader:
        (tmp_path / "train.py").write_text(textwrap.dedent(source))
        readers.append(FlagReader(program, words, **how))  # type: ignore[arg-type]
        return readers[-1]

    yield read
    for reader in readers:
        reader.close()


@pytest.mark.parametrize(
    ("effect", "reason"),
    [
        ("open('trained.log', 'a')", "it opens trained.log for writing (train.py, line 2)"),
        ("import os; os.makedirs('out/a', exist_ok=True)", "it makes the folder out"),
        ("import os; os.remove('kept.txt')", "it removes kept.txt"),
        ("import os; os.replace('kept.txt', 'other.txt')", "it renames kept.txt"),
        ("import pathlib; pathlib.Path('kept.txt').write_text('')", "it opens kept.txt for writing"),
        ("import shutil; shutil.copy('kept.txt', 'other.txt')", "it opens other.txt for writing"),
        ("import sqlite3; sqlite3.connect('runs.db')", "it opens the database runs.db"),
        ("import os, sys; os.execv(sys.executable, [sys.executable, 'train.py'])", "it replaces its process"),
        ("import os, sys; os.system('touch out')", "it starts a process"),
        ("import subprocess; subprocess.run(['touch', 'out'])", "it starts a process"),
        ("import os\nif os.fork() == 0: open('out', 'w')", "it starts a process"),
        ("import multiprocessing as mp; mp.Manager()", "it starts a process"),
        ("import multiprocessing as mp; mp.get_context('spawn').Process(target=print).start()", "it starts a process"),
        ("import socket; socket.create_connection(('127.0.0.1', 9))", "it connects to a server"),
        ("print('argv')", "it ends"),
    ],
)
def test_a_program_is_ended_before_it_does_anything_and_has_no_known_flags(
    read: Read, tmp_path: Path, effect: str, reason: str
) -> None:
    (tmp_path / "kept.txt").write_text("kept")
    reader = read(f"\n{effect}\n{PARSES if reason != 'it ends' else ''}{WENT_ON if reason != 'it ends' else ''}")
    assert reader.flags == {}
    assert reader.unknown_because.startswith(reason)
    assert sorted(os.listdir(tmp_path)) == ["kept.txt", "train.py"]
    assert (tmp_path / "kept.txt").read_text() == "kept"


def test_reading_files_and_temporary_files_does_not_end_it(read: Read, tmp_path: Path) -> None:
    (tmp_path / "config.txt").write_text("24")
    (tmp_path / "out").mkdir()
    (tmp_path / "helper.py").write_text("VALUE = 1")
    reader = read("""
        import argparse, os, tempfile
        import helper
        default = int(open("config.txt").read())
        os.makedirs("out", exist_ok=True)
        tempfile.NamedTemporaryFile().write(b"x")
        open(os.devnull, "w").write("x")
        parser = argparse.ArgumentParser()
        parser.add_argument("--batch-size", type=int, default=default)
        parser.parse_args()
        raise SystemExit("went on")
    """)
    assert reader.specs["batch_size"].default == 24
    assert sorted(os.listdir(tmp_path)) == ["config.txt", "helper.py", "out", "train.py"]  # and no __pycache__


def test_installed_packages_may_write_while_they_are_imported(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site-packages"
    package.mkdir()
    (package / "caching.py").write_text(f"open({str(tmp_path / 'cache')!r}, 'w')\ndef save(): open('out', 'w')")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(package), *sys.path]))
    assert set(read("import caching" + PARSES).flags) == {"batch_size"}
    assert (tmp_path / "cache").exists()
    assert "it opens out for writing" in read("import caching\ncaching.save()" + PARSES).unknown_because


def test_it_is_ended_before_it_trains() -> None:
    code = """
import torch
from dmls_ray.workloads.script.stops import stop_before_training

class Stopped(Exception): pass
def stop(reason): raise Stopped(reason)
stop_before_training(torch, stop)

from torch.distributed import init_process_group
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for effect in (
    lambda: model(torch.ones(1, 2)).sum().backward(),
    lambda: torch.func.grad(torch.sum)(torch.ones(2)),
    lambda: torch.autograd.grad(model(torch.ones(1, 2)).sum(), model.weight),
    optimizer.step,
    lambda: next(iter(torch.utils.data.DataLoader([1, 2]))),
    lambda: init_process_group("gloo"),
    lambda: torch.save(1, "weights.pt"),
):
    try:
        effect()
    except Stopped as stopped:
        print(stopped)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        "makes a backward pass",
        "computes gradients",
        "computes gradients",
        "makes an optimizer step",
        "reads from a DataLoader",
        "makes a process group",
        "saves by torch.save",
    ]


def test_it_is_ended_after_a_time_in_which_imports_do_not_count(
    read: Read, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dmls_ray.workloads.script import stops

    (tmp_path / "slow.py").write_text("import time\ntime.sleep(1.0)")
    (tmp_path / "sitecustomize.py").write_text("import dmls_ray.workloads.script.stops as s\ns.OWN_TIME_S = 0.5")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
    assert stops.OWN_TIME_S == 20
    assert set(read("import slow" + PARSES).flags) == {"batch_size"}
    assert "it runs for 0.5 s" in read("import time\ntime.sleep(600)" + PARSES).unknown_because


def test_what_fails_before_it_reads_its_command_line_is_refused_with_its_last_line(read: Read) -> None:
    with pytest.raises(UserCodeError, match="failed before it read its command line: ValueError: no data"):
        read("raise ValueError('no data')" + PARSES)
    with pytest.raises(UserCodeError, match="EOFError"):  # nobody answers, as in a run
        read("input()" + PARSES)
    with pytest.raises(UserCodeError, match="give the name"):
        read("import sys\nsys.exit('give the name')" + PARSES)
    # In a run, braces are filled.
    assert "fails with braces" in read("import sys\nint(sys.argv[1])", ["{bs}"]).unknown_because


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x = 1\nraise ValueError('no data\\nat all')", r"ValueError: no data \(\w+.py, line 2\)\.$"),
        ("x = 1\ny = = 2", r"SyntaxError: invalid syntax \(\w+.py, line 2\)\.$"),
        ("import wrong", r"SyntaxError: invalid syntax \(wrong.py, line 3\)\.$"),
        ("raise SystemError", r": SystemError \(\w+.py, line 1\)\.$"),
    ],
)
def test_what_fails_before_it_reads_its_command_line_is_named_with_its_line(
    read: Read, tmp_path: Path, source: str, said: str
) -> None:
    (tmp_path / "wrong.py").write_text("x = 1\n\ny = = 2", encoding="utf-8")
    with pytest.raises(UserCodeError, match=said):
        read(source + PARSES)


def test_variables_that_it_reads_first_are_set(read: Read) -> None:
    rank = "import os\nrank = int(os.environ['LOCAL_RANK'])"
    assert set(read(rank + PARSES).flags) == {"batch_size"}
    variable = "import os\nsize = int(os.environ['SIZE'])"
    assert set(read(variable + PARSES, variables={"SIZE": "3"}).flags) == {"batch_size"}


def test_a_program_without_a_word_of_parsing_is_not_started(read: Read) -> None:
    assert read("raise ValueError('started')").unknown_because == "nothing in it looks like a parser"


def test_a_flag_is_named_by_any_of_its_long_options(read: Read) -> None:
    reader = read("""
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("-b", "--batch_size", "--bs", type=int, default=16)
        parser.add_argument("--no-shuffle", dest="shuffle", action="store_false")
        parser.parse_args()
    """)
    assert set(reader.flags) == {"batch_size", "no_shuffle"}
    assert reader.aliases == {"bs": "batch_size"}
    assert reader.specs["no_shuffle"].default is False


SUBCOMMANDS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--verbose", action="store_true")
commands = parser.add_subparsers(dest="command", required=True)
train = commands.add_parser("train")
train.add_argument("--batch-size", type=int, required=True)
train.add_argument("--lr", type=float)
commands.add_parser("test").add_argument("--checkpoint")
parser.parse_args()
"""


def test_the_words_choose_the_subcommand_whose_flags_are_read(read: Read) -> None:
    reader = read(SUBCOMMANDS, ["--verbose", "train", "--lr", "0.1"])
    assert set(reader.flags) == {"batch_size", "lr"}
    assert (reader.flags["lr"].given, reader.flags["lr"].places) == (("0.1",), (2, 3))
    assert reader.error_of(["train", "--batch-size", "4"]) == ""
    assert "invalid int value: 'x'" in reader.error_of(["train", "--batch-size", "x"])
    reader = read(SUBCOMMANDS)
    assert set(reader.flags) == {"verbose"}
    assert "--batch-size" in reader.subcommands["train"]


CLICK = """
import click

@click.group()
@click.option("--verbose", is_flag=True)
def cli(verbose):
    raise SystemExit("went on")

@cli.command()
@click.option("-b", "--batch-size", "--bs", default=16, help="samples")
@click.option("--amp/--full", default=False)
@click.option("--opt", type=click.Choice(["sgd", "adam"]), default="sgd")
@click.argument("data")
def train(batch_size, amp, opt, data):
    raise SystemExit("went on")

cli()
"""


def test_options_of_click_are_flags(read: Read) -> None:
    pytest.importorskip("click")
    reader = read(CLICK, ["--verbose", "train", "data", "--opt=adam"])
    assert {name: flag.kind for name, flag in reader.flags.items()} == {
        "batch_size": "value",
        "amp": "bool",
        "opt": "value",
    }
    assert reader.flags["amp"].words(value=False) == ["--full"]
    assert (reader.flags["opt"].given, reader.flags["opt"].places) == (("adam",), (3,))
    assert (reader.specs["batch_size"].type, reader.specs["batch_size"].help) == ("int", "samples")
    assert reader.specs["opt"].choices == ("sgd", "adam")
    assert reader.aliases == {"bs": "batch_size"}
    assert reader.error_of(["train", "data", "--batch-size", "4"]) == ""
    assert "'x' is not a valid integer" in reader.error_of(["train", "data", "--batch-size", "x"])
    assert set(read(CLICK).subcommands) == {"train"}


@pytest.mark.parametrize(
    ("library", "source"),
    [
        (
            "absl",
            """
            from absl import app, flags
            flags.DEFINE_integer("batch_size", 16, "samples")
            flags.DEFINE_boolean("amp", False, "format")
            app.run(lambda words: open("out", "w"))
            """,
        ),
        (
            "typer",
            """
            import typer
            def main(batch_size: int = 16, amp: bool = False): open("out", "w")
            typer.run(main)
            """,
        ),
        (
            "tyro",
            """
            import tyro
            def main(batch_size: int = 16, amp: bool = False): open("out", "w")
            tyro.cli(main)
            """,
        ),
        (
            "jsonargparse",
            """
            from jsonargparse import auto_cli
            def main(batch_size: int = 16, amp: bool = False): open("out", "w")
            auto_cli(main)
            """,
        ),
        (
            "simple_parsing",
            """
            import dataclasses, simple_parsing
            @dataclasses.dataclass
            class Arguments:
                batch_size: int = 16
                amp: bool = False
            simple_parsing.parse(Arguments)
            open("out", "w")
            """,
        ),
        (
            "configargparse",
            """
            import configargparse
            parser = configargparse.ArgParser(default_config_files=["train.cfg"])
            parser.add_argument("--batch_size", type=int, default=16, env_var="BATCH")
            parser.add_argument("--amp", action="store_true")
            parser.parse_args()
            """,
        ),
    ],
)
def test_flags_of_other_libraries_are_read(read: Read, library: str, source: str) -> None:
    if importlib.util.find_spec(library) is None:
        pytest.skip(f"{library} is not installed")
    reader = read(source)
    assert {"batch_size", "amp"} <= reader.flags.keys(), reader.unknown_because
    option = reader.flags["batch_size"].option
    assert reader.error_of([option, "4", *reader.flags["amp"].words(value=True)]) == ""
    assert reader.error_of([option, "4", "--nope", "1"]) != ""


def test_a_type_that_writes_writes_nothing_when_values_are_checked(read: Read, tmp_path: Path) -> None:
    reader = read("""
        import argparse
        parser = argparse.ArgumentParser()
        parser.add_argument("--log", type=argparse.FileType("w"))
        parser.parse_args()
    """)
    assert reader.error_of(["--log", "kept.txt"]) == ""
    assert os.listdir(tmp_path) == ["train.py"]


def test_a_module_is_read_as_python_runs_it(read: Read, tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").write_text("")
    (tmp_path / "package" / "model.py").write_text("WIDTH = 8")
    source = "from .model import WIDTH\nassert __package__ == 'package'" + PARSES + WENT_ON
    (tmp_path / "package" / "train.py").write_text(source)
    assert set(read("", program="-m package.train").flags) == {"batch_size"}
    with pytest.raises(UserCodeError, match=r"give -m package\.train\."):
        read("", program="package/train.py")
    (tmp_path / "package" / "__main__.py").write_text(source)
    assert set(read("", program="-m package").flags) == {"batch_size"}


@pytest.mark.parametrize("load", ["import torch", "import importlib; torch = importlib.import_module('torch')"])
def test_a_program_that_trains_is_ended_however_it_imports_pytorch(read: Read, load: str) -> None:
    reader = read(f"{load}\ntorch.ones(1, requires_grad=True).sum().backward()\nopen('log', 'w')\n# argv")
    assert "it makes a backward pass (train.py, line 2)" in reader.unknown_because
