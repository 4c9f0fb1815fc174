"""pyarrow's file system of a URI, and its errors in one line with the way out."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from dmls_ray.util.errors import StoreError
from dmls_ray.util.text import first_line

_S3_OPTIONS = ("region", "scheme", "endpoint_override", "force_virtual_addressing", "tls_ca_file_path")
"""Options of an S3 server that the URI may have, by pyarrow's names."""

_CREDENTIALS = ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN")


def open_file_system(uri: str) -> tuple[Any, str]:
    """Return the pyarrow file system of a URI, and the folder's path on it."""
    from pyarrow.fs import FileSystem

    parts = urlsplit(uri)
    if parts.scheme == "s3":
        return _s3(parts), f"{parts.netloc}{unquote(parts.path)}".rstrip("/")
    if parts.scheme in ("gs", "gcs") and "retry_limit_seconds" not in parts.query:
        # By default, a server that cannot be reached is tried for a quarter of an hour.
        parts = parts._replace(query=urlencode([*parse_qsl(parts.query), ("retry_limit_seconds", "20")]))
    files, path = FileSystem.from_uri(urlunsplit(parts._replace(path=quote(parts.path, safe="/%"))))
    return files, path


def _s3(parts: SplitResult) -> Any:
    """S3 by the options in the URI and the environment; it fails after seconds, not minutes, without an answer."""
    import pyarrow
    from pyarrow.fs import AwsStandardS3RetryStrategy, S3FileSystem, resolve_s3_region

    options: dict[str, Any] = dict(parse_qsl(parts.query))
    for name in options:
        if name not in _S3_OPTIONS:
            raise StoreError(f"{name} is no option of an s3 URI; choose from {', '.join(_S3_OPTIONS)}.")
    if "force_virtual_addressing" in options:
        options["force_virtual_addressing"] = options["force_virtual_addressing"].lower() == "true"
    environment = os.environ.get
    endpoint = environment("AWS_ENDPOINT_URL_S3") or environment("AWS_ENDPOINT_URL")
    if endpoint:
        options.setdefault("endpoint_override", endpoint)
    region = environment("AWS_REGION") or environment("AWS_DEFAULT_REGION")
    if region:
        options.setdefault("region", region)
    elif "region" not in options:
        # A server other than Amazon's takes any region.
        options["region"] = "us-east-1" if "endpoint_override" in options else resolve_s3_region(parts.netloc)
    if int(pyarrow.__version__.partition(".")[0]) >= 21:
        options["allow_delayed_open"] = True  # one request for a small object instead of three
    return S3FileSystem(
        **options,
        connect_timeout=5,
        request_timeout=10,  # seconds without a byte
        retry_strategy=AwsStandardS3RetryStrategy(max_attempts=3),
    )


@contextmanager
def store_errors(uri: str, what: str) -> Iterator[None]:
    """Turn an error of the store within the block into a StoreError of one line without credentials.

    Args:
        uri: the folder.
        what: what failed: `read`, `written`, `used`.
    """
    import pyarrow

    try:
        yield
    except (OSError, pyarrow.ArrowException) as error:
        reason = first_line(error).rstrip(".")
        for name in _CREDENTIALS:
            if len(secret := os.environ.get(name, "")) >= 8:
                reason = reason.replace(secret, "***")
        raise StoreError(f"{uri} cannot be {what} ({reason[:300]}); {_way_out(reason)}.") from error


def _way_out(reason: str) -> str:
    if re.search(r"ACCESS_?KEY|ACCESS_DENIED|SIGNATURE|TOKEN|credential|HTTP status 40[13]", reason, re.IGNORECASE):
        return (
            "see to the credentials in the environment (AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE) "
            "and to what they allow"
        )
    if re.search(r"NETWORK_CONNECTION|curlCode|timed? ?out|INTERNAL_FAILURE|SLOW_DOWN", reason, re.IGNORECASE):
        return "see to the network and the endpoint (AWS_ENDPOINT_URL, or ?endpoint_override=http://HOST:PORT)"
    if "Unrecognized filesystem" in reason:
        return "use one of s3://, gs://, abfs://, hdfs://, file:///, or a path"
    return "check its access rights, or name another"
