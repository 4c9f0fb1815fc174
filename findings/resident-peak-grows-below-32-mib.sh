#!/usr/bin/env bash
# Source: PyTorch 2.14.1 on Linux with glibc: identical training steps on a CPU.
# Guess before it ran: the peak of the resident set is the same from the second step on.
# Seen: with tensors just below 32 MiB it grows by a fifth and more within 60 steps, since glibc keeps such blocks on its
# heap, which gets gaps; with slightly larger ones it does not grow, and is the smaller one of the two.
. "$(dirname "$0")/lib.sh"
[ "$(uname -s)" = Linux ] && getconf GNU_LIBC_VERSION >/dev/null || { echo "needs Linux with glibc" >&2; exit 1; }
python=$(python_with torch==2.14.1)
cat >"$work/run.py" <<'PYTHON'
import sys
import torch

def status(name):
    return next(int(line.split()[1]) / 1024 for line in open("/proc/self/status") if line.startswith(name))

torch.set_num_threads(1)
weight = torch.nn.Parameter(torch.ones(1))
optimizer = torch.optim.SGD([weight], lr=1e-6)
batch = torch.ones(int(float(sys.argv[1]) * 2**18))
start = status("VmRSS")
for step in range(1, 61):
    optimizer.zero_grad()
    output = batch * weight
    for _ in range(9):
        output = torch.tanh(output)
    output.mean().backward()
    optimizer.step()
    if step == 2:
        early = status("VmHWM") - start
print(round((status("VmHWM") - start) / early, 2), round(status("VmHWM") - start))
PYTHON
read -r growth below < <("$python" "$work/run.py" 28)
read -r steady above < <("$python" "$work/run.py" 36)
echo "28 MiB: the peak after 60 steps is $growth times that after 2, $below MiB; 36 MiB: $steady times, $above MiB"
"$python" -c "import sys; sys.exit(not ($growth > 1.2 and $steady < 1.1 and $below > $above))"
