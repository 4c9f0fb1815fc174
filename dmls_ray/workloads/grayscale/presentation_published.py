"""The published times of turning images grey, next to those of a sweep."""

from __future__ import annotations

import pandas as pd

from dmls_ray.analysis.published.data import FOLDER, PUBLISHED, read_rows
from dmls_ray.analysis.published.matching import Match
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.table.build import make_table
from dmls_ray.analysis.table.layouts import RenderedTable, as_rendered, with_published_rows
from dmls_ray.records.model import RunRecord
from dmls_ray.records.outcome import Outcome
from dmls_ray.workloads.grayscale.config import RECORDED_NAME, is_complete

LAYOUT = "implementation"
"""Name of the table after `--by`."""

IMAGE_SET = ("images", "image_size")


def published_images() -> Results:
    """The times of report B as runs of this project; `pass_ms` is of all images."""
    records = []
    for order, row in enumerate(read_rows("published_images")):
        config = {"train": RECORDED_NAME, **{name: row[name] for name in ("implementation", "device", *IMAGE_SET)}}
        records.append(
            RunRecord(
                run_id=row["implementation"], trial_id=row["implementation"], repeat=0, order=order, order_seed=0,
                seed=0, outcome=Outcome.OK, config={**config, "world_size": 1}, isolation=PUBLISHED,
                reason=row["note"] or "",
                machine={"host": "", "cpu": row["hardware"], "hardware": row["hardware"], "gpus": []},
                metrics={"images_per_s": row["images"] / row["seconds"], "pass_ms": row["seconds"] * 1e3},
            )
        )  # fmt: skip
    return Results(FOLDER, records)


def match_images(record: RunRecord) -> Match | None:
    """The published run of the same images and implementation; the report may launch its kernel once per image too."""
    if not is_complete(record.config):
        return None
    name = record.config["implementation"].removesuffix("_per_image")
    for published in published_images().records:
        same_set = all(record.config[field] == published.config[field] for field in IMAGE_SET)
        if published.config["implementation"] == name and same_set:
            planar = "layout planar / not reported" if record.config.get("layout") == "planar" else ""
            return Match(published, "; ".join(filter(None, (planar, published.reason))))
    return None


def by_implementation(results: Results, *, with_published: bool = False) -> RenderedTable:
    """Time of turning images grey by implementation, as report B has it.

    Args:
        results: the runs.
        with_published: whether the published rows stand next to ours.
    """
    table = make_table(results)
    if results.records and LAYOUT not in table.presentation.layouts:
        return RenderedTable(pd.DataFrame(), ["No images were turned grey: python sweeps/grayscale.py does."])
    return with_published_rows(table) if with_published else as_rendered(table)
