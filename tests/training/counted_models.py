"""A small transformer and a small residual network, with counts of their operations by hand."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, relu, scaled_dot_product_attention


class Layer(nn.Module):
    """A layer of a transformer, as nanoGPT has it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.other_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.projection, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        shape = batch, length, self.heads, width // self.heads
        parts = self.projection(self.norm(x)).split(width, dim=2)
        query, key, value = (part.view(shape).transpose(1, 2) for part in parts)
        attended = scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.output(attended.transpose(1, 2).reshape(x.shape))
        return x + self.down(gelu(self.up(self.other_norm(x))))


class GPT(nn.Module):
    """A small model of tokens."""

    layers, heads, width, length, tokens = 2, 4, 64, 32, 96

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(self.tokens, self.width)
        self.positions = nn.Embedding(self.length, self.width)
        self.blocks = nn.Sequential(*[Layer(self.width, self.heads) for _ in range(self.layers)])
        self.head = nn.Linear(self.width, self.tokens, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) + self.positions(torch.arange(tokens.shape[1]))
        logits: Tensor = self.head(self.blocks(x))
        return logits


def gpt_operations(batch: int) -> int:
    """Those of a step: 6 for each weight of a product, and 12 x layers x width x length for attention, a token.

    So does nanoGPT count, from arXiv 2204.02311, appendix B.
    """
    weights = GPT.layers * 12 * GPT.width**2 + GPT.width * GPT.tokens
    attention = 12 * GPT.layers * GPT.width * GPT.length
    return batch * GPT.length * (6 * weights + attention)


class Residual(nn.Module):
    """A block of two convolutions, with a third around them where the shape changes, as ResNet has it."""

    def __init__(self, given: int, channels: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(given, channels, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.norm, self.other_norm = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)
        self.around = nn.Conv2d(given, channels, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        hidden = relu(self.norm(self.first(x)))
        return relu(self.other_norm(self.second(hidden)) + self.around(x))


def residual_network() -> nn.Module:
    """A network for images of 3 x 16 x 16."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
        Residual(8, 8, 1), Residual(8, 16, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10),
    )  # fmt: skip


def residual_operations(batch: int) -> int:
    """Those of a step: 2 for each weight and position forward, and twice as many backward.

    The first convolution has no gradient of its input.
    """
    first = 256 * 3 * 8 * 9
    second = 256 * (2 * 8 * 8 * 9 + 8 * 8)
    third = 64 * (8 * 16 * 9 + 16 * 16 * 9 + 8 * 16)
    return 2 * batch * (2 * first + 3 * (second + third + 16 * 10))
