"""What is printed of saved weights: where they are, and the lines of Python that open those of a run."""

from __future__ import annotations

import json
from pathlib import Path

from dmls_ray.analysis.results import Results


def describe_saved_weights(results: Results) -> list[str]:
    """Lines on the weights of a sweep's runs; empty where no run has saved any."""
    folders = [results.folder / record.folder for record in results.records]
    saved = [folder for folder in folders if (folder / "weights.json").exists()]
    if not saved:
        return []
    path = saved[0] / "weights.pt"
    where = Path(results.where) / "runs"
    description = json.loads((saved[0] / "weights.json").read_text(encoding="utf-8"))
    code = [line.replace('"weights.pt"', repr(str(path))) for line in description["python"]]
    return [
        f"Weights: weights.pt in the folders below {where}. weights.json next to each has the model, the scaling of "
        "its input, the order of the classes, and the Python that opens it.",
        f"For {path}:",
        *code,
    ]
