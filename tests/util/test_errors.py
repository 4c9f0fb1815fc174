from __future__ import annotations

import pickle

from dmls_ray.util import errors


def test_every_error_survives_pickling_on_its_way_from_a_rank() -> None:
    kinds = [item for item in vars(errors).values() if isinstance(item, type) and issubclass(item, Exception)]
    assert errors.InputError in kinds
    for kind in kinds:
        again = pickle.loads(pickle.dumps(kind("what is wrong; the way out.")))
        assert (type(again), str(again)) == (kind, "what is wrong; the way out.")
