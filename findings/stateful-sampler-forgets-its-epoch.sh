#!/usr/bin/env bash
# Source: torchdata 0.11.0 with PyTorch 2.14.1, StatefulDataLoader over a StatefulDistributedSampler.
# Guess before it ran: the state of a loader that is saved within the second pass has the epoch of its sampler, so that a
# new loader with that state gives exactly the rest of the second pass.
# Seen: the state has how many samples were given, and no epoch. Unless the program calls set_epoch after it has loaded
# the state, the new loader gives as many samples of the order of the first pass: here three of the six that were still
# to come are never read, three others are read twice, and nothing is said. With set_epoch the rest is as it should be.
. "$(dirname "$0")/lib.sh"
python=$(python_with torch==2.14.1 torchdata==0.11.0)
cat >"$work/run.py" <<'PYTHON'
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

SAMPLES = list(range(12))


def loader() -> StatefulDataLoader:
    sampler = StatefulDistributedSampler(SAMPLES, num_replicas=1, rank=0, shuffle=True, seed=0)
    return StatefulDataLoader(SAMPLES, batch_size=2, sampler=sampler)


first = loader()
for epoch in range(2):
    first.sampler.set_epoch(epoch)
    given = []
    for batch in first:
        given += batch.tolist()
        if len(given) == 6:
            state, read = first.state_dict(), set(given)

for epoch in (None, 1):
    resumed = loader()
    resumed.load_state_dict(state)
    if epoch is not None:
        resumed.sampler.set_epoch(epoch)
    rest = [sample for batch in resumed for sample in batch.tolist()]
    how = "without set_epoch" if epoch is None else "with set_epoch"
    print(f"{how}: {len(read & set(rest))} of 6 were read before, {len(set(SAMPLES) - read - set(rest))} are never read")
PYTHON
"$python" -W ignore "$work/run.py" | tee "$work/seen"
cat >"$work/expected" <<'TEXT'
without set_epoch: 3 of 6 were read before, 3 are never read
with set_epoch: 0 of 6 were read before, 0 are never read
TEXT
diff "$work/expected" "$work/seen"
