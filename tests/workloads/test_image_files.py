"""Image files in all modes, as 8-bit pictures: scaled, or refused with their path."""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dmls_ray.util.errors import DataError
from dmls_ray.workloads.image_files import is_image_name, read_rgb, to_8_bits

LEVELS = np.array([[0, 60], [130, 255]], dtype=np.uint8)
SIXTEEN = LEVELS.astype(np.uint16) * 257


def encoded(image: Image.Image, **options: object) -> bytes:
    file = io.BytesIO()
    image.save(file, **options)  # type: ignore[arg-type]
    return file.getvalue()


def pgm(levels: np.ndarray, largest: int) -> bytes:
    return f"P5 2 2 {largest}\n".encode() + levels.astype(">u2").tobytes()


GREY = Image.fromarray(LEVELS)
FILES = {
    "8 bits.png": encoded(GREY, format="PNG"),
    "16 bits.png": encoded(Image.fromarray(SIXTEEN), format="PNG"),
    "16 bits, largest byte first.tiff": encoded(
        Image.frombytes("I;16B", (2, 2), SIXTEEN.astype(">u2").tobytes()), format="TIFF"
    ),
    "16 bits.pgm": pgm(SIXTEEN, 65535),
    "palette.png": encoded(GREY.convert("P"), format="PNG"),
    "palette with transparency.png": encoded(GREY.convert("P"), format="PNG", transparency=bytes([0, 128, 255])),
    "grey with a transparent level.png": encoded(GREY, format="PNG", transparency=60),
    "colour with transparency.webp": encoded(GREY.convert("RGBA"), format="WEBP", lossless=True),
    "ink.tif": encoded(GREY.convert("RGB").convert("CMYK"), format="TIFF"),
    "two frames.tif": encoded(GREY, format="TIFF", save_all=True, append_images=[Image.new("L", (2, 2))]),
}


@pytest.mark.parametrize("name", FILES)
def test_the_levels_of_a_file_are_scaled_from_their_range(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(FILES[name])
    picture = read_rgb(path)
    assert picture.mode == "RGB"
    assert np.abs(np.asarray(picture).astype(int) - LEVELS[:, :, None]).max() <= 1


def test_a_picture_of_two_levels_is_black_and_white(tmp_path: Path) -> None:
    Image.fromarray(LEVELS > 100).save(tmp_path / "a.png")
    assert np.asarray(read_rgb(tmp_path / "a.png"))[:, :, 0].tolist() == [[0, 0], [255, 255]]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.tiff", encoded(Image.fromarray(LEVELS.astype(np.float32) / 255), format="TIFF"), "mode F have no defined"),
        ("a.tif", encoded(Image.fromarray(LEVELS.astype(np.int32)), format="TIFF"), "mode I have no defined range"),
        ("a.jpg", encoded(Image.effect_noise((64, 64), 50), format="JPEG")[:600], "image file is truncated"),
        ("c.png", b"no image", "cannot identify image file"),
        ("d.ppm", b"P6 1{6 1 255\n123", "invalid literal for int"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_with_its_path(
    tmp_path: Path, name: str, content: bytes, reason: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"^{path} cannot be read \(.*{reason}"):
        read_rgb(path)


def test_a_link_to_an_image_is_followed_and_one_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    GREY.save(tmp_path / "a.png")
    os.symlink("a.png", tmp_path / "b.png")
    os.symlink("gone.png", tmp_path / "c.png")
    assert np.asarray(read_rgb(tmp_path / "b.png"))[0, 1].tolist() == [60, 60, 60]
    with pytest.raises(DataError, match=r"c\.png cannot be read \(no regular file\)"):
        read_rgb(tmp_path / "c.png")


@pytest.mark.parametrize("levels", [LEVELS, SIXTEEN])
@pytest.mark.parametrize("suffix", [".png", ".tif"])
def test_a_picture_that_lies_is_turned_upright(tmp_path: Path, levels: np.ndarray, suffix: str) -> None:
    lying = Image.fromarray(levels)
    turned = lying.getexif()
    turned[274] = 6  # Orientation: to be turned by a quarter, clockwise
    lying.save(tmp_path / f"a{suffix}", exif=turned)
    assert np.array_equal(np.asarray(read_rgb(tmp_path / f"a{suffix}"))[:, :, 0], np.rot90(LEVELS, -1))


def test_the_levels_of_an_image_in_memory_have_no_format_to_tell_their_range() -> None:
    with pytest.raises(ValueError, match="the levels of PIL's mode I have no defined range"):
        to_8_bits(Image.fromarray(LEVELS.astype(np.int32)), "L")
    assert np.array_equal(np.asarray(to_8_bits(Image.fromarray(SIXTEEN), "L")), LEVELS)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a.JPG", True), ("b.Tiff", True), ("._b.jpg", False), (".b.jpg", False), ("a.gif", False), ("a.txt", False)],
)
def test_an_image_is_known_by_its_name(name: str, expected: bool) -> None:
    assert is_image_name(f"folder/{name}") is expected
