"""Samples of a data set, checked as they are read: images as arrays, labels as whole numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dmls_ray.util.errors import DmlsRayError, UserCodeError
from dmls_ray.workloads.classification.datasets import Samples, Split
from dmls_ray.workloads.image_files import to_8_bits

_GREY_MODES = ("1", "L", "I", "I;16", "I;16B", "I;16L", "I;16N", "F")

_MOST_CHANNELS = 4
"""Channels of an image that an array can hold; a tensor may have more."""


def read_sample(name: str, split: Split, samples: Samples, index: int) -> tuple[Any, int]:
    """A sample of a data set: its image as the data set gives it, and its label.

    Args:
        name: the data set, for errors.
        split: which half `samples` are.
        samples: the half.
        index: of the sample.

    Raises:
        DataError: a file cannot be read.
        UserCodeError: the data set fails, or gives something else than an image and the number of a class.
    """
    try:
        image, label = samples[index]
        number = np.asarray(label).item()
    except DmlsRayError:
        raise
    except Exception as error:
        raise UserCodeError(
            f"dataset={name}: {split} sample {index} is no (image, label): {type(error).__name__}: {error}."
        ) from error
    if not isinstance(number, int | float) or number < 0 or not float(number).is_integer():
        raise UserCodeError(
            f"dataset={name}: {split} label {index} is {number!r}; give the number of the class, from 0 on."
        )
    return image, int(number)


def to_chw(image: Any, image_size: int | None, channels: int | None = None) -> NDArray[Any]:
    """An image as channels x height x width, uint8 (float32 stays float32), resized if asked.

    Args:
        image: a PIL image, a height x width (x channels) array, or a channels x height x width tensor.
        image_size: pixels a side, or None.
        channels: 1 or 3 to bring a PIL image to grey or to colour.

    Raises:
        ValueError: it is no such image.
        OSError, SyntaxError, EOFError, struct.error: PIL cannot read its file.
    """
    if isinstance(image, Image.Image):
        is_grey = channels == 1 or (channels is None and image.mode in _GREY_MODES)
        image = to_8_bits(image, "L" if is_grey else "RGB")
    array = _channels_first(image)
    if image_size is None or array.shape[1:] == (image_size, image_size):
        return array
    planes = [Image.fromarray(plane).resize((image_size, image_size), Image.Resampling.BILINEAR) for plane in array]
    return np.stack([np.asarray(plane) for plane in planes])


def _channels_first(image: Any) -> NDArray[Any]:
    array = np.asarray(image)
    is_tensor = hasattr(image, "permute")
    if array.ndim == 2 and not is_tensor:
        array = array[:, :, None]
    if array.ndim != 3 or array.dtype not in (np.uint8, np.float32) or not array.size:
        raise ValueError(
            f"{description(array)} is no image; give PIL images, arrays of height x width (x channels), or tensors of "
            "channels x height x width: uint8 from 0 to 255, or float32 as the model takes them"
        )
    if array.dtype == np.float32 and not np.isfinite(array).all():
        raise ValueError("values are not finite")
    wrong = ValueError(f"{description(array)}: channels come first in a tensor, and last in an array (4 at most)")
    if is_tensor:
        if array.shape[2] <= _MOST_CHANNELS < min(array.shape[:2]):
            raise wrong
        return array
    if array.shape[2] > _MOST_CHANNELS:
        raise wrong
    return np.ascontiguousarray(array.transpose(2, 0, 1))


def description(array: NDArray[Any]) -> str:
    """Type and shape of an array, for an error."""
    return f"{array.dtype} of {'x'.join(map(str, array.shape))}"
