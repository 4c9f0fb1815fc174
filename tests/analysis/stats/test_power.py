from __future__ import annotations

from functools import partial

import numpy as np

from dmls_ray.analysis.stats.critical_value import critical_value
from dmls_ray.analysis.stats.intervals import estimate
from dmls_ray.analysis.stats.power import repeats_to_tell


def test_the_number_of_repeats_to_distinguish_follows_from_the_spread() -> None:
    # Twice the spread away, at 95%: intervals of 4 repeats leave 0 out 3 times in 4, those of 5 more than 4 in 5.
    differences = [1.0, 2.0, 3.0]
    random = np.random.default_rng(1)
    often = {count: sum((estimate(draw).low or 0) > 0 for draw in random.normal(2, 1, (2000, count))) / 2000
             for count in (4, 5)}  # fmt: skip
    assert often[4] < 0.8 < often[5]
    of_pair = partial(critical_value, 2)
    assert repeats_to_tell(differences, of_pair, 30) == 5
    assert repeats_to_tell(differences, of_pair, 4) is None
    assert repeats_to_tell(differences, partial(critical_value, 2, families=4), 30) == 7
    assert repeats_to_tell([0.0, 0.0, 0.0], of_pair, 30) is None
    assert repeats_to_tell([1.0, 1.0, 1.0], of_pair, 30) == 3
    assert repeats_to_tell([1.0, 1.0, 1.0], of_pair, 30, resolution=1.0) is None
