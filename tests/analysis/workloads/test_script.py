from __future__ import annotations

from dmls_ray.analysis.results import Results
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.trials.trial import Trial, describe_changes
from dmls_ray.records.model import RunRecord
from dmls_ray.workloads.script.config import ScriptConfig
from tests.records.test_model import record

SURE = "loader and model agree"


def runs(*losses: float, counted_by: str = SURE) -> list[RunRecord]:
    config = {"workload": "script", **ScriptConfig(script="train.py").canonical()}
    return [
        record(
            workload="script", trial_id="a", run_id=f"a-{repeat}", repeat=repeat, config=config,
            metrics={"samples_per_s": 10.0, "first_loss": loss}, facts={"counted_by": counted_by},
        )
        for repeat, loss in enumerate(losses)
    ]  # fmt: skip


def test_a_note_says_how_samples_are_known_where_that_is_not_sure() -> None:
    sure, unsure = (make_table(Results("", runs(1.0, 2.0, counted_by=by))) for by in (SURE, "model"))
    assert not any("samples of a step" in note for note in sure.notes)
    assert any("samples of a step are those of the model" in note for note in unsure.notes)


def test_a_script_that_seeds_itself_is_named() -> None:
    varied, same = (make_table(Results("", runs(*losses))) for losses in ((1.0, 2.0), (1.0, 1.0)))
    assert not any("seeds itself" in note for note in varied.notes)
    assert any("seeds itself" in note for note in same.notes)


def test_a_script_whose_repeats_are_equal_is_spoken_of_as_a_script() -> None:
    records = runs(1.0, 1.0, 1.0)
    for made in records:
        made.seed, made.metrics = made.repeat, {**made.metrics, "train_loss": 1.25}
    (note,) = [note for note in make_table(Results("", records)).notes if "although their seeds differ" in note]
    assert note.endswith(
        "If it sets a seed itself, let it take that of the run: by the flag of --seed-flag, or DMLS_RAY_SEED."
    )


def test_ranks_that_compute_with_other_threads_are_not_compared_in_silence() -> None:
    records = runs(1.0, 2.0)
    for number, made in enumerate(records):
        made.trial_id = f"trial {number}"
        made.config = {**made.config, "world_size": number + 1}
        made.facts = {**made.facts, "threads": str(2 - number)}
    table = make_table(Results("", records), varied=("world_size",))
    assert any("2 on 1 rank, 1 on 2 ranks" in note for note in table.notes)
    records[1].facts["threads"] = "2"
    assert not any("threads" in note for note in make_table(Results("", records), varied=("world_size",)).notes)


def test_files_that_runs_read_and_write_are_named() -> None:
    records = runs(1.0, 2.0, 3.0)
    for number, made in enumerate(records):
        made.started_at = f"2026-01-01T00:00:0{3 - number}+00:00"
    last, middle, first = records

    def notes() -> str:
        return "\n".join(make_table(Results("", records)).notes)

    first.facts |= {"read": ["ckpt/latest.pt", "data.txt"], "written": ["log.txt"]}
    last.facts |= {"written": ["ckpt/latest.pt"]}
    assert "ckpt/latest.pt" not in notes()
    assert "log.txt" not in notes()
    middle.facts |= {"written": ["log.txt", "ckpt/latest.pt"]}
    assert "ckpt/latest.pt, log.txt changed during several runs" in notes()
    last.facts |= {"read": ["ckpt/latest.pt", "data.txt"], "written_in_copy": ["out.txt"]}
    assert "Runs read files that earlier runs wrote (ckpt/latest.pt), so they may resume" in notes()
    assert "log.txt changed during several runs" in notes()
    last.facts |= {"written": []}
    middle.facts |= {"written": ["log.txt", "ckpt/latest.pt"]}
    assert "Runs read files that one earlier run wrote (ckpt/latest.pt). For prepared data and" in notes()
    assert "so they may resume" not in notes()
    assert "Runs wrote out.txt in copies of the repository; your files are unchanged" in notes()
    assert "Runs read your" not in notes()
    last.facts |= {"written_in_copy": ["out.txt", "data.txt"]}
    assert "Runs read your data.txt and write it again, in copies of the repository" in notes()


def test_a_pattern_that_found_nothing_is_named_with_a_way_out() -> None:
    records = runs(1.0, 2.0)
    for made in records:
        made.config = {**made.config, "metric_regex": {"val_loss": "vall (.*)"}, "steps": 50}
    (note,) = [note for note in make_table(Results("", records)).notes if "--metric-regex val_loss" in note]
    assert "--steps none" in note
    records[0].metrics = {**records[0].metrics, "val_loss": 2.0}
    assert not any("--metric-regex val_loss" in note for note in make_table(Results("", records)).notes)


def test_settings_of_a_script_that_are_changed_together_name_their_trial() -> None:
    both = Trial("a", {"batch_size": 8, "accum": 4, "world_size": 1}, runs(1.0))
    assert describe_changes(both, ("batch_size", "accum")) == "batch_size=8 accum=4"
    assert describe_changes(Trial("b", {"batch_size": None, "accum": None}, runs(1.0)), ("batch_size", "accum")) == ""
