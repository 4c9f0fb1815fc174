"""Errors of image files, for every workload that reads images."""

from __future__ import annotations

import struct

from PIL import Image

UNREADABLE = (OSError, SyntaxError, EOFError, struct.error, Image.DecompressionBombError)
"""Exceptions of PIL for a file that is not an image, is broken, or has too many pixels.

Also ValueError; but a data set of the user's may raise that for other reasons."""
