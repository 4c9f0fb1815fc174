"""A sweep under faults: no row is lost, doubled or wrong, and nothing hangs.

    scenario.py     a seed -> a place and a list of timed faults
    faults.py       each kind of fault: `strike`, `restore`, and an entry in `KINDS`
    command.py      the sweep, and its command while it runs
    places.py       where a scenario is played: virtual machines with a disk, a store, a cgroup, a second machine
    store_proxy.py  a server in front of the object store that answers 500, does not answer, or cuts uploads
    runner.py       plays a scenario: starts the sweep, strikes and restores, gives the same command again
    check.py        counts what is lost, twice or wrong, against the undisturbed sweep
    table.py        the tables

`python -m benchmarks.chaos --help` lists the options. It needs root and iproute2.
"""
