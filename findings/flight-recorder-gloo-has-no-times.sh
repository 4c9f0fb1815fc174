#!/usr/bin/env bash
# Source: PyTorch 2.14.1, torch/csrc/distributed/c10d: the flight recorder on a process group of gloo.
# Guess before it ran: with TORCH_FR_BUFFER_SIZE set, each collective has an entry with its state and a duration.
# Seen: there is an entry without that setting, too; its state stays "scheduled" after the collective has ended, no entry
# has a duration or a time of completion, and a reduce-scatter of two parts is two entries of gloo:all_reduce.
. "$(dirname "$0")/lib.sh"
python=$(python_with torch==2.14.1)
cat >"$work/run.py" <<'PYTHON'
import json, os
import torch, torch.distributed as dist
import torch.multiprocessing as mp
from torch._C._distributed_c10d import _dump_fr_trace_json

def main(rank):
    dist.init_process_group("gloo", init_method=f"file://{os.environ['STORE']}", rank=rank, world_size=2)
    dist.all_reduce(torch.ones(4))
    dist.reduce_scatter(torch.empty(4), [torch.ones(4), torch.ones(4)])
    dist.all_gather([torch.empty(4), torch.empty(4)], torch.ones(4))
    dist.barrier()
    entries = json.loads(_dump_fr_trace_json(True, False))["entries"]
    if rank == 0:
        for entry in entries:
            print(entry["profiling_name"], entry["state"], "duration_ms" in entry, entry["time_discovered_completed_ns"])
    dist.destroy_process_group()

if __name__ == "__main__":
    mp.spawn(main, nprocs=2)
PYTHON
unset TORCH_FR_BUFFER_SIZE
STORE="$work/store" GLOO_SOCKET_IFNAME=lo "$python" -W ignore "$work/run.py" | tee "$work/seen"
cat >"$work/expected" <<'TEXT'
gloo:all_reduce scheduled False 0
gloo:all_reduce scheduled False 0
gloo:all_reduce scheduled False 0
gloo:all_gather scheduled False 0
TEXT
head -n 4 "$work/seen" | diff "$work/expected" -
