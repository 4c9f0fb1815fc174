from __future__ import annotations

import gc

import pytest


@pytest.fixture(autouse=True)
def without_earlier_models() -> None:
    """Hide what earlier tests of this process have left from the look for models, as the process of a run does."""
    gc.freeze()
