"""Images of any kind as arrays of channels x height x width."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from dmls_ray.util.errors import DataError


def to_chw(image: Any, image_size: int | None, channels: int | None = None) -> NDArray[Any]:
    """An image as channels x height x width, uint8 (float32 stays float32), resized if asked.

    Args:
        image: a PIL image, a height x width (x channels) array, or a channels x height x width tensor.
        image_size: pixels a side, or None.
        channels: 1 or 3 to bring a PIL image to grey or to colour.
    """
    if isinstance(image, Image.Image):
        grey = channels == 1 or (channels is None and image.mode in ("1", "L", "I", "I;16", "F"))
        image = image.convert("L" if grey else "RGB")
        if image_size is not None and image.size != (image_size, image_size):
            image = image.resize((image_size, image_size), Image.Resampling.BILINEAR)
    array = np.asarray(image)
    if not hasattr(image, "permute"):  # a tensor is channels first already
        array = array[:, :, None] if array.ndim == 2 else array
        array = np.ascontiguousarray(array.transpose(2, 0, 1)) if array.ndim == 3 else array
    if array.ndim != 3 or array.dtype not in (np.uint8, np.float32):
        raise DataError(
            f"an image is {describe_array(array)}; give PIL images, uint8 arrays of height x width (x channels), "
            "or tensors of channels x height x width, uint8 or float32."
        )
    if image_size is None or array.shape[1:] == (image_size, image_size):
        return array
    planes = [
        np.asarray(Image.fromarray(plane).resize((image_size, image_size), Image.Resampling.BILINEAR))
        for plane in array
    ]
    return np.stack(planes)


def describe_array(array: NDArray[Any]) -> str:
    """Type and shape of an array, for an error."""
    return f"{array.dtype} of {'x'.join(map(str, array.shape))}"
