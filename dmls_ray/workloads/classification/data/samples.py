"""Samples of a data set, checked as they are read: images as arrays, labels as whole numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dmls_ray.util.errors import DataError, DmlsRayError, UserCodeError
from dmls_ray.workloads.classification.datasets import Samples, Split
from dmls_ray.workloads.image_files import UNREADABLE, to_8_bits

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
        DataError: a file cannot be read, or the label is no whole number of at least 0.
        UserCodeError: the data set fails, or gives something else than an image and a label.
    """
    try:
        sample = samples[index]
    except DmlsRayError:
        raise
    except Exception as error:
        raise UserCodeError(
            f"dataset={name}: your data set failed at {split} sample {index}: {type(error).__name__}: {error}."
        ) from error
    if not isinstance(sample, (tuple, list)) or len(sample) != 2:
        raise UserCodeError(
            f"dataset={name}: {split} sample {index} is {_kind(sample)}; return an image and its label, (image, label)."
        )
    image, label = sample
    try:
        return image, _whole_number(label)
    except ValueError as error:
        raise DataError(f"dataset={name}: {split} label {index} {error}.") from error


def to_chw(image: Any, image_size: int | None, channels: int | None = None) -> NDArray[Any]:
    """An image as channels x height x width, uint8 (float32 stays float32), resized if asked.

    Args:
        image: a PIL image, a height x width (x channels) array, or a channels x height x width tensor.
        image_size: pixels a side, or None.
        channels: 1 or 3 to bring a PIL image to grey or to colour.

    Raises:
        ValueError: it is no such image; the text goes on after the image's name.
    """
    if isinstance(image, Image.Image):
        grey = channels == 1 or (channels is None and image.mode in _GREY_MODES)
        image = _decoded(image, grey)
        if image_size is not None and image.size != (image_size, image_size):
            image = image.resize((image_size, image_size), Image.Resampling.BILINEAR)
    array = _channels_first(image)
    if image_size is None or array.shape[1:] == (image_size, image_size):
        return array
    planes = [
        np.asarray(Image.fromarray(plane).resize((image_size, image_size), Image.Resampling.BILINEAR))
        for plane in array
    ]
    return np.stack(planes)


def _decoded(image: Image.Image, grey: bool) -> Image.Image:
    """A PIL image in grey or in colour, of 8 bits a channel.

    Raises:
        ValueError: its file is broken, or its levels have no defined range.
    """
    try:
        return to_8_bits(image, "L" if grey else "RGB")
    except UNREADABLE as error:  # PIL reads a file when its pixels are needed
        raise ValueError(f"cannot be read ({error})") from error


def _channels_first(image: Any) -> NDArray[Any]:
    array = _as_array(image)
    is_tensor = hasattr(image, "permute")
    if array.ndim == 2 and not is_tensor:
        array = array[:, :, None]
    if array.ndim != 3 or array.dtype not in (np.uint8, np.float32) or not array.size:
        raise ValueError(
            f"is {description(_as_array(image))}; give PIL images, arrays of height x width (x channels), or tensors "
            "of channels x height x width: uint8 from 0 to 255, or float32 as the model takes them"
        )
    if array.dtype == np.float32 and not np.isfinite(array).all():
        raise ValueError("has values that are not finite")
    if is_tensor:
        if array.shape[2] <= _MOST_CHANNELS < min(array.shape[:2]):
            raise ValueError(
                f"is a tensor of {_shape(array)}, which is read as {array.shape[0]} channels; put the channels first: "
                "permute(2, 0, 1)"
            )
        return array
    if array.shape[2] > _MOST_CHANNELS:
        raise ValueError(
            f"is an array of {_shape(array)}, which is read as height, width and {array.shape[2]} channels; put the "
            f"channels last, transpose(1, 2, 0), or give a tensor for more than {_MOST_CHANNELS} channels"
        )
    return np.ascontiguousarray(array.transpose(2, 0, 1))


def _whole_number(label: Any) -> int:
    """A label as an int.

    Raises:
        ValueError: it is no whole number of at least 0; the text goes on after the label's name.
    """
    values = _as_array(label)
    if values.size != 1:
        raise ValueError(f"has {values.size} values; give the number of the class, from 0 on, and no list of them")
    value = values.item()
    is_whole = isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    if not is_whole or value < 0:
        raise ValueError(f"is {value!r}; give the number of the class, a whole one from 0 on")
    return int(value)


def _as_array(value: Any) -> NDArray[Any]:
    try:
        return np.asarray(value)
    except Exception as error:  # a tensor on a GPU, with a gradient, or of a type that NumPy lacks
        raise ValueError(f"is {_kind(value)} that NumPy cannot read ({error})") from error


def _kind(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return f"of type {type(value).__name__}"


def description(array: NDArray[Any]) -> str:
    """Type and shape of an array, for an error."""
    return f"{array.dtype} of {_shape(array)}"


def _shape(array: NDArray[Any]) -> str:
    return "x".join(map(str, array.shape))
