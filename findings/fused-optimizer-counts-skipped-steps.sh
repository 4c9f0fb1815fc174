#!/usr/bin/env bash
# Source: PyTorch 2.14.1, torch.amp.GradScaler with fused optimizers.
# Guess before it ran: a step that the scaler skips, since a gradient is not finite, calls no optimizer step.
# Seen: with fused=True the optimizer's step, and the hooks on it, are called all the same, and the kernel skips inside;
# with fused=False they are not called. Whoever counts steps by hooks, or steps a schedule in one, counts otherwise for
# the same training.
. "$(dirname "$0")/lib.sh"
python=$(python_with torch==2.14.1)
cat >"$work/run.py" <<'PYTHON'
import torch

for fused in (False, True):
    weight = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([weight], lr=0.1, fused=fused)
    calls = []
    optimizer.register_step_post_hook(lambda *arguments: calls.append(1))
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for number in range(4):
        optimizer.zero_grad()
        factor = float("inf") if number == 1 else 1.0
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
    print("fused" if fused else "not fused", len(calls), round(weight[0].item(), 4))
PYTHON
"$python" -W ignore "$work/run.py" | tee "$work/seen"
cat >"$work/expected" <<'TEXT'
not fused 3 0.7
fused 4 0.7
TEXT
diff "$work/expected" "$work/seen"
