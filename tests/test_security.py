"""Attacks by a hostile results folder, for the promises of SECURITY.md; tests of the modules have the others."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dmls_ray.analysis.report.content import build_payload
from dmls_ray.analysis.results import load
from dmls_ray.storage.folder import read_sweep
from dmls_ray.storage.store import Store
from dmls_ray.util.errors import StoreError
from dmls_ray.util.text import escape_control_chars
from tests.analysis.samples import results
from tests.cli.test_main import keep
from tests.conftest import PROJECT, DmlsRay
from tests.storage.remote import latest_records

ESCAPE = "\x1b]0;owned\x07\x1b[2J\r\u202e\x9b31m"
"""Sets the title of a terminal, clears the screen and reverses the text that follows."""
NASTY = f"=cmd|'A0{ESCAPE}[red]<img src=x onerror=alert(1)>[a](javascript:alert(1)) $\\frac{{ \\input{{x}}"
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def records_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]


def write_records(folder: Path, records: list[dict[str, Any]]) -> Path:
    """Replace the records of a folder; return the folder."""
    (folder / "runs.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def change_first_record(folder: Path, **changes: Any) -> Path:
    """Change these fields of the first record of a folder; return the folder."""
    first, *others = records_of(folder)
    return write_records(folder, [first | changes, *others])


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
    for record in records_of(folder):
        changes = {name: record[name] for name in ("run_id", "trial_id", "started_at")}
        changes["config"] = record["config"] | {"model": f"{NASTY}{record['config']['batch_per_rank']}"}
        changes["config"]["dataset"] = "![](https://elsewhere.example/seen.png)"
        changes["outcome"] = "error" if record["repeat"] else "ok"
        changes |= {"reason": NASTY, "traceback": NASTY, "picture": "/9j/AAAA", "facts": {NASTY: NASTY}}
        changes["metrics"] = record["metrics"] | {NASTY: 1.0}
        records.append(replace_texts(record, NASTY) | changes)
    session = {
        "axis": "model", "axes": {"model": [1, 2], NASTY: [1, 2]}, "question": NASTY, "command": [NASTY], "name": NASTY,
        "git": {"commit": NASTY}, "versions": {"torch": NASTY},
    }  # fmt: skip
    (folder / "sweep.json").write_text(json.dumps({"sessions": [session]}))
    return write_records(folder, records)


def reading_commands(folder: Path) -> Iterator[list[object]]:
    """Yield the commands that read a results folder."""
    copy = folder.with_name("copy")
    copy.mkdir(exist_ok=True)
    (copy / "runs.jsonl").write_text((folder / "runs.jsonl").read_text().replace("2026-01-02", "2026-03-04"))
    for text_format in ("text", "markdown", "csv", "latex"):
        yield ["table", folder, "--format", text_format]
        yield ["ls", folder, "--format", text_format]
        yield ["compare", folder, copy, "--format", text_format]
        yield ["advise", folder, "--format", text_format]
    yield ["table", folder, "--by", "rank"]
    yield ["show", latest_records(folder)[0].run_id, folder]
    for command in ("report", "figures", "tensorboard"):
        yield [command, folder]
    for file_format in ("csv", "json", "parquet"):
        yield ["export", folder, "--format", file_format]


def test_every_claim_of_the_threat_model_names_a_test() -> None:
    rows = [line for line in (PROJECT / "SECURITY.md").read_text().splitlines() if line.startswith("| ")]
    claims = [row for row in rows if not row.endswith(" test |")]
    assert len(claims) >= 25
    assert [row for row in claims if "`test_" not in row.split("|")[-2]] == []


def test_pickles_are_read_only_by_the_code_that_wrote_them() -> None:
    """Notebook objects, their samples, and jobs in a private folder are pickles; every `torch.load` refuses code.

    Code is executed of the script that a user names alone.
    """
    libraries = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "pd", "pandas", "shelve", "yaml"}
    readers = {"load", "loads", "read_pickle", "Unpickler", "unsafe_load"}
    calls = set()
    for path in (PROJECT / "dmls_ray").rglob("*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if not isinstance(call, ast.Call):
                continue
            function = ast.unparse(call.func)
            library, _, reader = function.rpartition(".")
            if function == "torch.load":
                assert "weights_only=True" in ast.unparse(call), path
            elif function == "np.load":
                assert "allow_pickle=False" in ast.unparse(call), path
            elif function in ("eval", "exec") or (library in libraries and reader in readers):
                calls.add(f"{path.parent.name}/{path.name}: {function}")
    assert calls == {
        "user_function/sent.py: pickle.loads", "data/loaders.py: pickle.loads", "launchers/base.py: pickle.loads",
        "script/as_main.py: exec",
    }  # fmt: skip


def test_ranks_exchange_no_pickled_objects() -> None:
    """Collectives of objects unpickle what they receive; ZeRO's `consolidate_state_dict` does, too."""
    pickling = re.compile(r"(?:(?:gather|broadcast|scatter|send|recv)_object|consolidate_state_dict)\w*\(")
    files = [path for path in (PROJECT / "dmls_ray").rglob("*.py") if pickling.search(path.read_text())]
    assert not files


@pytest.mark.parametrize("field", ["run_id", "trial_id"])
@pytest.mark.parametrize(
    "name", ["../../x", "/etc/x", "a/b", "..", ".", "", "a\\..\\b", "a\x00b", "\x1b[2J", "x" * 300]
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
        {"world_size": None}, {"world_size": None, "train": "a:b"},
    ],
)  # fmt: skip
def test_a_field_of_a_workload_with_a_wrong_value_is_refused(folder: Path, changes: dict[str, Any]) -> None:
    config = records_of(folder)[0]["config"]
    with pytest.raises(StoreError, match=f"configuration of run .* is not valid .{next(iter(changes))} is "):
        load(change_first_record(folder, config=config | changes))


@pytest.mark.parametrize(
    "picture", ['/9j/" onerror="alert(1)/', "PHN2Zz48L3N2Zz4=", "data:image/svg+xml,<svg/>", "/9j/" + "A" * 2**16]
)
def test_a_record_whose_picture_is_not_a_small_jpeg_is_refused(folder: Path, picture: str) -> None:
    with pytest.raises(StoreError, match=r"line 1 is no record .*\$\.picture"):
        latest_records(change_first_record(folder, picture=picture))
    assert latest_records(change_first_record(folder, picture="/9j/AAA="))[0].picture == "/9j/AAA="


@pytest.mark.parametrize("rank", ["../x", None, 1.5])
def test_a_rank_that_is_not_an_integer_is_refused(folder: Path, rank: Any) -> None:
    records = latest_records(change_first_record(folder, ranks=[{"rank": rank}]))
    with pytest.raises(StoreError, match="ranks of run .*`rank`|\\$\\[0\\].rank"):
        _ = records[0].ranks


@pytest.mark.parametrize(
    "session",
    [
        1, {"question": [1]}, {"axes": {"lr": 1}}, {"repeats": 10**15}, {"mode": "search"}, {"command": {}},
        {"versions": {"torch": {}}}, {"changed": "abc"}, {"git": {"commit": 5}}, {"environment": {"NCCL_ALGO": 5}},
    ],
)  # fmt: skip
def test_a_sweep_json_of_a_wrong_form_is_refused(folder: Path, session: Any) -> None:
    (folder / "sweep.json").write_text(json.dumps({"sessions": [session]}))
    with pytest.raises(StoreError, match="describes no sweep"):
        read_sweep(folder)


@pytest.mark.parametrize(("name", "start"), [("sweep.json", "["), ("runs.jsonl", '{"facts":')])
def test_json_nested_too_deeply_is_an_error_of_one_line(folder: Path, name: str, start: str, run: DmlsRay) -> None:
    (folder / name).write_text(start * 100_000 + "\n")
    code, _, err = run("table", folder)
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
    name: str, folder: Path, tmp_path: Path, run: DmlsRay
) -> None:
    # `ls` lists it as a folder that cannot be read.
    commands = [words for words in reading_commands(folder) if words[0] != "ls"]
    elsewhere = (folder / name).rename(tmp_path / "elsewhere")
    (folder / name).symlink_to(elsewhere)
    before = elsewhere.read_bytes()
    for words in commands:
        code, _, err = run(*words)
        assert (code, err.count("\n")) == (2, 1), words
        assert f"{folder / name} cannot be read (it is a link)" in err
    with pytest.raises(StoreError, match="it is a link"), Store(folder) as store:
        store.add_sessions({})
    assert elsewhere.read_bytes() == before


def test_reading_imports_no_module_that_a_record_names(
    hostile: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: DmlsRay
) -> None:
    (tmp_path / "payload.py").write_text("raise SystemExit('it ran')\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    config = {"train": "payload:run", "model": "payload:run", "world_size": 1, "code": "gASVAAAAAA=="}
    write_records(hostile, [record | {"config": config} for record in records_of(hostile)])
    for words in reading_commands(hostile):
        assert run(*words)[0] in (0, 2), words
    assert "payload" not in sys.modules


def test_no_text_of_a_record_reaches_the_terminal_as_a_control_sequence_or_markdown_as_mark_up(
    hostile: Path, run: DmlsRay
) -> None:
    documents = []
    for words in reading_commands(hostile):
        code, out, err = run(*words)
        assert code == 0, (words, err)
        assert not CONTROL.search(out + err), words
        if words[0] == "show":
            assert "[red]" in out
        if "markdown" in words:
            documents.append(out)
    documents.append((hostile / "table.md").read_text())
    assert not any("<" in text or "](" in text for text in documents)
    code, _, err = run("table", f"{hostile}{ESCAPE}")
    assert (code, err.count("\n"), "\x1b" in err) == (2, 1, False)


def test_control_characters_are_escaped_and_other_text_is_unchanged() -> None:
    assert escape_control_chars("a\x1b[1mb\r\n\tä\u202e\x85\ud800語") == "a\\x1b[1mb\\r\n\tä\\u202e\\x85\\ud800語"


def test_the_report_shows_every_text_of_a_record_as_text(hostile: Path, run: DmlsRay) -> None:
    run("report", hostile)
    page = (hostile / "report.html").read_text()
    assert "<img" not in page
    assert page.count("&lt;img src=x") > 3
    assert "default-src &#39;none&#39;; script-src &#39;sha256-" in page
    # A reader copies the command from the report, so it must read as it is.
    assert "\u202e" not in page


def test_no_command_writes_through_a_symbolic_link_in_a_results_folder(
    folder: Path, tmp_path: Path, run: DmlsRay
) -> None:
    for command in ("report", "figures", "tensorboard"):
        run(command, folder)
    derived = [path for path in folder.rglob("*") if path.is_file() and path.name not in ("runs.jsonl", "sweep.json")]
    assert {"table.md", "runs.csv", "report.html", "scaling.svg"} <= {path.name for path in derived}
    victim = tmp_path / "victim"
    victim.write_text("unchanged")
    for path in derived:
        path.unlink()
        path.symlink_to(victim)
        path.with_name(f".{path.name}.new").symlink_to(victim)  # a name that a temporary file may have
    for words in reading_commands(folder):
        assert run(*words)[0] == 0
    assert victim.read_text() == "unchanged"
    assert [path.name for path in derived if path.is_symlink()] == []


@pytest.mark.parametrize("name", ["tensorboard", "figures"])
def test_a_symbolic_link_in_place_of_a_folder_is_not_followed(
    name: str, folder: Path, tmp_path: Path, run: DmlsRay
) -> None:
    (tmp_path / "home").mkdir()
    (folder / name).symlink_to(tmp_path / "home")
    code, _, err = run(name, folder)
    assert (code, err.count("\n")) == (2, 1)
    assert "is a link" in err
    assert list((tmp_path / "home").iterdir()) == []


def test_a_symbolic_link_in_place_of_the_events_of_a_run_is_replaced_and_not_emptied(
    folder: Path, tmp_path: Path, run: DmlsRay
) -> None:
    (tmp_path / "home" / "kept").mkdir(parents=True)
    run("tensorboard", folder)
    events = next((folder / "tensorboard").glob("*repeat=0"))
    shutil.rmtree(events)
    events.symlink_to(tmp_path / "home")
    assert run("tensorboard", folder)[0] == 0
    assert [path.name for path in (tmp_path / "home").iterdir()] == ["kept"]
    assert not events.is_symlink()


def test_no_file_behind_a_symbolic_link_gets_into_a_report(folder: Path, tmp_path: Path, run: DmlsRay) -> None:
    first, second, *_ = latest_records(folder)
    (tmp_path / "token.txt").write_text("hunter2")
    (folder / "runs" / first.run_id).mkdir(parents=True)
    (folder / "runs" / first.run_id / "log.txt").symlink_to(tmp_path / "token.txt")
    (folder / "runs" / first.run_id / "notes.txt").write_text("a line of it")
    (folder / "runs" / second.run_id).symlink_to(tmp_path)
    payload = json.dumps(build_payload(load(folder).records, folder), default=str)
    assert "hunter2" not in payload
    assert "token.txt" not in payload
    assert "a line of it" in payload
    assert "token.txt" not in run("show", second.run_id, folder)[1]
