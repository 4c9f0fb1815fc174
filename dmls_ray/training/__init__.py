"""The training floor: plain PyTorch, readable top to bottom; runs under any launcher and never imports Ray."""
