from __future__ import annotations

from dmls_ray.cluster.tune.job_set import RunQueue


def test_runs_are_taken_in_their_order_and_then_those_that_follow() -> None:
    more = [["c"], ["d", "e"], []]
    queue = RunQueue(["a", "b"], lambda: more.pop(0))
    assert [queue.take() for _ in range(6)] == ["a", "b", "c", "d", "e", None]
    assert more == []


def test_it_is_asked_for_more_only_when_all_before_were_taken() -> None:
    asked: list[int] = []

    def more() -> list[str]:
        asked.append(1)
        return []

    queue = RunQueue(["a", "b"], more)
    assert queue.take() == "a"
    assert queue.take() == "b"
    assert not asked
    assert queue.take() is None
    assert asked
