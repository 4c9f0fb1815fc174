from __future__ import annotations

import json
from pathlib import Path

from dmls_ray import load
from dmls_ray.cli.saved_weights import describe_saved_weights
from dmls_ray.storage.folder import Store
from tests.analysis.samples import results


def test_the_lines_that_open_weights_name_the_file_of_a_run_and_can_be_pasted(tmp_path: Path) -> None:
    with Store(tmp_path / "out") as store:
        for record in results({"batch_per_rank": [16]}, lambda values, repeat: 100.0, repeats=2).records:
            store.append(record)
    sweep = load(tmp_path / "out")
    assert describe_saved_weights(sweep) == []
    folder = tmp_path / "out" / sweep.records[-1].folder
    folder.mkdir(parents=True)
    (folder / "weights.pt").write_text("the weights")
    content = {
        "python": [
            "import pathlib",
            'opened = pathlib.Path("weights.pt").read_text()',
            "def predict():",
            "    return opened",
        ]
    }
    (folder / "weights.json").write_text(json.dumps(content))
    first, named, *code = describe_saved_weights(sweep)
    assert str(tmp_path / "out" / "runs") in first
    assert named == f"For {folder / 'weights.pt'}:"
    found: dict[str, str] = {}
    exec("\n".join(code), found)
    assert found["opened"] == "the weights"
