"""The command that measures the reference sweeps again."""

from __future__ import annotations

from benchmarks.reference import REFERENCE, commands
from tests.conftest import PROJECT


def test_every_sweep_that_needs_neither_downloads_nor_root_can_be_measured_again() -> None:
    known = commands()
    assert {"batch_size", "quantization", "grayscale"} <= known.keys()
    assert not {"machines", "cifar10_convnet"} & known.keys()
    for name, (script, *_) in known.items():
        assert (REFERENCE / name / "runs.jsonl").is_file()
        assert (PROJECT / script).is_file()
