#!/usr/bin/env bash
# Source: PyTorch 2.14.1, torch.utils.flop_counter.FlopCounterMode.
# Guess before it ran: an LSTM counts 4/3 of the GRU of the same sizes, as it has four gates instead of three; attention
# counts its two products; an encoder layer counts the same forward pass in training and in evaluation.
# Seen on the CPU: the GRU is counted and the LSTM is 0, without a warning; `scaled_dot_product_attention` is 0; the
# encoder layer is 0 in evaluation without gradients. Each is one fused operator of which the counter knows nothing. So
# the utilization of a model with one of them is too low, and by how much is not said.
. "$(dirname "$0")/lib.sh"
python=$(python_with torch==2.14.1)
cat >"$work/run.py" <<'PYTHON'
import torch
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.flop_counter import FlopCounterMode

def flops(call):
    with FlopCounterMode(display=False) as counter:
        call()
    return counter.get_total_flops()

steps, batch, inputs, hidden = 5, 8, 32, 16
series = torch.randn(steps, batch, inputs)
gates_of_gru = 3 * 2 * steps * batch * hidden * (inputs + hidden)
gru = flops(lambda: torch.nn.GRU(inputs, hidden)(series))
print("GRU", gru, "by hand", gates_of_gru)
print("LSTM", flops(lambda: torch.nn.LSTM(inputs, hidden)(series)), "by hand", gates_of_gru * 4 // 3)
heads = [torch.randn(2, 4, 64, 16) for _ in range(3)]
print("attention", flops(lambda: scaled_dot_product_attention(*heads)), "by hand", 2 * 2 * 2 * 4 * 64 * 64 * 16)
layer = torch.nn.TransformerEncoderLayer(16, 4, batch_first=True)
tokens = torch.randn(2, 8, 16)
print("encoder layer in training", flops(lambda: layer(tokens)) > 0)
layer.eval()
with torch.no_grad():
    print("encoder layer in evaluation", flops(lambda: layer(tokens)) > 0)
PYTHON
"$python" -W ignore "$work/run.py" | tee "$work/seen"
cat >"$work/expected" <<'TEXT'
GRU 184320 by hand 184320
LSTM 0 by hand 245760
attention 0 by hand 2097152
encoder layer in training True
encoder layer in evaluation False
TEXT
diff "$work/expected" "$work/seen"
