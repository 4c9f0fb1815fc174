"""What can be asked of turning images grey, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from dmls_ray.execution.planning import make_plan
from dmls_ray.util.errors import ConflictError
from dmls_ray.workloads.grayscale.config import IMPLEMENTATIONS, ON_A_GPU, GrayscaleConfig
from dmls_ray.workloads.grayscale.workload import GrayscaleWorkload


def test_each_implementation_goes_where_it_runs() -> None:
    plan = make_plan({"implementation": IMPLEMENTATIONS}, repeats=1, schema=GrayscaleWorkload().schema())
    devices = {run.values["implementation"]: run.values["device"] for run in plan.runs}
    assert devices == {name: "cuda" if name in ON_A_GPU else "cpu" for name in IMPLEMENTATIONS}
    assert {run.config.device for run in plan.runs if run.config} == {"cpu", "cuda"}
    # Told or not, it is the same trial.
    (explicit,) = make_plan(
        {"implementation": "numpy", "device": "cpu"}, repeats=1, schema=GrayscaleWorkload().schema()
    ).runs
    assert explicit.trial_id in {run.trial_id for run in plan.runs}


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ({"implementation": "numpy", "device": "cuda"}, "implementation=numpy runs on cpu, and device=cuda"),
        ({"implementation": "triton", "device": "cpu"}, "implementation=triton runs on cuda, and device=cpu"),
        ({"implementation": "pillow", "layout": "planar"}, "implementation=pillow takes interleaved images"),
        ({"world_size": 2}, "world_size=2: one rank turns all images grey"),
        ({"pictures": "nowhere"}, "pictures=nowhere is no folder with images"),
    ],
)
def test_what_does_not_go_together_is_refused_in_a_line(values: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        GrayscaleConfig(**values)
    with pytest.raises(ConflictError, match=reason):
        make_plan(values, schema=GrayscaleWorkload().schema())


def test_a_folder_needs_an_image_to_be_one_of_images(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("none yet")
    with pytest.raises(ValueError, match="is no folder with images"):
        GrayscaleConfig(pictures=str(tmp_path))
    Image.new("RGB", (4, 4)).save(tmp_path / "a.PNG")
    assert GrayscaleConfig(pictures=str(tmp_path)).device == "cpu"
