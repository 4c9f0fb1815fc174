"""What is said of a sweep that was stopped. tests/test_restarts.py has real supervisors."""

from __future__ import annotations

from dmls_ray.execution.supervisor import stopped_text


def test_a_sweep_that_was_stopped_is_named_by_its_folder_and_fresh_only_where_it_was_asked_for() -> None:
    text = stopped_text("results/my sweep")
    assert "dmls-ray table 'results/my sweep'" in text
    assert "the same command runs the others" in text
    assert "--fresh" not in text
    assert "the same command with --out results/a-2 in place of --fresh runs" in stopped_text(
        "results/a-2", is_fresh=True
    )
    assert stopped_text() == "Stopped before a run began."
