"""What README.md, docs/ and --help name can be had: columns, numbers of records, files and flags."""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dmls_ray import load
from dmls_ray.analysis.export.files import write_derived_files
from dmls_ray.analysis.metrics import table_metrics
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.model import Table
from dmls_ray.analysis.table.named_layouts import shown_columns
from dmls_ray.cli.main import STARTING, main
from dmls_ray.cli.presets import PRESETS
from dmls_ray.util.errors import ConfigError
from tests.analysis.samples import results, set_value
from tests.conftest import PROJECT
from tests.test_docs import PAGES

NUMBERS = (PROJECT / "docs" / "numbers.md").read_text()
COMMANDS = (PROJECT / "docs" / "commands.md").read_text()
REFERENCE = PROJECT / "results" / "reference"
SWEEPS = ("batch_size", "batch_size_h200", "grayscale_memory", "machines/simplecnn-100mbit", "quantization", "script")
"""Committed sweeps of all workloads, of CPUs and a GPU, of one machine and of two."""

NOT_IN_REFERENCE = {
    "tokens_per_step",
    "optimizers",
    "step_ms_mean",
    "all_reduce_ms",
    "all_gather_ms",
    "reduce_scatter_ms",
    "other_collectives_ms",
    "counted_share",
    "validation_accuracy",
    "validation_loss",
    "gradient_noise_scale",
    "stopped_epoch",
    "tflop_per_s",
    "mfu",
    "hfu",
    "cost_per_million_samples",
    "cost_per_million_tokens",
    "run_cost",
    "joules_per_sample",
    "to_device_ms",
    "from_device_ms",
}
"""Columns that no committed sweep has: they are asked of records that are made here."""

OF_NO_COLUMN = {
    "step_ms": "the times of a rank's steps",
    "measured_total_s": "a name that a prefix makes",
    "tflop_per_step": "what mfu is made of",
    "product_tflop_per_s": "the same",
    "product_spread": "the same",
    "no_mfu": "why there is no mfu",
}

FILES_OF_RUNS = {
    "runs/<run>/rank<n>.log": ("rank0.log", "tests/cli/test_sweep_command.py"),
    "trace-rank0.json.gz": ("trace_name(0)", "tests/training/test_further_steps.py"),
    "weights.pt": ("weights.pt", "tests/test_sweeps.py"),
    "weights.json": ("weights.json", "tests/test_sweeps.py"),
}
"""Files that only a run writes -> how a test that runs it names them, and that test."""
FILES_OF_OTHERS = {"SKILL.md", "checkpoint.pt", "ckpt/latest.pt", "wandb.log"}
"""Files of users' scripts, and the name of a function."""

FLAGS_OF_OTHERS = {
    "--batch", "--bs", "--chunk", "--config", "--context", "--dummy", "--manual", "--manual-seed", "--my-seed",
    "--pictures", "--random-seed", "--script-seed", "--target", "--trainer", "--widths",  # of a script or a function
    "--nodes", "--signal",  # of Slurm
    "--gpus-per-node", "--head", "--nproc-per-node", "--runtime-env-json",  # of Slurm, Ray, torchrun
    "--loops", "--seeds", "--sweeps", "--up",  # of benchmarks/
}  # fmt: skip


def written_by_hand(page: str) -> str:
    return re.sub(r"<!-- generated.*?<!-- end -->", "", page, flags=re.DOTALL)


def spans() -> Iterator[str]:
    """Inline code of all pages."""
    for path in PAGES:
        prose = re.sub(r"^```.*?^```$", "", written_by_hand(path.read_text()), flags=re.MULTILINE | re.DOTALL)
        yield from re.findall(r"`([^`\n]+)`", prose)


def rows_of_metrics(heading: str) -> list[tuple[str, ...]]:
    """The cells of the rows below a heading of the page of metrics, up to the name of the metric."""
    below = NUMBERS.partition(heading)[2].partition("\n### ")[0]
    return re.findall(r"^\| (?:([^|]+) \| )?`(\w+)` \|", below, re.MULTILINE)


@functools.cache
def reference() -> list[tuple[Results, Table]]:
    sweeps = [load(REFERENCE / name) for name in SWEEPS]
    return [(sweep, make_table(sweep)) for sweep in sweeps]


def heading_in(table: Table, name: str) -> str | None:
    """The heading of the column that `--columns` gives for a name; None without one."""
    try:
        return shown_columns(table, [name]).columns[-1].title
    except ConfigError:
        return None


def test_every_column_of_the_page_of_metrics_is_in_a_table_that_is_asked_for_it() -> None:
    rows = rows_of_metrics("### In tables")
    assert len(rows) > 50
    lacking = set()
    for heading, name in rows:
        found = {heading_in(table, name) for _, table in reference()} - {None}
        if not found:
            lacking.add(name)
            made = results({"batch_per_rank": [16, 32]}, lambda values, repeat: 100.0 + repeat)
            for record in made.records:
                set_value(record, name, 0.5)
            found = {heading_in(make_table(made), name)}
        assert found == {heading}, name
    assert lacking == NOT_IN_REFERENCE


def test_every_heading_that_a_page_names_is_one_of_a_column() -> None:
    headings = {column.title for _, table in reference() for column in table.columns}
    headings |= {metric.label for metric in table_metrics().values()}
    is_heading = re.compile(r"[\w.-]+( [\w.-]+)* (s|ms|MiB|acc\.)|\w+/s|s/\w+|bound by")
    named = {span for span in spans() if is_heading.fullmatch(span)}
    assert {"exposed comm. ms", "start-up s", "tensor MiB"} <= named
    assert named <= headings


def test_every_number_that_the_page_of_metrics_names_is_in_the_files_of_a_sweep() -> None:
    columns: set[str] = set()
    for sweep, _ in reference():
        for frame in (sweep.runs, sweep.ranks, sweep.epochs):
            columns |= {*frame.columns[frame.notna().any()]}
    prose = {*re.findall(r"`([a-z0-9]+(?:_[a-z0-9]+)+)`", written_by_hand(NUMBERS))}
    assert prose - columns - NOT_IN_REFERENCE == {*OF_NO_COLUMN}


def test_every_file_that_a_page_or_a_help_names_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "script"
    shutil.copytree(REFERENCE / "script", folder)
    write_derived_files(load(folder))
    with pytest.raises(SystemExit):
        main(["export", str(folder), "--format", "parquet"])
    is_file = re.compile(r"[\w./<>*-]*[\w>*]\.(?:csv|json\.gz|jsonl|json|txt|md|html|log|pt|parquet)\b")
    questions = [preset.question + preset.description for preset in PRESETS.values()]
    texts = [*spans(), *(re.sub(r"-\n +", "-", text) for text in (COMMANDS, *questions))]
    named = {name for text in texts for name in is_file.findall(text)}
    assert {"report.html", "ranks.csv", "trace-rank0.json.gz"} <= named
    missing = {
        name for name in named - FILES_OF_OTHERS if not (folder / name).exists() and not (PROJECT / name).exists()
    }
    assert missing == FILES_OF_RUNS.keys()
    for name, test in FILES_OF_RUNS.values():
        assert name in (PROJECT / test).read_text()


def test_every_flag_that_a_page_names_is_in_the_command_reference() -> None:
    is_flag = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
    described = {*is_flag.findall(COMMANDS)}
    named = {flag for span in spans() for flag in is_flag.findall(span)}
    assert len(named) > 50
    assert named - described == FLAGS_OF_OTHERS


@pytest.mark.parametrize("command", STARTING)
def test_the_command_reference_says_of_each_command_more_than_how_to_ask_for_help(command: str) -> None:
    page = COMMANDS.partition(f"### dmls-ray {command}\n")[2].partition("\n### ")[0]
    assert f"usage: dmls-ray {command}" in page
    assert len(page.splitlines()) > 10
