"""Commands that write files from the records of a sweep: `report`, `figures`, `tensorboard`, `export`, `copy`."""

from __future__ import annotations

import argparse
from pathlib import Path

from dmls_ray.analysis.export.files import with_uniform_columns, write_derived_files
from dmls_ray.analysis.export.text_tables import csv
from dmls_ray.analysis.figures import charts
from dmls_ray.analysis.figures.drawn import save
from dmls_ray.analysis.prices import with_prices
from dmls_ray.analysis.results import Results, load
from dmls_ray.analysis.summary import summarize
from dmls_ray.cli.console import EXIT_FAILED, EXIT_OK, Console, Parser, add_folder, say
from dmls_ray.records.model import RunRecord
from dmls_ray.records.stale import replaces
from dmls_ray.storage.folder import read_folder, read_sweep
from dmls_ray.storage.location import local_copy, open_store
from dmls_ray.storage.runs_file import RUNS
from dmls_ray.util.errors import ConfigError, StoreError
from dmls_ray.util.files import atomic_replace
from dmls_ray.util.importing import missing_extra
from dmls_ray.util.uri import below, check_location, is_uri


def local_folder(place: str | None) -> Path | None:
    """The folder of `--out` that files are drawn or written into.

    Raises:
        ConfigError: it is a URI.
    """
    if not place:
        return None
    if is_uri(place):
        check_location(place, "--out")
        raise ConfigError(f"--out {place} is no folder here; give a path, and copy from there.")
    return Path(place)


def _shown_path(results: Results, path: Path) -> str:
    """The path of a file as it is printed: of a file in the results folder, its URI if the results lie at a URI."""
    if path.is_relative_to(results.folder):
        return below(results.where, path.relative_to(results.folder).as_posix())
    return str(path)


def _upload(results: Results) -> None:
    """Upload what was written among results that lie at a URI."""
    if results.mirror is not None:
        results.mirror.push()


tensorboard_arguments = add_folder


def report_arguments(parser: Parser) -> None:
    add_folder(parser, price=True)


def report(given: argparse.Namespace, console: Console) -> None:
    """Write the report of a sweep again: report.html, one file that needs no network."""
    results = load(given.folder)
    if not results.records:
        raise StoreError(f"{below(results.where, RUNS)} holds no run yet; run its sweep first.")
    write_derived_files(with_prices(results, given.price))
    _upload(results)
    say(console, below(results.where, "report.html"))


def figures_arguments(parser: Parser) -> None:
    add_folder(parser, stale=True)
    parser.add_argument("--out", metavar="DIR", help="Folder to write to (default: figures/ in the sweep's folder)")


def figures(given: argparse.Namespace, console: Console) -> None:
    """Draw the figures of a sweep as PNG, SVG and PDF."""
    results = load(given.folder, stale=given.stale)
    default = results.folder / "figures"
    if not given.out and default.is_symlink():
        raise StoreError(f"{default} is a link, which may lead anywhere; remove it, or name a folder with --out.")
    drawn = save(charts(summarize(results).table), local_folder(given.out) or default)
    _upload(results)
    for path in drawn:
        say(console, _shown_path(results, path))
    if not drawn:
        say(console, f"There is nothing to draw for these {len(results)} runs; dmls-ray table shows their numbers.")


def tensorboard(given: argparse.Namespace, console: Console) -> None:
    """Write the files of TensorBoard again, from the records."""
    if reason := missing_extra("tensorboard", "tensorboard", "This command"):
        raise ConfigError(reason)
    # Imported here: it loads TensorBoard's packages, which no other command needs.
    from dmls_ray.analysis.tensorboard.writer import FOLDER, TensorBoardWriter

    results = load(given.folder)
    TensorBoardWriter(results.folder / FOLDER, summarize(results).question.varied).write_all(results.records)
    _upload(results)
    say(console, f"tensorboard --logdir {below(results.where, FOLDER)}")


def export_arguments(parser: Parser) -> None:
    add_folder(parser, stale=True)
    parser.add_argument("--format", choices=("csv", "parquet", "json"), default="csv", help="(default: csv)")
    parser.add_argument("--out", metavar="DIR", help="Folder to write to (default: the sweep's folder)")


def export(given: argparse.Namespace, console: Console) -> None:
    """Write runs, ranks and epochs of a sweep as files for other programs."""
    results = load(given.folder, stale=given.stale)
    out = local_folder(given.out) or results.folder
    out.mkdir(parents=True, exist_ok=True)
    for name in ("runs", "ranks", "epochs", "rank_epochs"):
        frame, path = getattr(results, name), out / f"{name}.{given.format}"
        with atomic_replace(path) as temporary:
            if given.format == "csv":
                temporary.write_text(csv(frame), encoding="utf-8")
            elif given.format == "parquet":
                with_uniform_columns(frame).to_parquet(temporary, index=False)
            else:
                # Not as JSON lines: runs.jsonl is the file of records.
                frame.to_json(temporary, orient="records", default_handler=str)
        say(console, f"{_shown_path(results, path)}: {len(frame)} rows")
    _upload(results)


def copy_arguments(parser: Parser) -> None:
    parser.add_argument("a", metavar="A", help="Results folder of a sweep, or its URI")
    parser.add_argument("b", metavar="B", help="Folder or URI that its runs are added to")


def copy(given: argparse.Namespace, console: Console) -> int:
    """Add the runs of a sweep to another folder or URI; existing runs stay, and no run is added twice.

    At a URI, the added runs are one object, which is faster to read than one object per run.
    """
    for place in (given.a, given.b):
        check_location(place)
    folder, mirror = local_copy(given.a)
    where = mirror.uri if mirror else None
    split = read_folder(folder, where)
    sessions = read_sweep(folder, where).get("sessions", [])
    with open_store(given.b, lambda note: say(console, note)) as store:
        present_sessions = read_sweep(store.folder, store.where).get("sessions", [])
        if new := [session for session in sessions if session not in present_sessions]:
            store.add_sessions(*new)
        present = {record.run_id: record for record in store.all_records}
        records = [*split.stale, *split.current]
        missing = [record for record in records if _adds(record, present.get(record.run_id))]
        if missing:
            store.append(*missing)
    if store.mirror is not None and store.mirror.is_kept:
        return EXIT_FAILED
    say(
        console, f"{len(missing)} of {len(records)} runs added to {store.where}; dmls-ray report makes the other files."
    )
    return EXIT_OK


def _adds(record: RunRecord, present: RunRecord | None) -> bool:
    """Whether a run is missing there, or present without an answer as good as this record's."""
    if present is None:
        return True
    if not replaces(record, present):
        return False
    is_full = present.is_stopped and not record.is_stopped
    return is_full or not replaces(present, record)
