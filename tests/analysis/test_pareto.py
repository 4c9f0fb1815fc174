from __future__ import annotations

from dmls_ray.analysis.pareto import front


def test_the_front_is_what_no_other_point_beats() -> None:
    assert front([(1, 4), (2, 2), (3, 3), (4, 1), (2, 5)]) == [0, 1, 3]


def test_equal_points_do_not_beat_each_other_and_one_coordinate_alone_can() -> None:
    assert front([(1, 1), (1, 1), (1, 2)]) == [0, 1]
    assert front([]) == []
