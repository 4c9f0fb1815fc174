#!/usr/bin/env bash
# Source: PyTorch 2.14.1, torch.get_float32_matmul_precision and torch.backends.mkldnn.matmul.fp32_precision.
# Guess before it ran: a getter says something in any state: "highest", which was never changed, or "medium".
# Seen: once a program has set the newer switch of one backend, and no older switch at all, the getter raises a
# RuntimeError that speaks of a mix of older and newer switches. The older setter does not refuse, and heals it. Code
# that only looks at the precision, as a logger or a profiler does, ends the program there.
. "$(dirname "$0")/lib.sh"
python=$(python_with torch==2.14.1)
cat >"$work/run.py" <<'PYTHON'
import torch

def precision():
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError as error:
        return f"RuntimeError, {'mix of the legacy and new APIs' in str(error)}"

print("at first:", precision())
torch.backends.mkldnn.matmul.fp32_precision = "ieee"
print("ieee by the newer switch:", precision())
torch.backends.mkldnn.matmul.fp32_precision = "bf16"
print("bf16 by the newer switch:", precision())
torch.set_float32_matmul_precision("high")
print("high by the older one:", precision())
PYTHON
"$python" -W ignore "$work/run.py" | tee "$work/seen"
cat >"$work/expected" <<'TEXT'
at first: highest
ieee by the newer switch: highest
bf16 by the newer switch: RuntimeError, True
high by the older one: high
TEXT
diff "$work/expected" "$work/seen"
