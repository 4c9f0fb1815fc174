"""Write the files of TensorBoard afresh, from the records."""

from __future__ import annotations

import argparse

from dmls_ray.analysis.results import load
from dmls_ray.analysis.summary.sweep_summary import summarize
from dmls_ray.analysis.tensorboard.writer import write_tensorboard
from dmls_ray.cli.console import Console, say
from dmls_ray.cli.parser import EXIT_OK, Parser
from dmls_ray.cli.results_io import (
    add_folder,
    upload,
    writing,
)
from dmls_ray.util.uri import below


def add_arguments(parser: Parser) -> None:
    add_folder(parser)


def run(given: argparse.Namespace, console: Console) -> int:
    results = load(given.folder)
    question = summarize(results).question
    with writing(results.folder / "tensorboard", way_out="read a copy of the folder"):
        write_tensorboard(results, question.varied, question.changed)
    upload(results)
    say(console, f"tensorboard --logdir {below(results.where, 'tensorboard')}")
    return EXIT_OK
