"""What a user-defined model has to be, and what is said where it is something else."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from dmls_ray.util.errors import UserCodeError
from dmls_ray.util.text import first_line

_OF_TYPES = ("same dtype", "scalar type", "should be the same")
"""Parts of PyTorch's messages about tensors of several number formats."""


def prepare_model(model: nn.Module, name: str, shape: tuple[int, int, int]) -> None:
    """Give lazy layers their sizes, and refuse a model that has nothing to train.

    Args:
        model: as the user's function has returned it.
        name: its name in the configuration.
        shape: channels, height and width of an image.

    Raises:
        UserCodeError: no parameter requires a gradient, or a lazy layer keeps no size.
    """
    if _has_lazy_layers(model):
        was_training = model.training
        try:
            with torch.no_grad():
                model.eval()(torch.zeros(2, *shape))
        except Exception as error:
            size = "x".join(map(str, shape))
            raise UserCodeError(
                f"model={name}: its lazy layers get their sizes from images of {size}, which it does not take "
                f"({type(error).__name__}: {first_line(error)}); correct it, or give the sizes."
            ) from error
        model.train(was_training)
        if _has_lazy_layers(model):
            raise UserCodeError(f"model={name} has a lazy layer that its forward pass does not use; give its size.")
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise UserCodeError(
            f"model={name}: no parameter requires a gradient, so there is nothing to train; leave one with "
            "requires_grad=True."
        )


def check_logits(outputs: Any, samples: int, classes: int, name: str, model: nn.Module) -> None:
    """Refuse what is no logits of a batch.

    Args:
        outputs: what the model has returned.
        samples: number of images in the batch.
        classes: number of classes of the data set.
        name: the name of the model in the configuration.
        model: the model.

    Raises:
        UserCodeError: with what was returned and what is expected.
    """
    wanted = f"return the logits, a tensor of {samples} images x {classes} classes here"
    if not isinstance(outputs, Tensor):
        kind = type(outputs).__name__
        raise UserCodeError(f"model={name} returned {'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}; {wanted}.")
    if outputs.ndim != 2 or len(outputs) != samples:
        size = "x".join(map(str, outputs.shape)) or "no dimension"
        raise UserCodeError(f"model={name} returned a tensor of {size}; {wanted}.")
    if outputs.shape[1] < classes:
        logits = f"{outputs.shape[1]} logit" + ("s" if outputs.shape[1] != 1 else "")
        raise UserCodeError(
            f"model={name} returned {logits} and the data set has {classes} classes; return one for each: the function "
            "of the model gets their number as classes."
        )
    if not outputs.is_floating_point():
        raise UserCodeError(f"model={name} returned {outputs.dtype}, which has no gradient; {wanted}.")
    if torch.is_grad_enabled() and model.training and not outputs.requires_grad:
        raise UserCodeError(
            f"model={name} returned logits without a gradient; leave out detach() and no_grad() in its forward pass."
        )


def wrong_format(error: RuntimeError, name: str, model: nn.Module) -> UserCodeError | None:
    """The error about the number format of a model that failed on float32 images; None if another error happened."""
    formats = {parameter.dtype for parameter in model.parameters() if parameter.dtype != torch.float32}
    if not formats or not any(part in str(error) for part in _OF_TYPES):
        return None
    return UserCodeError(
        f"model={name} has parameters of {', '.join(sorted(map(str, formats)))} and images are of torch.float32 "
        f"({first_line(error)}); make it of float32: --precision chooses a lower one."
    )


def _has_lazy_layers(model: nn.Module) -> bool:
    return any(map(is_lazy, [*model.parameters(), *model.buffers()]))
