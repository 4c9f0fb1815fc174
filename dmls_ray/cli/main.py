"""`dmls-ray`: reads what sweeps have left, and starts nothing.

It loads neither PyTorch nor Ray, and reads a folder that was copied from a cluster.
"""

from __future__ import annotations

import argparse
import inspect
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from dmls_ray.cli.console import SPARE, Console, print_table, say
from dmls_ray.cli.parser import EXIT_BAD_INPUT, EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK, Parser, parse
from dmls_ray.storage.folder import RUNS, is_inside
from dmls_ray.storage.mirror import PENDING_DIR, find_sweeps
from dmls_ray.util.atomic import atomic_replace
from dmls_ray.util.errors import ConfigError, InputError, StoreError
from dmls_ray.util.gc import gc_disabled
from dmls_ray.util.text import escape_control_chars
from dmls_ray.util.uri import below, check_location, is_uri

if TYPE_CHECKING:
    import pandas as pd

    from dmls_ray.analysis.results import Results
    from dmls_ray.records.model import RunRecord

EXIT_SLOWER = 3
"""`compare --fail-if-slower` found a slowdown beyond doubt."""

_DESCRIPTION = "Read what sweeps have left: tables, reports, figures, comparisons and advice. Nothing is started."

FORMATS = ("text", "markdown", "csv", "latex")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run one of the commands, and exit: 0, 2 for bad input, 3 where `compare` was to fail and does, 130 after Ctrl-C.

    Args:
        arguments: the command line, without the program; sys.argv's by default.
    """
    name = "dmls-ray"
    try:
        parser = _parser(name)
        given = parse(parser, list(sys.argv[1:] if arguments is None else arguments))
        name = given.parser.prog
        with gc_disabled():
            code = given.command(given, Console())
        sys.stdout.flush()
    except InputError as error:
        code = _tell(f"{name}: {' '.join(str(error).split())}", EXIT_BAD_INPUT)
    except BrokenPipeError:  # `| head` has read enough
        _drop_output()
        code = EXIT_OK
    except OSError as error:
        where, why = error.filename or "the output", error.strerror or error
        code = _tell(f"{name}: {where} cannot be used ({why}); see to its rights and to room for it.", EXIT_BAD_INPUT)
        try:
            sys.stdout.flush()
        except OSError:
            _drop_output()
    except KeyboardInterrupt:
        code = _tell(f"{name}: stopped.", EXIT_INTERRUPTED)
    sys.exit(code)


def _drop_output() -> None:
    """What is still to be printed goes nowhere, when Python ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _tell(line: str, code: int) -> int:
    print(escape_control_chars(line), file=sys.stderr)
    return code


def _parser(name: str) -> Parser:
    """The commands with their arguments."""
    parser = Parser(prog=name, allow_abbrev=False, description=_DESCRIPTION)
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)
    for command, add_arguments in _COMMANDS.items():
        text = inspect.cleandoc(command.__doc__ or "")
        own = commands.add_parser(
            command.__name__.removeprefix("_"), help=text.partition("\n")[0].rstrip("."), description=text,
            allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter,
        )  # fmt: skip
        add_arguments(own)
        own.set_defaults(command=command, parser=own)
    return parser


# --- what there is ----------------------------------------------------------------------------------------------


def _ls(given: argparse.Namespace, console: Console) -> int:
    """List the sweeps below a folder."""
    import pandas as pd

    from dmls_ray.storage.folder import read_sweep

    rows = []
    for folder in _sweeps(given.folder):
        try:
            results = _load(folder)
            sessions = read_sweep(results.folder).get("sessions", [])
        except InputError as error:
            # One that cannot be read hides no other.
            rows.append({"folder": str(folder), "outcome": str(error)})
            continue
        outcomes = Counter(record.outcome.value for record in results.records)
        rows.append(
            {
                "folder": str(folder),
                "runs": str(len(results)),
                "outcome": ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common()),
                "last begun": max((record.started_at for record in results.records), default="")[:16].replace("T", " "),
                "hardware": ", ".join(sorted({record.machine.get("cpu", "") for record in results.records})),
                "question": (sessions[-1].get("question") or sessions[-1].get("axis") or "") if sessions else "",
            }
        )
    if not rows:
        raise StoreError(
            f"{given.folder} holds no sweep; name a folder that does, or run one: python sweeps/batch_size.py."
        )
    heads = ["folder", "runs", "outcome", "last begun", "hardware", "question"]
    frame = pd.DataFrame([{head: row.get(head, "") for head in heads} for row in rows], columns=heads)
    _print(frame, [], given.format, console)
    return EXIT_OK


def _show(given: argparse.Namespace, console: Console) -> int:
    """Tell all of one run: its configuration, outcome, phases, epochs and ranks, and its log."""
    import pandas as pd

    from dmls_ray.analysis.stats.formatting import GENERIC

    results, record = _find_run(given.run, given.folder)
    plain = record.to_dict()
    inner = ("config", "machine", "versions", "git", "epochs", "ranks", "traceback", "earlier_attempts", "picture")
    ended = f"{record.outcome.value}{f', {record.reason}' if record.reason else ''}"
    say(console, f"{record.run_id} in {results.where}: {ended}")
    for title, values in (
        ("Configuration", plain["config"]),
        ("Result", {name: value for name, value in plain.items() if name not in inner}),
        ("Machine", plain["machine"]),
        ("Versions", plain["versions"] | plain["git"]),
    ):
        say(console, f"\n{title}", style="bold")
        for name, value in values.items():
            if value not in (None, "", [], {}):
                say(console, f"  {name:24} {GENERIC(value) if isinstance(value, float) else value}")
    frames = {"Epochs": plain["epochs"], "Ranks": plain["ranks"], "Earlier attempts": plain["earlier_attempts"]}
    for title, rows in frames.items():
        if rows:
            say(console, f"\n{title}", style="bold")
            print_table(_texts(pd.DataFrame(rows)), console)
    if record.traceback:
        say(console, "\nLog", style="bold")
        say(console, record.traceback)
    if record.picture:
        say(console, f"\nPicture: a JPEG, {len(record.picture):,} characters of base64; the report shows it.")
    files = results.folder / "runs" / record.run_id
    if files.is_dir() and is_inside(files, results.folder):
        say(console, f"\nFiles: {files}/ ({', '.join(sorted(path.name for path in files.iterdir()))})")
    return EXIT_OK


def _table(given: argparse.Namespace, console: Console) -> int:
    """Print the table of a sweep and its answer, or one of the reports' tables."""
    from dmls_ray.analysis.export.text_tables import csv
    from dmls_ray.analysis.summary.sweep_summary import summarize
    from dmls_ray.analysis.table.layouts import LAYOUTS, RenderedTable, beside_published

    reading = summarize(_load(given.folder))
    if given.by:
        layout = LAYOUTS[given.by](reading.results, beside=given.published)
    elif given.published:
        layout = beside_published(reading.table)
    else:
        layout = RenderedTable(reading.table.frame(), reading.table.notes)
    if given.format == "csv" and not given.by and not given.published:
        print(csv(reading.table.numbers()), end="")
        return EXIT_OK
    notes = [*layout.notes, *([] if given.by else ["", reading.sentence])]
    _print(layout.frame, notes, given.format, console, spare=SPARE)
    return EXIT_OK


def _published(given: argparse.Namespace, console: Console) -> int:
    """Print the reports' own tables and sentences, and draw their curves, from their published figures alone."""
    from dmls_ray.analysis.export.text_tables import latex_comment
    from dmls_ray.analysis.published.data import IMPLEMENTATION, REPORTS, published, published_images
    from dmls_ray.analysis.summary.sentence import answer
    from dmls_ray.analysis.table.build import make_table
    from dmls_ray.analysis.table.layouts import LAYOUTS

    figures = _local(given.figures, "--figures")
    wanted = {name: told for name, told in REPORTS.items() if given.report in (None, name)}
    asked = [(report, by) for report, (_, layouts, _) in wanted.items() for by in layouts if given.by in (None, by)]
    if not asked:
        has = ", ".join(wanted[given.report][1])
        raise ConfigError(f"report {given.report} has no table by {given.by}; it has tables by {has}.")
    if given.format == "csv" and len(asked) > 1:
        raise ConfigError(
            f"--format csv is one table, and these are {len(asked)}; name a report and a table: "
            f"{given.parser.prog} {asked[0][0]} --by {asked[0][1]} --format csv, say."
        )
    # LaTeX reads the tables alone.
    told = latex_comment if given.format == "latex" else str
    for report, (dataset, _, axes) in wanted.items():
        results = published(dataset)
        notes: dict[str, None] = {}
        for by in (by for of, by in asked if of == report):
            if given.format != "csv":
                print()
                say(console, told(f"Report {report}, by {by}"), style="bold")
            layout = LAYOUTS[by](published_images() if by == IMPLEMENTATION else results)
            notes |= dict.fromkeys(layout.notes)
            _print(layout.frame, [], given.format, console)
        table = make_table(results)
        sentences = [] if given.by else [answer(table, axis) for axis in axes]
        if given.format != "csv" and any(of == report for of, _ in asked):
            for sentence in (*notes, _ONE_RUN, *sentences):
                print()
                say(console, told(sentence))
        if figures is not None:
            drawn = _draw(results, figures / report, way_out="name another with --figures")
            for path in drawn if given.format != "csv" else ():
                say(console, told(str(path)))
    return EXIT_OK


_ONE_RUN = "Each value is of one run (n = 1), so that none has an interval."
"""What the notes of the reports' tables do not say."""


def _export(given: argparse.Namespace, console: Console) -> int:
    """Write runs, ranks and epochs of a sweep as files for other programs."""
    from dmls_ray.analysis.export.files import with_uniform_columns
    from dmls_ray.analysis.export.text_tables import csv

    results = _load(given.folder)
    out = _local(given.out, "--out") or results.folder
    frames = {
        "runs": results.runs,
        "ranks": results.ranks,
        "epochs": results.epochs,
        "rank_epochs": results.rank_epochs,
    }
    with _writing(out):
        out.mkdir(parents=True, exist_ok=True)
        for name, frame in frames.items():
            path = out / f"{name}.{given.format}"
            with atomic_replace(path) as aside:
                if given.format == "csv":
                    aside.write_text(csv(frame), encoding="utf-8")
                elif given.format == "parquet":
                    with_uniform_columns(frame).to_parquet(aside, index=False)
                else:
                    # No JSON lines: runs.jsonl is the sweep's own.
                    frame.to_json(aside, orient="records", default_handler=str)
            say(console, f"{_told(results, path)}: {len(frame)} rows")
    _upload(results)
    return EXIT_OK


def _copy(given: argparse.Namespace, console: Console) -> int:
    """Add the runs of a sweep to another folder or URI; what is there stays, and no run comes twice."""
    from dmls_ray.storage.folder import read_sweep
    from dmls_ray.storage.remote_store import mirror_of, open_store

    results = _load(given.a)
    sessions = read_sweep(results.folder).get("sessions", [])
    check_location(given.b, "B")
    with open_store(given.b, lambda note: say(console, note)) as store:
        there = read_sweep(store.folder, store.where).get("sessions", [])
        for session in sessions:
            if session not in there:
                store.add_session(session)
        known = {record.run_id: record for record in store.records}
        missing = [record for record in results.records if _adds(record, known.get(record.run_id))]
        for record in missing:
            store.append(record)
    mirror = mirror_of(store)
    if mirror is not None and mirror.is_kept:
        return EXIT_FAILED
    say(
        console, f"{len(missing)} of {len(results)} runs added to {store.where}; dmls-ray report makes the other files."
    )
    return EXIT_OK


def _adds(record: RunRecord, known: RunRecord | None) -> bool:
    """Whether a run is not there, or only without an answer that this has."""
    return known is None or (record.outcome.is_final() and not known.outcome.is_final())


# --- what it says -----------------------------------------------------------------------------------------------


def _report(given: argparse.Namespace, console: Console) -> int:
    """Write the report of a sweep anew: report.html, one file that needs no network."""
    from dmls_ray.analysis.export.files import write_derived_files

    results = _load(given.folder)
    if not results.records:
        raise StoreError(f"{below(results.where, RUNS)} holds no run yet; run its sweep, and then ask for its report.")
    write_derived_files(results)
    _upload(results)
    say(console, below(results.where, "report.html"))
    return EXIT_OK


def _figures(given: argparse.Namespace, console: Console) -> int:
    """Draw the figures of a sweep as PNG and SVG."""
    results = _load(given.folder)
    own = results.folder / "figures"
    if not given.out and own.is_symlink():
        raise StoreError(f"{own} is a link, which may lead anywhere; remove it, or name a folder with --out.")
    drawn = _draw(results, _local(given.out, "--out") or own)
    _upload(results)
    for path in drawn:
        say(console, _told(results, path))
    if not drawn:
        say(console, f"No figure shows anything of these {len(results)} runs; dmls-ray table has what they told.")
    return EXIT_OK


def _tensorboard(given: argparse.Namespace, console: Console) -> int:
    """Write the files of TensorBoard anew, from the records."""
    from dmls_ray.analysis.summary.sweep_summary import summarize
    from dmls_ray.analysis.tensorboard.writer import write_tensorboard

    results = _load(given.folder)
    question = summarize(results).question
    with _writing(results.folder / "tensorboard", way_out="read a copy of the folder"):
        write_tensorboard(results, question.varied, question.changed)
    _upload(results)
    say(console, f"tensorboard --logdir {below(results.where, 'tensorboard')}")
    return EXIT_OK


def _compare(given: argparse.Namespace, console: Console) -> int:
    """Compare two sweeps: which configurations are faster in B than in A, which slower, beyond doubt."""
    from dmls_ray.analysis.compare.sweeps import compare_sweeps

    share = None if given.fail_if_slower is None else _share(given.fail_if_slower)
    found = compare_sweeps(_load(given.a), _load(given.b), measure=given.measure)
    slower, lost = ([], []) if share is None else (found.slower_by_more_than(share), found.lost)
    _print(found.frame(), [*found.notes, "", found.sentence], given.format, console)
    if slower:
        told = ", ".join(slower)
        _tell(f"{given.parser.prog}: B is slower than A by more than {given.fail_if_slower}: {told}.", EXIT_SLOWER)
    if lost:
        _tell(f"{given.parser.prog}: ok in A and never in B: {', '.join(lost)}.", EXIT_SLOWER)
    return EXIT_SLOWER if slower or lost else EXIT_OK


def _advise(given: argparse.Namespace, console: Console) -> int:
    """Say which configuration to use for an aim, what was not tried and would be worth it, and what cannot be said."""
    from dmls_ray.analysis.advise.rank import advise

    found = advise(
        _load(given.folder), given.aim, target=given.target_accuracy, price_per_hour=given.price_per_hour,
        metric=given.metric, minimizes=None if given.goal == "auto" else given.goal == "min",
    )  # fmt: skip
    _print(found.frame(), [*found.notes, "", found.sentence], given.format, console)
    return EXIT_OK


# --- their arguments --------------------------------------------------------------------------------------------


def _folder(parser: Parser, name: str = "folder") -> None:
    parser.add_argument(name, metavar="DIR", help="Results folder of a sweep, results/batch_size, say, or its URI")


def _form(parser: Parser) -> None:
    parser.add_argument("--format", choices=FORMATS, default="text", help="How to write it (default: text)")


def _of_ls(parser: Parser) -> None:
    parser.add_argument("folder", metavar="DIR", nargs="?", default="results", help="Where to look (default: results)")
    _form(parser)


def _of_show(parser: Parser) -> None:
    parser.add_argument("run", metavar="RUN", help="run_id, or its beginning")
    parser.add_argument("folder", metavar="DIR", nargs="?", default="results", help="Where to look (default: results)")


def _of_table(parser: Parser) -> None:
    from dmls_ray.analysis.table.layouts import LAYOUTS

    _folder(parser)
    parser.add_argument("--by", choices=LAYOUTS, help="One of the reports' tables, in place of the sweep's")
    parser.add_argument("--published", action="store_true", help="Lay the published rows beside ours")
    _form(parser)


def _of_published(parser: Parser) -> None:
    from dmls_ray.analysis.published.data import REPORTS
    from dmls_ray.analysis.table.layouts import LAYOUTS

    parser.add_argument("report", metavar="REPORT", nargs="?", choices=REPORTS, help=f"{', '.join(REPORTS)}; or all")
    parser.add_argument("--by", choices=LAYOUTS, help="One of their tables alone")
    parser.add_argument("--figures", metavar="DIR", help="Draw their curves into this folder")
    _form(parser)


def _of_export(parser: Parser) -> None:
    _folder(parser)
    parser.add_argument("--format", choices=("csv", "parquet", "json"), default="csv", help="(default: csv)")
    parser.add_argument("--out", metavar="DIR", help="Where to; without it, the sweep's folder")


def _of_figures(parser: Parser) -> None:
    _folder(parser)
    parser.add_argument("--out", metavar="DIR", help="Where to; without it, figures/ in the sweep's folder")


def _of_compare(parser: Parser) -> None:
    parser.add_argument("a", metavar="A", help="Results folder to compare against, or its URI")
    parser.add_argument("b", metavar="B", help="Results folder that is compared, or its URI")
    parser.add_argument("--measure", help="What to compare; without it, images_per_s, or seconds a run")
    parser.add_argument("--fail-if-slower", metavar="SHARE", help="Exit with 3 if B is slower by more than this: 5%%")
    _form(parser)


def _of_copy(parser: Parser) -> None:
    parser.add_argument("a", metavar="A", help="Results folder of a sweep, or its URI")
    parser.add_argument("b", metavar="B", help="Where its runs are to be, too: a folder or a URI")


def _of_advise(parser: Parser) -> None:
    from dmls_ray.analysis.advise.objectives import AIMS

    _folder(parser)
    parser.add_argument("--for", dest="aim", choices=AIMS, default="throughput", help="(default: throughput)")
    parser.add_argument(
        "--target-accuracy", type=float, metavar="SHARE", help="Test accuracy that is to be reached, 0 to 1"
    )
    parser.add_argument("--price-per-hour", type=float, metavar="PRICE", help="Price of a rank, for --for cost")
    parser.add_argument("--metric", help="What --for accuracy goes by; without it, validation or test accuracy")
    parser.add_argument(
        "--goal", choices=("auto", "max", "min"), default="auto", help="Whether it is to be large or small"
    )
    _form(parser)


_COMMANDS: dict[Callable[[argparse.Namespace, Console], int], Callable[[Parser], None]] = {
    _report: _folder,
    _table: _of_table,
    _figures: _of_figures,
    _compare: _of_compare,
    _advise: _of_advise,
    _ls: _of_ls,
    _show: _of_show,
    _export: _of_export,
    _tensorboard: _folder,
    _copy: _of_copy,
    _published: _of_published,
}


# --- parts of them ----------------------------------------------------------------------------------------------


def _load(folder: str | os.PathLike[str]) -> Results:
    from dmls_ray.analysis.results import load

    return load(folder)


def _local(place: str | None, flag: str) -> Path | None:
    """A folder that files are drawn or written into.

    Raises:
        ConfigError: it is a URI.
    """
    if place is not None and is_uri(place):
        check_location(place, flag)
        raise ConfigError(f"{flag} {place} is no folder here; give a path, and copy from there.")
    return Path(place) if place else None


def _told(results: Results, path: Path) -> str:
    """What a file is called; one among the results, by where they are."""
    if path.is_relative_to(results.folder):
        return below(results.where, path.relative_to(results.folder).as_posix())
    return str(path)


def _upload(results: Results) -> None:
    """What was written among results that lie at a URI goes there."""
    if results.mirror is not None:
        results.mirror.push()


def _sweeps(folder: str) -> list[str] | list[Path]:
    """The results folders at or below a folder, or URIs at or below one."""
    if is_uri(folder):
        return find_sweeps(folder)
    found = {path.parent for path in [*Path(folder).glob(RUNS), *Path(folder).glob(f"**/{RUNS}")]}
    # What a sweep that was killed has written as file://.
    return sorted(found | {path.parent.parent for path in Path(folder).glob(f"**/{PENDING_DIR}/*.json")})


def _find_run(run: str, folder: str) -> tuple[Results, RunRecord]:
    """The one run whose name begins so, in a results folder or below.

    Raises:
        InputError: there is none, or there are several.
    """
    sweeps, unread = _sweeps(folder), []
    found: list[tuple[Results, RunRecord]] = []
    for path in sweeps:
        try:
            results = _load(path)
            found += [(results, record) for record in results.records if record.run_id.startswith(run)]
        except InputError as error:
            unread.append(str(error))
    exact = [item for item in found if item[1].run_id == run]
    found = exact or found
    if not found:
        raise ConfigError(
            f"no run of {len(sweeps)} sweeps below {folder} is called {run}; dmls-ray export tells their names."
            + (f" {len(unread)} of them cannot be read: {unread[0]}" if unread else "")
        )
    if len(found) > 1:
        names = ", ".join(f"{record.run_id} in {results.where}" for results, record in found[:4])
        raise ConfigError(
            f"{len(found)} runs are called {run}: {names}{', ...' if len(found) > 4 else ''}; give one, or its DIR."
        )
    return found[0]


def _share(text: str) -> float:
    """`5%` or `0.05` as a fraction."""
    try:
        value = float(text.rstrip("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        value = -1.0
    if not 0 <= value < 1:
        raise ConfigError(f"--fail-if-slower {text} is no share; give 5% or 0.05, say.")
    return value


def _draw(results: Results, folder: Path, *, way_out: str = "name another with --out") -> list[Path]:
    """Draw the figures that have something to show; returns their files.

    Raises:
        StoreError: they cannot be written.
    """
    from dmls_ray.analysis.figures import charts
    from dmls_ray.analysis.figures.static import save
    from dmls_ray.analysis.summary.sweep_summary import summarize

    with _writing(folder, way_out=way_out):
        return [path for chart in charts(summarize(results).table) for path in save(chart, folder)]


@contextmanager
def _writing(folder: Path, *, way_out: str = "name another with --out") -> Iterator[None]:
    """What cannot be written within the block is bad input.

    Raises:
        StoreError: with the folder, why, and the way out.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        why = error.strerror or error
        raise StoreError(f"{error.filename or folder} cannot be written ({why}); {way_out}.") from error


def _print(
    frame: pd.DataFrame, notes: Sequence[str], form: str, console: Console, *, spare: Sequence[str] = ()
) -> None:
    """A table and its notes in one of the `FORMATS`; a CSV is the table alone."""
    from dmls_ray.analysis.export.text_tables import csv, latex, latex_comment, markdown, markdown_text

    if form == "csv":
        print(csv(frame), end="")
    elif form == "markdown":
        print(markdown(frame), "", *(f"- {markdown_text(note)}" if note else "" for note in notes), sep="\n")
    elif form == "latex":
        print(latex(frame), *map(latex_comment, notes), sep="\n")
    else:
        print_table(frame, console, spare=spare, elsewhere="--format csv")
        for note in notes:
            say(console, note)


def _texts(frame: pd.DataFrame) -> pd.DataFrame:
    """The columns of a frame that say anything, as texts."""
    from dmls_ray.analysis.stats.formatting import GENERIC

    def text(value: Any) -> str:
        if isinstance(value, float):
            return "" if value != value else GENERIC(value)
        return "" if value is None or value in ([], {}, "") else str(value)

    texts = frame.map(text)
    long = [head for head in texts.columns if texts[head].str.len().max() > 60]
    return texts[[head for head in texts.columns if head not in long and (texts[head] != "").any()]]
