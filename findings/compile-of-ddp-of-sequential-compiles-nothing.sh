#!/usr/bin/env bash
# Source: PyTorch 2.14.1, torch._dynamo: torch.compile(DistributedDataParallel(model)).
# Guess before it ran: one graph or more, whatever the model is; DDP breaks graphs, and says so.
# Seen: for a model that is a bare nn.Sequential no graph at all, and no word of it: DDP's forward breaks the graph, and
# the frames that follow are PyTorch's own, which Dynamo leaves out. The same layers in a class with a forward of its own
# make one graph, as do `model.compile()` before DDP wraps it and the Sequential without DDP.
. "$(dirname "$0")/lib.sh"
python=$(python_with torch==2.14.1)
cat >"$work/run.py" <<'PYTHON'
import torch, torch.distributed as dist
from torch import nn
from torch._dynamo.utils import counters
from torch.nn.parallel import DistributedDataParallel

class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, batch):
        return self.layers(batch)

def layers():
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU())

def inside():
    model = layers()
    model.compile(backend="eager")
    return DistributedDataParallel(model)

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
models = {
    "sequential": lambda: torch.compile(layers(), backend="eager"),
    "DDP of sequential": lambda: torch.compile(DistributedDataParallel(layers()), backend="eager"),
    "DDP of a class": lambda: torch.compile(DistributedDataParallel(Own()), backend="eager"),
    "DDP of a compiled sequential": inside,
}
for name, make in models.items():
    torch._dynamo.reset()
    counters.clear()
    make()(torch.ones(2, 4)).sum().backward()
    print(name, counters["stats"]["unique_graphs"])
dist.destroy_process_group()
PYTHON
GLOO_SOCKET_IFNAME=lo "$python" -W ignore "$work/run.py" | tee "$work/seen"
cat >"$work/expected" <<'TEXT'
sequential 1
DDP of sequential 0
DDP of a class 1
DDP of a compiled sequential 1
TEXT
diff "$work/expected" "$work/seen"
