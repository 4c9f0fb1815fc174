#!/usr/bin/env bash
# Source: PyTorch 2.14.1, torch.utils.flop_counter.FlopCounterMode.
# Guess before it ran: the backward pass of a convolution counts twice its forward pass, for the gradients of its input
# and of its weight, whatever the number of groups.
# Seen: so it is with one group. With G groups it counts 1 + G times the forward pass, as the gradient of the weight is
# counted as if each group read all channels: 33 times for a depthwise convolution of 32 channels, also a transposed one.
# So a step of a network of depthwise convolutions (MobileNet, EfficientNet, ConvNeXt) has many times its operations.
. "$(dirname "$0")/lib.sh"
python=$(python_with torch==2.14.1)
cat >"$work/run.py" <<'PYTHON'
import torch
from torch.utils.flop_counter import FlopCounterMode

channels, side, kernel = 32, 16, 3
images = torch.randn(2, channels, side, side, requires_grad=True)
for layer in (torch.nn.Conv2d, torch.nn.ConvTranspose2d):
    for groups in (1, 4, channels):
        by_hand = 2 * images.numel() * (channels // groups) * kernel**2
        convolution = layer(channels, channels, kernel, padding=1, groups=groups)
        with FlopCounterMode(display=False) as forward:
            result = convolution(images)
        with FlopCounterMode(display=False) as backward:
            result.sum().backward()
        counts = [counter.get_total_flops() / by_hand for counter in (forward, backward)]
        print(layer.__name__, f"groups {groups}: forward {counts[0]:g}, backward {counts[1]:g} times the count by hand")
PYTHON
"$python" -W ignore "$work/run.py" | tee "$work/seen"
cat >"$work/expected" <<'TEXT'
Conv2d groups 1: forward 1, backward 2 times the count by hand
Conv2d groups 4: forward 1, backward 5 times the count by hand
Conv2d groups 32: forward 1, backward 33 times the count by hand
ConvTranspose2d groups 1: forward 1, backward 2 times the count by hand
ConvTranspose2d groups 4: forward 1, backward 5 times the count by hand
ConvTranspose2d groups 32: forward 1, backward 33 times the count by hand
TEXT
diff "$work/expected" "$work/seen"
