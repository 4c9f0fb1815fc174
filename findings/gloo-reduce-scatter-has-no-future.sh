#!/usr/bin/env bash
# Source: PyTorch 2.14.1, torch/csrc/distributed/c10d/ProcessGroupGloo.cpp: the work of an asynchronous collective.
# Guess before it ran: `get_future()` works for every collective of gloo, or for none.
# Seen: it works for all-reduce and all-gather, and raises "Work::getFuture not implemented." for reduce-scatter. Code
# that times collectives by their futures, or chains on them, fails under FSDP on a CPU alone.
. "$(dirname "$0")/lib.sh"
python=$(python_with torch==2.14.1)
cat >"$work/run.py" <<'PYTHON'
import os
import torch, torch.distributed as dist
import torch.multiprocessing as mp

def main(rank):
    dist.init_process_group("gloo", init_method=f"file://{os.environ['STORE']}", rank=rank, world_size=2)
    calls = {
        "all_reduce": lambda: dist.all_reduce(torch.ones(4), async_op=True),
        "all_gather": lambda: dist.all_gather([torch.empty(4), torch.empty(4)], torch.ones(4), async_op=True),
        "broadcast": lambda: dist.broadcast(torch.ones(4), 0, async_op=True),
        "reduce_scatter": lambda: dist.reduce_scatter(torch.empty(4), [torch.ones(4)] * 2, async_op=True),
    }
    for name, call in calls.items():
        work = call()
        try:
            work.get_future()
            said = "has a future"
        except RuntimeError as error:
            said = str(error).splitlines()[0]
        work.wait()
        if rank == 0:
            print(name, said)
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(main, nprocs=2)
PYTHON
STORE="$work/store" GLOO_SOCKET_IFNAME=lo "$python" -W ignore "$work/run.py" | tee "$work/seen"
cat >"$work/expected" <<'TEXT'
all_reduce has a future
all_gather has a future
broadcast has a future
reduce_scatter Work::getFuture not implemented.
TEXT
diff "$work/expected" "$work/seen"
