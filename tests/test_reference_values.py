from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.reference_values import FOLDERS, NAME, values_of


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_the_runs_of_a_reference_sweep_say_what_they_said(folder: Path) -> None:
    now = json.loads(json.dumps(values_of(folder), default=str))
    assert differences(now, json.loads((folder / NAME).read_text())) == []


def differences(now: Any, before: Any, place: str = "") -> list[str]:
    """Where two values differ, by more than rounding."""
    if isinstance(now, dict) and isinstance(before, dict) and now.keys() == before.keys():
        return [text for name in now for text in differences(now[name], before[name], f"{place}/{name}")]
    if isinstance(now, list) and isinstance(before, list) and len(now) == len(before):
        pairs = enumerate(zip(now, before, strict=True))
        return [text for index, pair in pairs for text in differences(*pair, f"{place}/{index}")]
    if isinstance(now, float) and isinstance(before, float):
        is_equal = now == pytest.approx(before, rel=1e-6, abs=1e-9)
    else:
        is_equal = now == before
    return [] if is_equal else [f"{place}: {before} is now {now}"]
