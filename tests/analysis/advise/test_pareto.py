from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dmls_ray.analysis.advise.pareto import front


def test_what_another_point_beats_in_one_thing_and_loses_to_it_in_none_is_not_on_the_front() -> None:
    #        fast, small   beaten by 0   slow, smaller   beaten by 2
    points = [(1.0, 5.0), (1.0, 6.0), (3.0, 2.0), (4.0, 3.0)]
    assert front(dict(enumerate(points))) == [0, 2]


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3), max_size=12))
def test_the_front_is_what_comparing_every_pair_leaves(points: list[tuple[int, int, int]]) -> None:
    def beaten(point: tuple[int, int, int]) -> bool:
        as_good = [other for other in points if all(a <= b for a, b in zip(other, point, strict=True))]
        return any(any(a < b for a, b in zip(other, point, strict=True)) for other in as_good)

    assert front(dict(enumerate(points))) == [place for place, point in enumerate(points) if not beaten(point)]
