"""The training loop and its instruments in plain PyTorch. Runs under any launcher and never imports Ray.

Not public, except `rank.RankInfo`, which `dmls_ray` exports.
"""
