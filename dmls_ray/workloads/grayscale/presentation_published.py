"""The published times of turning images grey, next to those of a sweep."""

from __future__ import annotations

from collections.abc import Sequence

from dmls_ray.analysis.published.reports import FOLDER, Match
from dmls_ray.analysis.results import Results
from dmls_ray.analysis.table.layouts import Layout
from dmls_ray.records.model import RunRecord
from dmls_ray.storage.runs_file import read_records
from dmls_ray.workloads.grayscale.config import RECORDED_NAME

IMAGE_SET = ("images", "image_size")


def published_images() -> Results:
    """The times of report B as runs of this project; `pass_ms` is of all images."""
    return Results(FOLDER, _of_images(list(read_records(FOLDER))))


def match_images(record: RunRecord) -> Match | None:
    """The published run of the same images and implementation; the report may launch its kernel once per image too."""
    name = record.config["implementation"].removesuffix("_per_image")
    for published in published_images().records:
        same_set = all(record.config[field] == published.config[field] for field in IMAGE_SET)
        if published.config["implementation"] == name and same_set:
            planar = "layout planar / not reported" if record.config.get("layout") == "planar" else ""
            return Match(published, "; ".join(filter(None, (planar, published.reason))))
    return None


def _of_images(records: Sequence[RunRecord]) -> list[RunRecord]:
    return [record for record in records if record.config.get("train") == RECORDED_NAME]


BY_IMPLEMENTATION = Layout(
    select=_of_images,
    nothing="No images were turned grey: python sweeps/grayscale.py does.",
    published=published_images,
)
"""Time of turning images grey by implementation, as report B has it."""
