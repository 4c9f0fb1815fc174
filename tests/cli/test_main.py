from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pandas as pd
import pytest

from dmls_ray.analysis import json_objects
from dmls_ray.analysis.results import Results, load
from dmls_ray.cli.commands import tables
from dmls_ray.config.identity import Identity
from dmls_ray.storage.progress import ProgressFile
from dmls_ray.storage.store import Store
from tests.analysis.samples import results
from tests.conftest import PROJECT, DmlsRay


def keep(runs: Results, folder: Path) -> Path:
    """A results folder that holds these runs."""
    folder.mkdir(parents=True)
    lines = [json.dumps(record.to_dict()) for record in runs.records]
    (folder / "runs.jsonl").write_text("\n".join(lines) + "\n")
    axes = {"world_size": [1, 2], "batch_per_rank": [16, 32]}
    session = {"axis": "batch_per_rank", "axes": axes, "question": "What does the batch do?", "command": ["a.py"]}
    (folder / "sweep.json").write_text(json.dumps({"sessions": [session]}))
    return folder


def rates(speed: float, noise: Sequence[float] = (1.0, 1.02, 0.99)) -> Results:
    """A sweep over batch and world size: two ranks are one and a half times as fast as one."""
    return results(
        {"batch_per_rank": [16, 32], "world_size": [1, 2]},
        lambda values, repeat: speed * noise[repeat] * values["batch_per_rank"] * (1 + values["world_size"] / 2),
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return keep(rates(100), tmp_path / "results" / "sample")


def test_dmls_ray_and_the_module_are_the_same_command() -> None:
    expected = [
        subprocess.run([*words, "--help"], capture_output=True, text=True, check=True, cwd=PROJECT).stdout
        for words in ([sys.executable, "-m", "dmls_ray"], [str(Path(sys.executable).with_name("dmls-ray"))])
    ]
    assert expected[0] == expected[1]
    for command in ("report", "table", "figures", "compare", "advise", "ls", "show", "export"):
        assert f"\n    {command} " in expected[0]


@pytest.mark.parametrize("words", [["--help"], ["ls", "FOLDER"], ["table", "FOLDER"], ["show", "RUN", "FOLDER"]])
def test_what_is_only_read_loads_no_large_library(folder: Path, words: list[str]) -> None:
    given = {"FOLDER": str(folder), "RUN": load(folder).records[0].run_id}
    large = ("torch", "ray", "vl_convert", "pandas", "pyarrow", "PIL")
    code = (
        "import sys\nfrom dmls_ray.cli.main import main\n"
        f"try: main({[given.get(word, word) for word in words]!r})\nexcept SystemExit as end: assert not end.code\n"
        f"print('loaded', *[name for name in {large!r} if name in sys.modules])"
    )
    expected = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert expected.splitlines()[-1] == "loaded"


def test_ls_lists_every_sweep_below_a_folder_with_the_runs_that_a_stopped_one_lacks(folder: Path, run: DmlsRay) -> None:
    out = run("ls", folder.parent)[1]
    assert str(folder) in out
    assert "12 ok" in out
    assert "What does the batch do?" in out
    lines = (folder / "runs.jsonl").read_text().splitlines(keepends=True)
    (folder / "runs.jsonl").write_text("".join(lines[:5]))
    trials = [json.loads(line)["trial_id"] for line in lines]
    session = {"repeats": 3, "trials": list(dict.fromkeys(trials))}
    (folder / "sweep.json").write_text(json.dumps({"schema": 2, "sessions": [session]}))
    assert "5 of 12" in run("ls", folder)[1]


def test_show_prints_all_of_a_run_but_its_picture_and_texts_as_they_are(tmp_path: Path, run: DmlsRay) -> None:
    runs = results({"batch_per_rank": [16], "world_size": 2}, lambda values, repeat: 100.0, repeats=1)
    (record,) = runs.records
    record.picture, record.seed = "/9j/" + "A" * 2000, 90_000
    record.traceback = "ValueError: [red]<script>[/red] :smile:"
    kept = keep(runs, tmp_path / "seen")
    code, out, _ = run("show", record.run_id, tmp_path)
    assert code == 0
    assert out.startswith(f"{record.run_id} in {kept}: ok")
    for text in ("batch_per_rank           16", "Epochs", "Ranks", "Some CPU", record.traceback):
        assert text in out
    assert [line.split() for line in out.splitlines() if "seed " in line] == [
        ["seed", "0"], ["order_seed", "0"], ["run_seed", "90000"]
    ]  # fmt: skip
    assert "/9j/" not in out


@pytest.mark.parametrize(
    ("form", "expected"),
    [
        ("text", "  world_size   batch_per_rank   "),
        ("markdown", "| world_size | batch_per_rank | "),
        ("csv", "world_size,batch_per_rank,global_batch,images_per_s,images_per_s_low,"),
        ("latex", r"world\_size & batch\_per\_rank & "),
    ],
)
def test_the_table_is_written_in_every_format(folder: Path, form: str, expected: str, run: DmlsRay) -> None:
    code, out, _ = run("table", folder, "--format", form)
    assert code == 0
    assert expected in out
    assert ("ranks 2 vs 1" in out) == (form in ("text", "markdown"))


def test_sweeps_and_runs_are_written_as_json(folder: Path, run: DmlsRay) -> None:
    found = json.loads(run("ls", folder, "--format", "json")[1])
    assert (found["kind"], found["sweeps"][0]["folder"]) == ("ls", str(folder))
    run_id = load(folder).records[0].run_id
    shown = json.loads(run("show", run_id, folder, "--format", "json")[1])
    assert (shown["kind"], shown["run"]["run_id"]) == ("show", run_id)


def test_ls_says_what_runs_now_and_how_long_ago_it_was_seen_to_get_on(folder: Path, run: DmlsRay) -> None:
    new = folder.parent / "new"
    with Store(new):
        # In the second one a sweep was killed.
        for path in (new, folder):
            ProgressFile(path).write(3, 12, "a-1", seconds_ago=60)
        (found,) = json.loads(run("ls", folder.parent, "--format", "json")[1])["running"]
        assert 60 <= found.pop("seconds_since_progress") < 70
        assert found == {"folder": str(new), "done": 3, "total": 12, "run_id": "a-1"}
        assert f"{new} goes on: 3 of 12 runs" in run("ls", folder.parent)[1]
        assert run("ls", new, "--format", "json")[0] == 0, "its first run has not ended yet"
        assert run("ls", new)[0] == 0
    assert json.loads(run("ls", folder.parent, "--format", "json")[1])["running"] == []


def test_every_object_of_json_is_one_of_the_schema(folder: Path, run: DmlsRay) -> None:
    other = keep(rates(10), folder.parent / "slow")
    run_id = load(folder).records[0].run_id
    commands: dict[type, tuple[Any, ...]] = {
        json_objects.Table: ("table", folder),
        json_objects.Compare: ("compare", folder, other),
        json_objects.Advise: ("advise", folder, "--for", "throughput"),
        json_objects.Ls: ("ls", folder),
        json_objects.Show: ("show", run_id, folder),
    }
    for kind, words in commands.items():
        code, out, _ = run(*words, "--format", "json")
        assert code == 0
        found = msgspec.json.decode(out, type=kind)
        assert json.loads(msgspec.json.encode(found)) == json.loads(out)


def test_the_effects_of_the_answer_are_written_as_json(folder: Path, run: DmlsRay) -> None:
    answer = json.loads(run("table", folder, "--format", "json")[1])
    first = answer["effects"][0]
    assert set(first) == {"metric", "kind", "pair", "where", "value", "low", "high", "n", "verdict", "training"}
    assert (first["metric"], first["n"]) == ("images_per_s", 3)
    assert answer["comparisons"] == 8


def test_figures_are_drawn_into_the_sweeps_folder(folder: Path, run: DmlsRay) -> None:
    code, out, _ = run("figures", folder)
    assert code == 0
    drawn = [Path(line) for line in out.splitlines()]
    assert {path.parent for path in drawn} == {folder / "figures"}
    assert {path.suffix for path in drawn} == {".png", ".svg", ".pdf"}
    assert all(path.stat().st_size > 1000 for path in drawn)


def test_export_writes_what_other_programs_read_beside_the_runs_themselves(folder: Path, run: DmlsRay) -> None:
    before = (folder / "runs.jsonl").read_text()
    for form in ("csv", "parquet", "json"):
        assert run("export", folder, "--format", form)[0] == 0
    assert pd.read_parquet(folder / "runs.parquet")["images_per_s"].notna().all()
    assert len(pd.read_parquet(folder / "ranks.parquet")) == 18
    assert len(json.loads((folder / "runs.json").read_text())) == 12
    assert (folder / "runs.jsonl").read_text() == before


def test_prices_give_the_table_the_report_and_the_advice_what_samples_cost(folder: Path, run: DmlsRay) -> None:
    code, out, _ = run("table", folder, "--price", "cpu=0.5", "--format", "csv")
    costs = pd.read_csv(io.StringIO(out))
    assert code == 0
    assert (costs["cost_per_million_samples"] * costs["images_per_s"]).tolist() == pytest.approx([0.5e6 / 3600] * 4)
    assert run("report", folder, "--price", "cpu=0.5")[0] == 0
    assert "cost_per_million_samples" in pd.read_csv(folder / "table.csv")
    assert "cost/M samples" in (folder / "report.html").read_text()
    assert "cost/run" in run("advise", folder, "--for", "cost", "--price", "cpu=0.5")[1]


def in_sessions(swept: Results, name: str) -> Results:
    """The runs with each repeat in a session of its own."""
    for record in swept.records:
        record.session = f"{name} {record.repeat}"
    return swept


def test_below_three_sessions_of_each_a_slowdown_can_neither_be_said_nor_ruled_out(folder: Path, run: DmlsRay) -> None:
    code, out, err = run("compare", folder, folder, "--fail-if-slower", "5%")
    assert code == 4
    assert "not distinguished" in out
    assert err.startswith("dmls-ray compare: B may be slower than A by more than 5%: over all")
    assert "needs 3 sessions of each" in err
    other = keep(rates(10), folder.parent / "slow")
    for form in ("text", "markdown", "csv", "latex"):
        code, out, err = run("compare", folder, other, "--fail-if-slower", "5%", "--format", form)
        assert (code, err.count("\n")) == (4, 1)
        assert out.count("different in these sessions") == (4 if form == "csv" else 5)
        assert "slower" not in out
    code, out, err = run("compare", folder, other, "--fail-if-slower", "5%", "--format", "json")
    assert (code, json.loads(out)["verdict"]) == (4, "different in these sessions")


@pytest.mark.parametrize(
    ("speed", "noise", "share", "code", "names"),
    [
        (50.0, (1.0, 1.02, 0.99), "5%", 3, "B is slower than A by more than 5%: over all"),
        (50.0, (1.0, 1.02, 0.99), "60%", 0, ""),
        (100.0, (1.0, 1.02, 0.99), "20%", 0, ""),
        (93.0, (1.0, 1.2, 0.8), "5%", 4, "B may be slower than A by more than 5%: over all"),
        (200.0, (1.0, 1.02, 0.99), "0", 0, ""),
    ],
)
def test_compare_fails_a_slowdown_beyond_doubt_with_3_and_one_that_is_not_ruled_out_with_4(
    folder: Path, speed: float, noise: Sequence[float], share: str, code: int, names: str, run: DmlsRay
) -> None:
    a, b = (
        keep(in_sessions(rates(*made), name), folder.parent / name)
        for name, made in (("a", (100.0,)), ("b", (speed, noise)))
    )
    found, out, err = run("compare", a, b, "--fail-if-slower", share)
    assert found == code
    assert err.startswith(f"dmls-ray compare: {names}" if names else "")
    assert bool(err) == bool(names)
    assert "different in these sessions" not in out
    assert run("compare", a, b)[0] == 0


@pytest.mark.parametrize("fits", [[], [16]])
def test_compare_fails_what_ended_ok_in_a_and_never_in_b(folder: Path, fits: list[int], run: DmlsRay) -> None:
    def rate(values: dict[str, Any], repeat: int) -> float | None:
        return 100.0 + repeat if values["batch_per_rank"] in fits else None

    other = keep(results({"batch_per_rank": [16, 32], "world_size": [1, 2]}, rate), folder.parent / "other")
    code, _, err = run("compare", folder, other, "--fail-if-slower", "5%")
    assert code == 3
    assert err.startswith("dmls-ray compare: ok in A and never in B: ")
    assert err.count("\n") == 1
    assert "world_size=2 batch_per_rank=32" in err
    assert ("batch_per_rank=16" in err) == (16 not in fits)
    assert run("compare", folder, other)[0] == 0
    assert run("compare", other, folder, "--fail-if-slower", "5%")[0] == 4


def test_advise_names_the_configuration_for_an_aim(folder: Path, run: DmlsRay) -> None:
    code, out, _ = run("advise", folder, "--for", "throughput")
    assert code == 0
    assert "batch_per_rank" in out.splitlines()[-1]
    code, out, _ = run("advise", folder, "--for", "throughput", "--format", "json")
    assert (code, json.loads(out)["trials"][0]["verdict"]) == (0, "best")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("table nowhere", "nowhere holds no runs.jsonl; name the folder of a sweep, for example results/batch_size."),
        ("tabel", "argument COMMAND: invalid choice: 'tabel'"),
        ("table", "the following arguments are required: DIR"),
        ("", "the following arguments are required: COMMAND"),
        ("ls --frmat csv", "dmls-ray ls: --frmat is no flag; did you mean --format? --help lists them all."),
        ("table DIR --colums", "dmls-ray table: --colums is no flag; did you mean --columns?"),
        ("table DIR more", "dmls-ray table: more is one argument too many"),
        ("table SWEEP --format json --columns all", "leave out --by and --columns"),
        ("table SWEEP --by rank --columns all", "--columns is for the table of the sweep; leave it out"),
        ("ls EMPTY", "holds no sweep; name a folder that does"),
        ("report EMPTY/none", "runs.jsonl holds no run yet; run its sweep"),
        ("show nothing SWEEP", "no run of 1 sweeps"),
        ("compare SWEEP SWEEP --fail-if-slower=five", "dmls-ray compare: --fail-if-slower "),
        ("compare SWEEP SWEEP --fail-if-slower=100%", "dmls-ray compare: --fail-if-slower "),
        ("table SWEEP --price h100=2", "names no machine of these runs; they ran on Some CPU."),
        ("advise SWEEP --goal min", "--goal has no effect with --for throughput; leave it out."),
        ("copy SWEEP s3:/x/y", "is a URI that lacks a slash"),
        ("export SWEEP --out FILE", "file cannot be used ("),
        ("figures SWEEP --out FILE/below", "file/below cannot be used ("),
        ("report SWEEP", "report.html"),
        ("tensorboard SWEEP", "tensorboard"),
    ],
)
def test_what_cannot_be_done_is_one_line_with_exit_code_2(
    words: str, complaint: str, folder: Path, tmp_path: Path, run: DmlsRay
) -> None:
    (tmp_path / "file").write_text("in the way")
    (folder / "report.html").mkdir()
    (folder / "tensorboard").write_text("in the way")
    (tmp_path / "empty" / "none").mkdir(parents=True)
    if "none" in words:
        (tmp_path / "empty" / "none" / "runs.jsonl").write_text("")
    places = {"SWEEP": folder, "EMPTY": tmp_path / "empty", "FILE": tmp_path / "file"}
    for name, path in places.items():
        words = words.replace(name, str(path))
    code, _, err = run(*words.split())
    assert (code, err.count("\n")) == (2, 1)
    assert complaint in err


@pytest.mark.parametrize(("form", "expected"), [("csv", "w"), ("text", " ")])
def test_a_reader_that_has_read_enough_is_no_error(folder: Path, form: str, expected: str) -> None:
    command = f"{sys.executable} -m dmls_ray table {folder} --format {form} | head -c 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=PROJECT)
    assert (done.returncode, done.stdout, done.stderr) == (0, expected, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
def test_a_disk_without_room_for_the_output_is_one_line(folder: Path) -> None:
    command = f"{sys.executable} -m dmls_ray table {folder} --format csv > /dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False, cwd=PROJECT)
    assert done.returncode == 2
    assert done.stderr.startswith("dmls-ray table: the output cannot be used (No space left on device)")
    assert done.stderr.count("\n") == 1


def test_ctrl_c_ends_a_command_with_130_and_no_traceback(
    folder: Path, run: DmlsRay, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tables, "load", interrupt)
    assert run("table", folder) == (130, "", "dmls-ray table: stopped.\n")


@pytest.fixture
def edited(tmp_path: Path) -> Path:
    """A sweep that was run again after an edit of m.py that made it twice as fast, and once with another batch."""
    noise = [1.0, 1.02, 0.99]
    records = []
    for version, batches in (("old", [16, 32]), ("new", [16, 64])):
        speed = 200 if version == "new" else 100
        runs = results(
            {"model": "m:net", "batch_per_rank": batches}, lambda values, repeat, speed=speed: speed * noise[repeat]
        )
        for record in runs.records:
            record.code, record.session = {"m.py": version}, version
            record.trial_id = Identity(code=record.code).trial_id(record.trial_id)
            record.run_id = f"{record.trial_id}-{record.repeat}"
        records += runs.records
    folder = tmp_path / "edited"
    folder.mkdir()
    (folder / "runs.jsonl").write_text("".join(f"{json.dumps(record.to_dict())}\n" for record in records))
    return folder


def test_stale_runs_are_left_out_with_a_line_and_included_on_request(
    edited: Path, tmp_path: Path, run: DmlsRay
) -> None:
    code, out, _ = run("table", edited)
    assert code == 0
    assert "6 runs of other versions of m.py left out; --stale includes them." in " ".join(out.split())
    assert sorted(load(edited).runs["batch_per_rank"].unique()) == [16, 64]
    code, out, _ = run("table", edited, "--stale")
    assert code == 0
    assert "left out" not in out
    assert re.search(r"code current vs [0-9a-f]{8} +equal each time", out), "two versions are values of an axis"
    assert re.search(r"speeds not compared, .* one session: code current vs", " ".join(out.split()))
    everything = load(edited, stale=True).runs
    rows = everything.assign(is_current=everything["code"] == "current").groupby(["is_current", "batch_per_rank"])
    assert rows.size().to_dict() == {(False, 16): 3, (False, 32): 3, (True, 16): 3, (True, 64): 3}
    for command in ("export", "figures"):
        assert run(command, edited, "--stale", "--out", tmp_path / command)[0] == 0
    assert len(pd.read_csv(tmp_path / "export" / "runs.csv")) == 12
    assert "code" in run("advise", edited, "--stale")[1]


def test_show_finds_a_stale_run_by_its_name(edited: Path, run: DmlsRay) -> None:
    for record, version in ((load(edited, stale=True).records[0], "old"), (load(edited).records[0], "new")):
        code, out, err = run("show", record.run_id, edited)
        assert (code, err) == (0, "")
        assert out.startswith(f"{record.run_id} in {edited}: ok")
        assert f"m.py                     {version}" in out
        assert "3 runs are called" in run("show", record.trial_id, edited)[2]


def test_a_copy_has_the_stale_runs_too(edited: Path, tmp_path: Path, run: DmlsRay) -> None:
    assert "12 of 12 runs added" in run("copy", edited, tmp_path / "copy")[1]
    assert "0 of 12 runs added" in run("copy", edited, tmp_path / "copy")[1]
    assert len(load(tmp_path / "copy")) == 6


def test_a_copy_adds_an_answer_that_is_better_than_the_one_there_and_hides_no_newer_version(
    folder: Path, tmp_path: Path, run: DmlsRay
) -> None:
    there = tmp_path / "there"
    records = load(folder).records
    with Store(there) as store:
        stopped = records[1].replace(mode="search", metrics={"stopped_epoch": 1})
        store.append(records[0].replace(mode="search"), stopped)
        store.append(records[2])
    assert "11 of 12 runs added" in run("copy", folder, there)[1]
    assert "0 of 12 runs added" in run("copy", folder, there)[1]
    assert [record.mode for record in load(there).records] == ["bench"] * 12

    for name, version, at in (("old", "v1", "2026-01-01T00:00:00"), ("new", "v2", "2026-02-01T00:00:00")):
        with Store(tmp_path / name) as store:
            store.add_sessions({"code": {"m.py": version}, "started_at": at})
            store.append(records[0].replace(code={"m.py": version}, started_at=at))
    run("copy", tmp_path / "old", tmp_path / "new")
    assert [record.code for record in load(tmp_path / "new").records] == [{"m.py": "v2"}]


def test_one_folder_that_cannot_be_read_hides_no_other(folder: Path, run: DmlsRay) -> None:
    no_text = os.fsdecode(b"no text \xff")
    for name, text in (("bad_line", "{}\n"), ("bad_sweep", ""), ("no_number", ""), (no_text, "")):
        (folder.parent / name).mkdir()
        (folder.parent / name / "runs.jsonl").write_text(text)
    (folder.parent / "bad_sweep" / "sweep.json").write_text("[]")
    (folder.parent / "no_number" / "sweep.json").write_text('{"sessions": [{"repeats": NaN}]}')
    code, out, _ = run("ls", folder.parent, "--format", "csv")
    rows = pd.read_csv(io.StringIO(out)).set_index("folder")
    assert code == 0
    assert rows.loc[str(folder), "outcome"] == "12 ok"
    assert "line 1 is no record" in rows.loc[str(folder.parent / "bad_line"), "outcome"]
    assert "sweep.json describes no sweep" in rows.loc[str(folder.parent / "bad_sweep"), "outcome"]
    assert "NaN is no number of JSON" in rows.loc[str(folder.parent / "no_number"), "outcome"]
    assert str(folder.parent / "no text \\udcff") in rows.index
    run_id = results({"batch_per_rank": 16, "world_size": 2}, lambda values, repeat: 100.0).records[0].run_id
    assert run("show", run_id, folder.parent)[0] == 0
