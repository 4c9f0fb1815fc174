"""Attacks by a hostile results folder, one for each promise of SECURITY.md; other tests cover the other modules."""

from __future__ import annotations

import ast
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dmls_ray.analysis.results import load
from dmls_ray.storage.folder import Store
from dmls_ray.storage.sweep_file import read_sweep
from dmls_ray.util.errors import StoreError
from dmls_ray.util.text import escape_control_chars
from tests.analysis.samples import results
from tests.cli.test_main import keep, run
from tests.conftest import PROJECT
from tests.storage.reading import latest_records

ESCAPE = "\x1b]0;owned\x07\x1b[2J\r\u202e\x9b31m"
"""Sets the title of a terminal, clears the screen and reverses the text that follows."""
FORMULA = "=cmd|' /C calc'!A0"
NASTY = f"{FORMULA}{ESCAPE}[red]<img src=x onerror=alert(1)>[a](javascript:alert(1)) $\\frac{{ \\input{{x}}"
PIXELS = "![](https://elsewhere.example/seen.png)"


def change_first_record(folder: Path, **changes: Any) -> Path:
    """Change these fields of the first record of a folder; return the folder."""
    lines = (folder / "runs.jsonl").read_text().splitlines()
    first = json.loads(lines[0]) | changes
    (folder / "runs.jsonl").write_text("\n".join([json.dumps(first), *lines[1:]]) + "\n")
    return folder


def replace_texts(value: Any, text: str) -> Any:
    """Return the value with every string in it replaced."""
    if isinstance(value, dict):
        return {name: replace_texts(item, text) for name, item in value.items()}
    if isinstance(value, list):
        return [replace_texts(item, text) for item in value]
    return text if isinstance(value, str) else value


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Results folder of a small sweep."""
    runs = results({"batch_per_rank": [16, 32], "world_size": [1, 2]}, lambda values, repeat: 100.0 + repeat)
    return keep(runs, tmp_path / "sample")


@pytest.fixture
def hostile(folder: Path) -> Path:
    """A readable results folder in which every string is an attack."""
    records = []
    for record in [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]:
        kept = {name: record[name] for name in ("run_id", "trial_id", "started_at")}
        config = record["config"] | {"model": NASTY + str(record["config"]["batch_per_rank"]), "dataset": PIXELS}
        outcome = {"outcome": "error"} if record["repeat"] else {"outcome": "ok"}
        texts = {
            "reason": NASTY,
            "traceback": NASTY,
            "picture": "/9j/AAAA",
            "metrics": record.get("metrics", {}) | {NASTY: 1.0},
            "facts": {FORMULA: NASTY},
        }
        records.append(replace_texts(record, NASTY) | texts | kept | outcome | {"config": config})
    (folder / "runs.jsonl").write_text("\n".join(map(json.dumps, records)) + "\n")
    session = {
        "axis": "model", "axes": {"model": [1, 2], NASTY: [1, 2]}, "question": NASTY, "command": [NASTY], "name": NASTY,
        "git": {"commit": NASTY}, "versions": {"torch": NASTY},
    }  # fmt: skip
    (folder / "sweep.json").write_text(json.dumps({"sessions": [session]}))
    return folder


def reading_commands(folder: Path) -> Iterator[list[object]]:
    """Yield the commands that read a results folder."""
    (first, *_) = latest_records(folder)
    copy = folder.with_name("copy")
    copy.mkdir(exist_ok=True)
    (copy / "runs.jsonl").write_text((folder / "runs.jsonl").read_text().replace("2026-01-02", "2026-03-04"))
    for text_format in ("text", "markdown", "csv", "latex"):
        yield ["table", folder, "--format", text_format]
        yield ["ls", folder, "--format", text_format]
        yield ["compare", folder, copy, "--format", text_format]
        yield ["advise", folder, "--format", text_format]
    yield ["table", folder, "--by", "rank"]
    yield ["show", first.run_id, folder]
    yield ["report", folder]
    yield ["figures", folder]
    yield ["tensorboard", folder]
    yield ["export", folder]
    yield ["export", folder, "--format", "json"]
    yield ["export", folder, "--format", "parquet"]


def functions_of(path: Path) -> set[str]:
    """Return the names of the functions of a test module."""
    return {item.name for item in ast.walk(ast.parse(path.read_text())) if isinstance(item, ast.FunctionDef)}


def test_every_claim_of_the_threat_model_names_tests_that_exist() -> None:
    text = (PROJECT / "SECURITY.md").read_text()
    rows = [line for line in text.splitlines() if line.startswith("| ") and not line.endswith(" test |")]
    assert len(rows) >= 30
    assert [row for row in rows if "`test_" not in row.split("|")[-2]] == []
    existing = set[str]().union(*(functions_of(path) for path in (PROJECT / "tests").rglob("test_*.py")))
    named = set(re.findall(r"`(test_\w+)`", text))
    assert named <= existing, f"SECURITY.md names tests that do not exist: {', '.join(sorted(named - existing))}"


def test_every_test_that_the_ci_script_names_exists() -> None:
    named = re.findall(r"(tests/\S+\.py)(?:::(\w+))?", (PROJECT / ".ci" / "run").read_text())
    assert len(named) > 5
    for path, function in named:
        assert (PROJECT / path).exists(), f".ci/run names {path}"
        assert not function or function in functions_of(PROJECT / path), f".ci/run names {path}::{function}"


def test_pickles_are_read_only_by_the_code_that_wrote_them() -> None:
    """Notebook objects, their samples, and jobs in a private folder are pickles; every `torch.load` refuses code."""
    libraries = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "pd", "pandas", "shelve", "yaml"}
    readers = {"load", "loads", "read_pickle", "Unpickler", "unsafe_load"}
    calls = set()
    for path in (PROJECT / "dmls_ray").rglob("*.py"):
        for call in (item for item in ast.walk(ast.parse(path.read_text())) if isinstance(item, ast.Call)):
            function = ast.unparse(call.func)
            flags = {item.arg: ast.unparse(item.value) for item in call.keywords}
            if function == "torch.load":
                assert flags["weights_only"] == "True", path
            elif function in ("np.load", "numpy.load"):
                assert flags["allow_pickle"] == "False", path
            library, *_, reader = function.split(".") * 2
            if function in ("eval", "exec") or (library in libraries and reader in readers):
                calls.add(f"{path.parent.name}/{path.name}: {function}")
    assert calls == {
        "user_function/sent.py: pickle.loads", "data/loaders.py: pickle.loads", "launchers/job_folder.py: pickle.loads",
    }  # fmt: skip


def test_ranks_exchange_no_pickled_objects() -> None:
    """Collectives of objects unpickle what they receive; ZeRO's `consolidate_state_dict` does, too."""
    lines = [
        (path.name, line.strip())
        for path in (PROJECT / "dmls_ray").rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(r"(all_gather|gather|broadcast|scatter)_object|(send|recv)_object|consolidate_state_dict\(", line)
    ]
    assert lines == [("optimizer_step.py", "self.optimizer.consolidate_state_dict()")]


@pytest.mark.parametrize("field", ["run_id", "trial_id"])
@pytest.mark.parametrize(
    "name", ["../../x", "/etc/x", "a/b", "..", ".", "", "a\\..\\b", "a\x00b", "a\nb", "\x1b[2J", "\u202ex", "x" * 300]
)
def test_a_run_id_that_could_name_another_path_is_refused(folder: Path, field: str, name: str) -> None:
    with pytest.raises(StoreError, match=rf"line 1 is no record .*\$\.{field}") as raised:
        latest_records(change_first_record(folder, **{field: name}))
    assert str(raised.value).isprintable()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"repeat": "../../x"}, "Expected `int`, got `str` - at `$.repeat`"),
        ({"repeat": -1}, "Expected `int` >= 0 - at `$.repeat`"),
        ({"machine": [1]}, "machine: Expected `object`, got `array`"),
        ({"machine": {"gpus": "abc"}}, "machine: Expected `array`, got `str` - at `$.gpus`"),
        ({"machine": {"cpu": {"a": 1}}}, "machine: Expected `str`, got `object` - at `$.cpu`"),
        ({"git": {"commit": 5}}, "git: Expected `str | null`, got `int` - at `$.commit`"),
        ({"metrics": {"images_per_s": "fast"}}, "Expected `int | float`, got `str` - at `$.metrics[...]`"),
        ({"metrics": {"steps": 2**64}}, "at `$.metrics[...]`"),
        ({"started_at": "yesterday"}, "Invalid isoformat string: 'yesterday'"),
        ({"earlier_attempts": [1]}, "at `$.earlier_attempts[0]`"),
    ],
)
def test_a_record_with_a_value_of_a_wrong_type_is_refused(folder: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(StoreError, match=re.escape(message)):
        latest_records(change_first_record(folder, **changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"lr": [1]}, {"lr": "fast"}, {"batch_per_rank": 0}, {"epochs": 1.5}, {"world_size": 0}, {"world_size": "2"},
        {"world_size": None}, {"world_size": None, "train": "a:b"}, {"world_size": "2", "workload": "of_another"},
    ],
)  # fmt: skip
def test_a_field_of_a_workload_with_a_wrong_value_is_refused(folder: Path, changes: dict[str, Any]) -> None:
    (first, *_) = latest_records(folder)
    with pytest.raises(StoreError, match=f"configuration of run .* is not valid .{next(iter(changes))} is "):
        load(change_first_record(folder, config=first.config | changes))


@pytest.mark.parametrize(
    "picture",
    [
        '/9j/" onerror="alert(1)/', "PHN2Zz48L3N2Zz4=", "data:image/svg+xml,<svg/>",
        "https://elsewhere.example/seen.jpg", "/9j/" + "A" * 64 * 1024,
    ],
)  # fmt: skip
def test_a_record_whose_picture_is_not_a_small_jpeg_is_refused(folder: Path, picture: str) -> None:
    with pytest.raises(StoreError, match=r"line 1 is no record .*\$\.picture"):
        latest_records(change_first_record(folder, picture=picture))
    assert latest_records(change_first_record(folder, picture="/9j/AAA="))[0].picture == "/9j/AAA="


@pytest.mark.parametrize("rank", ["0/../../../../x", "../x", None, 1.5])
def test_a_rank_that_is_not_an_integer_is_refused(folder: Path, rank: Any) -> None:
    records = latest_records(change_first_record(folder, ranks=[{"rank": rank}]))
    with pytest.raises(StoreError, match="ranks of run .*`rank`|\\$\\[0\\].rank"):
        _ = records[0].ranks


@pytest.mark.parametrize(
    "session",
    [
        1, {"question": [1]}, {"axes": {"lr": 1}}, {"repeats": 10**15}, {"mode": "search"}, {"command": {}},
        {"versions": {"torch": {}}}, {"changed": "abc"}, {"git": {"commit": 5}},
        {"user_git": {"commit": 5}}, {"environment": {"NCCL_ALGO": 5}},
    ],
)  # fmt: skip
def test_a_sweep_json_of_a_wrong_form_is_refused(folder: Path, session: Any) -> None:
    (folder / "sweep.json").write_text(json.dumps({"sessions": [session]}))
    with pytest.raises(StoreError, match="describes no sweep"):
        read_sweep(folder)


def test_json_nested_too_deeply_is_an_error_of_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "sweep.json").write_text("[" * 100_000)
    code, _, err = run(capsys, "table", folder)
    assert (code, err.count("\n")) == (2, 1)
    (folder / "runs.jsonl").write_text('{"facts":' * 100_000 + "\n")
    code, _, err = run(capsys, "table", folder)
    assert (code, err.count("\n")) == (2, 1)


def test_reading_does_not_block_on_a_pipe_in_place_of_a_file(folder: Path) -> None:
    for name in ("runs.jsonl", "sweep.json"):
        (folder / name).unlink()
        os.mkfifo(folder / name)
    with pytest.raises(StoreError, match=r"sweep.json cannot be read \(it is no regular file\); remove it"):
        read_sweep(folder)
    with pytest.raises(StoreError, match="holds no runs"):
        latest_records(folder)


@pytest.mark.parametrize("name", ["runs.jsonl", "sweep.json"])
def test_a_link_in_place_of_a_file_is_refused_in_one_line_and_not_followed(
    name: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # `ls` lists it as a folder that cannot be read.
    commands = [words for words in reading_commands(folder) if words[0] != "ls"]
    (folder / name).rename(tmp_path / "elsewhere")
    (folder / name).symlink_to(tmp_path / "elsewhere")
    before = (tmp_path / "elsewhere").read_bytes()
    for words in commands:
        code, _, err = run(capsys, *words)
        assert (code, err.count("\n")) == (2, 1), words
        assert f"{folder / name} cannot be read (it is a link)" in err
    with pytest.raises(StoreError, match="it is a link"), Store(folder) as store:
        store.add_session({})
    assert (tmp_path / "elsewhere").read_bytes() == before


def test_reading_imports_no_module_that_a_record_names(
    hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "payload.py").write_text("raise SystemExit('it ran')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    lines = [json.loads(line) for line in (hostile / "runs.jsonl").read_text().splitlines()]
    for line in lines:
        line["config"] = {"train": "payload:run", "model": "payload:run", "world_size": 1, "code": "gASVAAAAAA=="}
    (hostile / "runs.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    for words in reading_commands(hostile):
        assert run(capsys, *words)[0] in (0, 2), words
    assert "payload" not in sys.modules


def test_no_text_of_a_record_reaches_the_terminal_as_a_control_sequence(
    hostile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words in reading_commands(hostile):
        code, out, err = run(capsys, *words)
        assert code == 0, (words, err)
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", out + err), words
    code, _, err = run(capsys, "table", f"{hostile}{ESCAPE}")
    assert (code, err.count("\n")) == (2, 1)
    assert "\x1b" not in err


def test_control_characters_are_escaped_and_other_text_is_unchanged() -> None:
    assert escape_control_chars("a\x1b[1mb\r\n\tä\u202e\x85\ud800語") == "a\\x1b[1mb\\r\n\tä\\u202e\\x85\\ud800語"


def test_markdown_contains_no_tag_link_or_picture_of_a_record(
    hostile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "report", hostile)
    printed = [run(capsys, *words)[1] for words in reading_commands(hostile) if "markdown" in words]
    for text in [(hostile / "table.md").read_text(), *printed]:
        assert "<" not in text
        assert "](" not in text


def test_the_report_shows_every_text_of_a_record_as_text(hostile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "report", hostile)
    page = (hostile / "report.html").read_text()
    assert "<img" not in page
    assert page.count("&lt;img src=x") > 3
    assert "default-src &#39;none&#39;; script-src &#39;sha256-" in page
    # A reader copies the command from the report, so it must read as it is.
    assert "\u202e" not in page


def test_no_command_writes_through_a_symbolic_link_in_a_results_folder(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "report", folder)
    run(capsys, "figures", folder)
    run(capsys, "tensorboard", folder)
    derived = [path for path in folder.rglob("*") if path.is_file() and path.name not in ("runs.jsonl", "sweep.json")]
    assert {"table.md", "runs.csv", "report.html", "scaling.svg"} <= {path.name for path in derived}
    victim = tmp_path / "victim"
    victim.write_text("unchanged")
    for path in derived:
        path.unlink()
        path.symlink_to(victim)
        # Names that a temporary file may have.
        for temporary in (f".{path.name}.new", f"{path.name}.tmp", f".{path.name}.{os.getpid()}"):
            path.with_name(temporary).symlink_to(victim)
    for words in reading_commands(folder):
        assert run(capsys, *words)[0] == 0
    assert victim.read_text() == "unchanged"
    assert [path.name for path in derived if path.is_symlink()] == []


def test_a_symbolic_link_in_place_of_a_folder_is_not_followed(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    (home / "empty").mkdir(parents=True)
    for name, command in (("tensorboard", "tensorboard"), ("figures", "figures")):
        (folder / name).symlink_to(home)
        code, _, err = run(capsys, command, folder)
        assert (code, err.count("\n")) == (2, 1)
        assert "is a link" in err
        (folder / name).unlink()
    run(capsys, "tensorboard", folder)
    (run_folder, *_) = [path for path in (folder / "tensorboard").iterdir() if path.name.endswith("repeat=0")]
    for path in run_folder.rglob("*"):
        if path.is_file():
            path.unlink()
    for path in [*run_folder.iterdir(), run_folder]:
        path.rmdir()
    run_folder.symlink_to(home)
    assert run(capsys, "tensorboard", folder)[0] == 0
    assert [path.name for path in home.iterdir()] == ["empty"]
    assert not run_folder.is_symlink()


def test_no_file_behind_a_symbolic_link_gets_into_a_report(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (first, second, *_) = latest_records(folder)
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "token.txt").write_text("hunter2")
    (folder / "runs" / first.run_id).mkdir(parents=True)
    (folder / "runs" / first.run_id / "log.txt").symlink_to(secrets / "token.txt")
    (folder / "runs" / first.run_id / "notes.txt").write_text("a log")
    (folder / "runs" / second.run_id).symlink_to(secrets)
    from dmls_ray.analysis.report.payload import build_payload

    payload = json.dumps(build_payload(load(folder).records, folder), default=str)
    assert "hunter2" not in payload
    assert "token.txt" not in payload
    assert "a log" in payload
    assert "token.txt" not in run(capsys, "show", second.run_id, folder)[1]


def test_a_file_name_that_is_not_valid_text_does_not_stop_the_report(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (first, *_) = latest_records(folder)
    (folder / "runs" / first.run_id).mkdir(parents=True)
    (folder / "runs" / first.run_id / os.fsdecode(b"\xff\x1b[2J.txt")).write_text("a log")
    assert run(capsys, "report", folder)[0] == 0
    assert "\\x1b[2J.txt" in run(capsys, "show", first.run_id, folder)[1]
