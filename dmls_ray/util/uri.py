"""Locations of results folders: a local path, or a URI such as s3://bucket/folder."""

from __future__ import annotations

import os
import re
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from dmls_ray.util.errors import ConfigError

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")
_FLATTENED = re.compile(r"(s3|gs|gcs|abfs|abfss|hdfs|viewfs|file):/")
_SECRET = re.compile(r"key|secret|token|password|signature|credential|sig\b", re.IGNORECASE)


def is_uri(location: str | os.PathLike[str]) -> bool:
    """Whether a location is a URI; otherwise it is a local path."""
    return isinstance(location, str) and bool(_URI.match(location))


def check_location(location: str | os.PathLike[str], flag: str = "") -> None:
    """Refuse a URI that must not be written into a log, a report or a record.

    Args:
        location: a local path or a URI.
        flag: the flag or field to name in an error.

    Raises:
        ConfigError: the URI contains a key, a secret or the like, or it lacks a bucket, or a slash, as after
            conversion to a Path.
    """
    named = f"{flag} " if flag else ""
    if not isinstance(location, str) or not is_uri(location):
        if _FLATTENED.match(text := os.fspath(location)):
            raise ConfigError(f"{named}{text} is a URI that lacks a slash, as a path does; give it as a text, with //.")
        return
    try:
        parts = urlsplit(location)
    except ValueError as error:
        # Without the URI itself, which may hold a secret.
        raise ConfigError(f"{named}is no URI ({error}); give s3://BUCKET/FOLDER, for example.") from error
    if parts.scheme in ("s3", "gs", "gcs", "abfs", "abfss") and not parts.netloc.strip():
        # Without what follows, which may hold a secret.
        raise ConfigError(f"{named}{parts.scheme}:// has no bucket; give {parts.scheme}://BUCKET/FOLDER.")
    options = parse_qsl(parts.query, keep_blank_values=True)
    # A secret may contain slashes, so it may extend beyond the place of the host. gs://anonymous@bucket and
    # abfs://container@account contain no secret.
    user, at, rest = location.partition("?")[0].rpartition("@")
    has_credentials = ":" in user[len(parts.scheme) + 3 :] or (
        parts.scheme == "s3" and not {":", "@"}.isdisjoint(parts.netloc)
    )
    if has_credentials or any(_SECRET.search(name) or "@" in value for name, value in options):
        bare = f"{parts.scheme}://{rest if at else '...'}"
        raise ConfigError(
            f"{named}{bare} was given with credentials in it, which would be written down; leave them out and put them "
            "into the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE)."
        )


def below(location: str | os.PathLike[str], name: str) -> str:
    """Return the location of a file or folder within a folder; a URI keeps its options."""
    if not is_uri(location):
        return str(Path(location) / name)
    parts = urlsplit(str(location))
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{name}"))


def numbered(location: str | os.PathLike[str], number: int) -> str | Path:
    """Return FOLDER-2, FOLDER-3, ...: a URI or a path."""
    if not is_uri(location):
        path = Path(location)
        path = path if path.name else path.resolve()  # `.` has no name to add a number to
        return path.with_name(f"{path.name}-{number}")
    parts = urlsplit(str(location))
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}-{number}"))
