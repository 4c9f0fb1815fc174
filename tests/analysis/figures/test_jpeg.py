from __future__ import annotations

import base64

import pytest
from PIL import Image, JpegImagePlugin

from dmls_ray.analysis.figures.jpeg import SIDE, decode_jpeg, is_small_jpeg
from tests.conftest import jpeg


def with_size(picture: str, width: int, height: int) -> str:
    """The picture with another size in its head: what says so is no longer than any."""
    content = bytearray(base64.b64decode(picture))
    place = content.index(b"\xff\xc0") + 5
    content[place : place + 4] = height.to_bytes(2, "big") + width.to_bytes(2, "big")
    return base64.b64encode(content).decode()


def test_a_jpeg_is_an_image_of_its_size() -> None:
    image = decode_jpeg(jpeg(40, 30))
    assert image is not None
    assert (image.size, image.mode) == ((40, 30), "RGB")


@pytest.mark.parametrize(("width", "height"), [(SIDE + 1, 1), (1, SIDE + 1), (12_000, 12_000), (65_500, 65_500)])
def test_a_picture_of_more_pixels_is_refused_before_they_are_decoded(
    monkeypatch: pytest.MonkeyPatch, width: int, height: int
) -> None:
    loaded = []
    monkeypatch.setattr(JpegImagePlugin.JpegImageFile, "load", lambda image: loaded.append(image.size))
    assert decode_jpeg(with_size(jpeg(), width, height)) is None
    assert not is_small_jpeg(with_size(jpeg(), width, height))
    assert is_small_jpeg(jpeg())
    assert loaded == []


def test_the_largest_that_may_be_is_decoded() -> None:
    image = decode_jpeg(jpeg(SIDE, SIDE))
    assert image is not None
    assert image.size == (SIDE, SIDE)


@pytest.mark.parametrize("form", ["PNG", "GIF", "TIFF", "BMP"])
def test_what_is_no_jpeg_is_refused_though_pillow_could_read_it(form: str) -> None:
    Image.init()
    assert decode_jpeg(jpeg(image_format=form)) is None
    assert not is_small_jpeg(jpeg(image_format=form))


@pytest.mark.parametrize("picture", ["", "/9j/AAAA", "no base64!", jpeg()[:-200], "ä"])
def test_what_is_broken_is_refused(picture: str) -> None:
    assert decode_jpeg(picture) is None
