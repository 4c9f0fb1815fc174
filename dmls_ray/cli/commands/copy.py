"""Add the runs of a sweep to another folder or URI; what is there stays, and no run comes twice."""

from __future__ import annotations

import argparse

from dmls_ray.analysis.results import load
from dmls_ray.cli.console import Console, say
from dmls_ray.cli.parser import EXIT_FAILED, EXIT_OK, Parser
from dmls_ray.records.model import RunRecord
from dmls_ray.storage.location import mirror_of, open_store
from dmls_ray.storage.sweep_file import read_sweep
from dmls_ray.util.uri import check_location


def add_arguments(parser: Parser) -> None:
    parser.add_argument("a", metavar="A", help="Results folder of a sweep, or its URI")
    parser.add_argument("b", metavar="B", help="Where its runs are to be, too: a folder or a URI")


def run(given: argparse.Namespace, console: Console) -> int:
    results = load(given.a)
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
