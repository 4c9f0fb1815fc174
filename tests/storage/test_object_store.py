from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dmls_ray.storage.object_store import ObjectStore
from dmls_ray.util.errors import StoreError
from dmls_ray.util.uri import below
from tests.conftest import S3, start_s3


def test_what_was_put_is_listed_and_read(uri: str) -> None:
    objects = ObjectStore(uri)
    assert objects.list() == []
    assert objects.get("a.json") is None
    objects.put("a.json", b"old")
    objects.put("a.json", b"new")
    objects.put_all([f"runs/{number}.json" for number in range(40)], str.encode)
    assert objects.list() == ["a.json"]
    assert len(objects.list("runs")) == 40
    assert len(objects.list(deep=True)) == 41
    assert objects.get("a.json") == b"new"
    assert objects.get_all(["runs/7.json", "runs/absent.json"]) == {"runs/7.json": b"runs/7.json"}
    assert ObjectStore(below(uri, "runs")).get("8.json") == b"runs/8.json"


def test_an_object_that_is_not_whole_yet_is_not_listed_and_one_that_fails_leaves_nothing(tmp_path: Path) -> None:
    objects = ObjectStore(tmp_path.as_uri())
    (tmp_path / ".a.json.0123.new").write_text("{")
    assert objects.list() == []
    (tmp_path / "b.json").mkdir()
    with pytest.raises(StoreError, match="cannot be written"):
        objects.put("b.json", b"{}")
    assert sorted(os.listdir(tmp_path)) == [".a.json.0123.new", "b.json"]


@pytest.mark.parametrize(
    ("uri", "message"),
    [
        ("ftp://host/x", "see to its scheme (s3://, gs://, abfs:// or hdfs://)"),
        ("file://relative/x", "Unsupported hostname"),
        ("s3://absent-bucket/x", "absent-bucket"),
        ("s3://b/x?colour=red", "colour is no option of an s3 URI; choose from region, scheme, endpoint_override"),
        ("s3://b/x?endpoint_override=http://127.0.0.1:1", "the network, the endpoint (AWS_ENDPOINT_URL)"),
        ("s3://b/x?endpoint_override=http://host.invalid", "the network, the endpoint (AWS_ENDPOINT_URL)"),
    ],
)
def test_a_store_that_cannot_be_reached_is_one_line_within_seconds(bucket: str, uri: str, message: str) -> None:
    began = time.monotonic()
    with pytest.raises(StoreError) as raised:
        ObjectStore(uri).put("a.json", b"")
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert time.monotonic() - began < 20


def test_a_credential_that_an_error_quotes_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "HIDDEN/HIDDEN")
    (tmp_path / "HIDDEN" / "HIDDEN").mkdir(parents=True)
    with pytest.raises(StoreError, match=r"\*\*\*") as raised:
        ObjectStore(tmp_path.as_uri()).put("HIDDEN/HIDDEN", b"")
    assert "HIDDEN/HIDDEN" not in str(raised.value)


def test_wrong_credentials_are_reported_and_not_shown(use_s3: Callable[[S3], str]) -> None:
    server = start_s3(INITIAL_NO_AUTH_ACTION_COUNT="1")  # the making of the bucket
    try:
        uri = use_s3(server)
        with pytest.raises(StoreError, match="and the credentials in the environment") as raised:
            ObjectStore(uri).list()
    finally:
        server.end()
    assert os.environ["AWS_ACCESS_KEY_ID"] not in str(raised.value)
