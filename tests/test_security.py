"""What SECURITY.md says of results folders, each line by an attack; those of other modules are tested beside these."""

from __future__ import annotations

import ast
import csv
import io
import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dmls_ray.analysis.results import load
from dmls_ray.storage.folder import latest_records, read_sweep
from dmls_ray.util.errors import StoreError
from dmls_ray.util.text import escape_control_chars
from tests.analysis.samples import results
from tests.cli.test_main import keep, run
from tests.conftest import PROJECT

ESCAPE = "\x1b]0;owned\x07\x1b[2J\r\u202e\x9b31m"
"""Sets a terminal's title, empties its screen, and turns what follows around."""
FORMULA = "=cmd|' /C calc'!A0"
NASTY = f"{FORMULA}{ESCAPE}[red]<img src=x onerror=alert(1)>[a](javascript:alert(1)) $\\frac{{ \\input{{x}}"
PIXELS = "![](https://elsewhere.example/seen.png)"


def change(folder: Path, **changes: Any) -> Path:
    """The folder with these fields of its first record changed."""
    lines = (folder / "runs.jsonl").read_text().splitlines()
    first = json.loads(lines[0]) | changes
    (folder / "runs.jsonl").write_text("\n".join([json.dumps(first), *lines[1:]]) + "\n")
    return folder


def all_texts(value: Any, text: str) -> Any:
    """The values with each text replaced."""
    if isinstance(value, dict):
        return {name: all_texts(item, text) for name, item in value.items()}
    if isinstance(value, list):
        return [all_texts(item, text) for item in value]
    return text if isinstance(value, str) else value


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of a small sweep."""
    runs = results({"batch_per_rank": [16, 32], "world_size": [1, 2]}, lambda values, repeat: 100.0 + repeat)
    return keep(runs, tmp_path / "sample")


@pytest.fixture
def hostile(folder: Path) -> Path:
    """A folder that can be read, each of whose texts is an attack."""
    records = []
    for record in [json.loads(line) for line in (folder / "runs.jsonl").read_text().splitlines()]:
        named = {name: record[name] for name in ("run_id", "trial_id", "started_at", "mode")}
        config = record["config"] | {"model": NASTY + str(record["config"]["batch_per_rank"]), "dataset": PIXELS}
        outcome = {"outcome": "error"} if record["repeat"] else {"outcome": "ok"}
        told = {"reason": NASTY, "traceback": NASTY, "picture": "/9j/AAAA", "measures": {NASTY: 1.0, FORMULA: NASTY}}
        records.append(all_texts(record, NASTY) | told | named | outcome | {"config": config})
    (folder / "runs.jsonl").write_text("\n".join(map(json.dumps, records)) + "\n")
    session = {
        "axis": "model", "axes": {"model": [1, 2], NASTY: [1, 2]}, "question": NASTY, "command": NASTY, "name": NASTY,
        "git": {"commit": NASTY}, "versions": {"torch": NASTY},
    }  # fmt: skip
    (folder / "sweep.json").write_text(json.dumps({"schema": 1, "sessions": [session]}))
    return folder


def readings(folder: Path) -> Iterator[list[object]]:
    """The commands that read a folder."""
    (first, *_) = latest_records(folder)
    twin = folder.with_name("twin")
    twin.mkdir(exist_ok=True)
    (twin / "runs.jsonl").write_text((folder / "runs.jsonl").read_text().replace("2026-01-02", "2026-03-04"))
    for form in ("text", "markdown", "csv", "latex"):
        yield ["table", folder, "--format", form]
        yield ["ls", folder, "--format", form]
        yield ["compare", folder, twin, "--format", form]
        yield ["advise", folder, "--format", form]
    yield ["table", folder, "--by", "rank"]
    yield ["show", first.run_id, folder]
    yield ["report", folder]
    yield ["figures", folder]
    yield ["tensorboard", folder]
    yield ["export", folder]
    yield ["export", folder, "--format", "json"]
    yield ["export", folder, "--format", "parquet"]


def test_every_test_that_the_threat_model_names_is_there() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", (PROJECT / "SECURITY.md").read_text())
    assert len(named) > 20
    for file, test in named:
        tree = ast.parse((PROJECT / file).read_text())
        functions = {item.name for item in ast.walk(tree) if isinstance(item, ast.FunctionDef)}
        assert not test or test in functions, f"{file} has no {test}"


def test_pickles_are_read_only_by_those_that_wrote_them() -> None:
    """What a function of a notebook is sent as, and a job in a private folder; each `torch.load` takes no code."""
    libraries = {"pickle", "cloudpickle", "dill", "joblib", "marshal", "pd", "pandas", "shelve", "yaml"}
    readers = {"load", "loads", "read_pickle", "Unpickler", "unsafe_load"}
    found = set()
    for path in (PROJECT / "dmls_ray").rglob("*.py"):
        for call in (item for item in ast.walk(ast.parse(path.read_text())) if isinstance(item, ast.Call)):
            words = ast.unparse(call.func)
            flags = {item.arg: ast.unparse(item.value) for item in call.keywords}
            if words == "torch.load":
                assert flags["weights_only"] == "True", path
            elif words in ("np.load", "numpy.load"):
                assert flags["allow_pickle"] == "False", path
            library, *_, reader = words.split(".") * 2
            if words in ("eval", "exec") or (library in libraries and reader in readers):
                found.add(f"{path.name}: {words}")
    assert found == {"own.py: pickle.loads", "__main__.py: pickle.loads"}


@pytest.mark.parametrize("field", ["run_id", "trial_id"])
@pytest.mark.parametrize(
    "name", ["../../x", "/etc/x", "a/b", "..", ".", "", "a\\..\\b", "a\x00b", "a\nb", "\x1b[2J", "\u202ex", "x" * 300]
)
def test_a_run_whose_name_could_lead_elsewhere_is_no_record(folder: Path, field: str, name: str) -> None:
    with pytest.raises(StoreError, match=f"line 1 is no record .*{field}=.* is no name") as told:
        latest_records(change(folder, **{field: name}))
    assert str(told.value).isprintable()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"repeat": "../../x"}, "repeat is str and not int"),
        ({"repeat": -1}, "repeat is -1 and not at least 0"),
        ({"machine": [1]}, "machine is list and not dict"),
        ({"machine": {"gpus": "abc"}}, "gpus in machine is no list of texts"),
        ({"machine": {"cpu": {"a": 1}}}, "cpu in machine is neither a text nor a number"),
        ({"images_per_s": "fast"}, "images_per_s is str and not"),
        ({"started_at": "yesterday"}, "started_at='yesterday' is no time"),
        ({"config": {"world_size": 0}}, "world_size is 0 and not at least 1"),
        ({"config": {"train": "a:b", "world_size": None}}, "config.world_size is null and not int"),
        ({"config": {"lr": [1]}}, "lr is list and not"),
        ({"earlier_attempts": [1]}, "earlier_attempts holds int"),
        ({"measures": {"a": [[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]}}, "more than 16 lists and dicts"),
    ],
)
def test_values_of_another_form_than_a_record_has_are_no_record(
    folder: Path, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(StoreError, match=re.escape(told)):
        latest_records(change(folder, **changes))


@pytest.mark.parametrize(
    "picture",
    [
        "x", "/9j/A", "/9j/AAA\n", "/9j/AA==AAAA", '/9j/" onerror="alert(1)/', "iVBORw0KGgoA", "PHN2Zz48L3N2Zz4=",
        "data:image/svg+xml,<svg/>", "https://elsewhere.example/seen.jpg", "/9j/" + "A" * 64 * 1024,
    ],
)  # fmt: skip
def test_a_picture_that_is_no_small_jpeg_is_no_record(folder: Path, picture: str) -> None:
    with pytest.raises(StoreError, match=r"line 1 is no record .*picture (has 65,540 characters|is no JPEG)"):
        latest_records(change(folder, picture=picture))
    assert latest_records(change(folder, picture="/9j/AAA="))[0].picture == "/9j/AAA="


@pytest.mark.parametrize("rank", ["0/../../../../x", "../x", None, 1.5])
def test_a_rank_is_a_number_and_so_leads_nowhere(folder: Path, rank: Any) -> None:
    records = latest_records(change(folder, ranks=[{"rank": rank}]))
    with pytest.raises(StoreError, match="rank is"):
        _ = records[0].ranks


@pytest.mark.parametrize(
    "session",
    [
        1, {"question": [1]}, {"axes": {"lr": 1}}, {"repeats": 10**15}, {"mode": "search"}, {"command": {}},
        {"versions": {"torch": {}}}, {"changed": "abc"},
    ],
)  # fmt: skip
def test_a_sweep_json_of_another_form_is_told_in_a_line(folder: Path, session: Any) -> None:
    (folder / "sweep.json").write_text(json.dumps({"sessions": [session]}))
    with pytest.raises(StoreError, match="describes no sweep"):
        read_sweep(folder)


def test_what_is_nested_without_end_is_told_in_a_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "sweep.json").write_text("[" * 100_000)
    code, _, told = run(capsys, "table", folder)
    assert (code, told.count("\n")) == (2, 1)
    (folder / "runs.jsonl").write_text('{"measures":' * 100_000 + "\n")
    code, _, told = run(capsys, "table", folder)
    assert (code, told.count("\n")) == (2, 1)


def test_a_pipe_or_device_in_place_of_the_runs_is_not_waited_for(folder: Path) -> None:
    for name in ("runs.jsonl", "sweep.json"):
        (folder / name).unlink()
        os.mkfifo(folder / name)
    assert read_sweep(folder) == {}
    with pytest.raises(StoreError, match="holds no runs"):
        latest_records(folder)


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
    for words in readings(hostile):
        assert run(capsys, *words)[0] in (0, 2), words
    assert "payload" not in sys.modules


def test_no_text_of_a_record_commands_a_terminal(hostile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in readings(hostile):
        code, out, told = run(capsys, *words)
        assert code == 0, (words, told)
        assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", out + told), words
    code, out, told = run(capsys, "table", f"{hostile}{ESCAPE}")
    assert (code, told.count("\n")) == (2, 1)
    assert "\x1b" not in told


def test_controls_are_written_out_and_all_else_stays() -> None:
    assert escape_control_chars("a\x1b[1mb\r\n\tä\u202e\x85\ud800語") == "a\\x1b[1mb\\r\n\tä\\u202e\\x85\\ud800語"


def test_a_spreadsheet_finds_no_formula_in_any_csv(hostile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["report", hostile], ["export", hostile]):
        run(capsys, *words)
    texts = [path.read_text() for path in hostile.glob("*.csv")]
    texts += [run(capsys, *words)[1] for words in readings(hostile) if "csv" in words]
    cells = [cell for text in texts for row in csv.reader(io.StringIO(text)) for cell in row]
    assert sum(cell.startswith("'=cmd") for cell in cells) > 20
    assert not [cell for cell in cells if cell[:1] in ("=", "@", "\t", "\r")]
    assert not [cell for cell in cells if cell[:1] in ("+", "-") and re.search("[^-+0-9., e%x\\[\\]]", cell)]


def test_markdown_of_a_record_has_no_tag_no_link_and_no_picture(
    hostile: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "report", hostile)
    told = [run(capsys, *words)[1] for words in readings(hostile) if "markdown" in words]
    for text in [(hostile / "table.md").read_text(), *told]:
        assert "<" not in text
        assert "](" not in text


def test_the_report_holds_every_text_as_text(hostile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, "report", hostile)
    page = (hostile / "report.html").read_text()
    assert "<img" not in page
    assert page.count("&lt;img src=x") > 3
    assert "default-src &#39;none&#39;; script-src &#39;sha256-" in page
    # What is shown as the command is what a reader would copy.
    assert "\u202e" not in page


def test_no_link_in_a_results_folder_is_written_through(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "report", folder)
    run(capsys, "figures", folder)
    run(capsys, "tensorboard", folder)
    made = [path for path in folder.rglob("*") if path.is_file() and path.name not in ("runs.jsonl", "sweep.json")]
    assert {"table.md", "runs.csv", "report.html", "scaling.svg"} <= {path.name for path in made}
    victim = tmp_path / "victim"
    victim.write_text("mine")
    for path in made:
        path.unlink()
        path.symlink_to(victim)
        # Names that a file may have had while it was written.
        for aside in (f".{path.name}.new", f"{path.name}.tmp", f".{path.name}.{os.getpid()}"):
            path.with_name(aside).symlink_to(victim)
    for words in readings(folder):
        assert run(capsys, *words)[0] == 0
    assert victim.read_text() == "mine"
    assert [path.name for path in made if path.is_symlink()] == []


def test_a_link_in_place_of_a_folder_is_not_followed(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    home = tmp_path / "home"
    (home / "empty").mkdir(parents=True)
    for name, command in (("tensorboard", "tensorboard"), ("figures", "figures")):
        (folder / name).symlink_to(home)
        code, _, told = run(capsys, command, folder)
        assert (code, told.count("\n")) == (2, 1)
        assert "is a link" in told
        (folder / name).unlink()
    run(capsys, "tensorboard", folder)
    (shown, *_) = [path for path in (folder / "tensorboard").iterdir() if path.name.endswith("repeat=0")]
    for path in shown.rglob("*"):
        if path.is_file():
            path.unlink()
    for path in [*shown.iterdir(), shown]:
        path.rmdir()
    shown.symlink_to(home)
    assert run(capsys, "tensorboard", folder)[0] == 0
    assert [path.name for path in home.iterdir()] == ["empty"]
    assert not shown.is_symlink()


def test_no_file_behind_a_link_gets_into_a_report(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (first, second, *_) = latest_records(folder)
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "token.txt").write_text("hunter2")
    (folder / "runs" / first.run_id).mkdir(parents=True)
    (folder / "runs" / first.run_id / "log.txt").symlink_to(secrets / "token.txt")
    (folder / "runs" / first.run_id / "own.txt").write_text("a log")
    (folder / "runs" / second.run_id).symlink_to(secrets)
    from dmls_ray.analysis.report.payload import build_payload

    told = json.dumps(build_payload(load(folder).records, folder), default=str)
    assert "hunter2" not in told
    assert "token.txt" not in told
    assert "a log" in told
    assert "token.txt" not in run(capsys, "show", second.run_id, folder)[1]


def test_a_file_whose_name_is_no_text_stops_no_report(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (first, *_) = latest_records(folder)
    (folder / "runs" / first.run_id).mkdir(parents=True)
    (folder / "runs" / first.run_id / os.fsdecode(b"\xff\x1b[2J.txt")).write_text("a log")
    assert run(capsys, "report", folder)[0] == 0
    assert "\\x1b[2J.txt" in run(capsys, "show", first.run_id, folder)[1]
