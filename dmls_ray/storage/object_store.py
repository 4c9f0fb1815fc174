"""A folder at a URI, on an object store or a distributed file system: s3://, gs://, abfs://, hdfs://.

An object that was written is found by every later list and read. On a file system it is written under a temporary name
and renamed. A process that dies while it writes may leave an empty object: Azure has one from the opening on. An
object that is written again may be lost then, so nothing is that cannot be made again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit, urlunsplit

from dmls_ray.util.errors import StoreError
from dmls_ray.util.files import TEMPORARY_SUFFIX, temporary_name
from dmls_ray.util.text import first_line
from dmls_ray.util.uri import check_location

PARALLEL_REQUESTS = 32
"""Most requests at a time: each is mostly waiting."""

_S3_OPTIONS = ("region", "scheme", "endpoint_override", "tls_ca_file_path")
"""Options of an S3 server that the URI may have, by pyarrow's names."""

_CREDENTIALS = ("AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID", "AWS_SESSION_TOKEN")

_WAY_OUT = (
    "see to its scheme (s3://, gs://, abfs:// or hdfs://), its access rights, the network, the endpoint "
    "(AWS_ENDPOINT_URL) and the credentials in the environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_PROFILE)"
)

Item = TypeVar("Item")
Result = TypeVar("Result")


class ObjectStore:
    """The objects in a folder at a URI.

    Raises:
        ConfigError: the URI has credentials in it.
        StoreError: the URI cannot be reached. Every method raises it, too, when the store fails.
    """

    def __init__(self, uri: str) -> None:
        check_location(uri)
        self.uri = uri
        with _store_errors(self.uri, "used"):
            self._files, self._root = _open_file_system(uri)
            self._renames = self._files.type_name not in ("s3", "gcs", "abfs")

    def list(self, folder: str = "", *, deep: bool = False) -> list[str]:
        """Return the names of the objects in the folder or a subfolder, in order; with `deep`, of all levels below."""
        from pyarrow.fs import FileSelector, FileType

        path = self._path(folder).rstrip("/") or "/"
        with _store_errors(self.uri, "read"):
            infos = self._files.get_file_info(FileSelector(path, allow_not_found=True, recursive=deep))
        root = len(self._root.rstrip("/")) + 1
        names = []
        for info in infos:
            if info.type != FileType.Directory and not info.base_name.endswith(TEMPORARY_SUFFIX):
                names.append(info.path[root:])
        return sorted(names)

    def get(self, name: str) -> bytes | None:
        """Return the content of an object; None where there is none."""
        with _store_errors(self.uri, "read"):
            try:
                with self._files.open_input_stream(self._path(name), compression=None) as stream:
                    content: bytes = stream.read()
                    return content
            except FileNotFoundError:
                return None

    def get_all(self, names: Sequence[str]) -> dict[str, bytes]:
        """Return the contents of many objects, read in parallel; objects that do not exist are left out."""
        contents = _in_parallel(self.get, names)
        return {name: content for name, content in zip(names, contents, strict=True) if content is not None}

    def put(self, name: str, content: bytes) -> None:
        """Write an object; it is complete when this returns."""
        self.put_all([name], lambda _: content)

    def put_all(self, names: Iterable[str], content_of: Callable[[str], bytes]) -> None:
        """Write many objects in parallel; `content_of` is called for each as it is written.

        In other threads, even a single one: a signal interrupts this thread, and closes no object that is half written.
        """
        _in_parallel(lambda name: self._put(name, content_of(name)), list(names))

    def _put(self, name: str, content: bytes) -> None:
        path = self._path(name)
        with _store_errors(self.uri, "written"):
            if not self._renames:
                self._write(path, content)
                return
            folder, _, last = path.rpartition("/")
            self._files.create_dir(folder, recursive=True)
            temporary = f"{folder}/{temporary_name(last)}"
            try:
                self._write(temporary, content)
                self._files.move(temporary, path)
            except BaseException:
                with suppress(OSError):
                    self._files.delete_file(temporary)
                raise

    def _write(self, path: str, content: bytes) -> None:
        with self._files.open_output_stream(path, compression=None) as stream:
            stream.write(content)

    def _path(self, name: str) -> str:
        return f"{self._root.rstrip('/')}/{name}"


def _in_parallel(call: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Call a function for all items in threads; after the first failure no further call starts."""
    if not items:
        return []
    with ThreadPoolExecutor(min(PARALLEL_REQUESTS, len(items))) as pool:
        try:
            return list(pool.map(call, items))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _open_file_system(uri: str) -> tuple[Any, str]:
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
def _store_errors(uri: str, what: str) -> Iterator[None]:
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
        raise StoreError(f"{uri} cannot be {what} ({reason[:300]}); {_WAY_OUT}.") from error
