from __future__ import annotations

from dmls_ray.config.identity import Identity, join_identities


def test_code_and_data_are_a_part_of_the_trials_id_and_without_both_it_is_the_hash_of_the_configuration() -> None:
    assert Identity(modules=("m",)).trial_id("0123456789ab") == "0123456789ab"
    identities = [
        Identity(code={"m.py": "1"}), Identity(code={"m.py": "2"}), Identity(data={"m.py": "1"}),
        Identity(code={"m.py": "1"}, data={"d": "1"}), Identity(code={"m.py": "1", "n.py": "1"}),
    ]  # fmt: skip
    ids = [identity.trial_id(config) for identity in identities for config in ("0123456789ab", "ba9876543210")]
    assert len(set(ids)) == 10
    assert {len(item) for item in ids} == {12}
    assert Identity(code={"n.py": "1", "m.py": "1"}).trial_id("0123456789ab") == ids[8], "in any order"


def test_several_runs_have_the_code_and_the_data_of_each() -> None:
    a = Identity(modules=("m",), code={"m.py": "1"}, data={"d": "1"})
    b = Identity(modules=("k", "m"), code={"k.py": "2", "m.py": "1"})
    assert join_identities([a, b]) == Identity(modules=("k", "m"), code={"m.py": "1", "k.py": "2"}, data={"d": "1"})
