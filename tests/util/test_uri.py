from __future__ import annotations

from pathlib import Path

import pytest

from dmls_ray.util.errors import ConfigError
from dmls_ray.util.uri import below, check_location, is_uri, numbered


@pytest.mark.parametrize(
    ("location", "expected"),
    [("s3://b/x", True), ("file:///x", True), ("gs://b", True), ("results/x", False), ("/x", False), ("a:/b", False),
     (Path("/s3"), False)],
)  # fmt: skip
def test_a_uri_is_distinguished_from_a_path(location: str | Path, expected: bool) -> None:
    assert is_uri(location) is expected


@pytest.mark.parametrize(
    "uri",
    [
        "s3://AKIAX:HIDDEN@bucket/x",
        "s3://AKIAX:SEC/HIDDEN@bucket/x",
        "s3://HIDDEN@bucket/x",
        "s3://AKIAX:HIDDEN/x",
        "s3://bucket/x?secret_key=HIDDEN",
        "s3://bucket/x?endpoint_override=http://a:HIDDEN@host",
        "abfs://account:HIDDEN@container/x",
        "gs://bucket/x?access_token=HIDDEN",
    ],
)
def test_a_uri_with_credentials_is_refused_without_showing_them(uri: str) -> None:
    with pytest.raises(ConfigError, match="credentials in it.*put them into the environment") as raised:
        check_location(uri, "--out")
    assert "HIDDEN" not in str(raised.value)
    assert str(raised.value).startswith(f"--out {uri.partition(':')[0]}://")


@pytest.mark.parametrize(
    "location",
    [
        "s3://b/x",
        "s3://b/a@b?region=eu-west-1",
        "gs://anonymous@b/x",
        "abfs://c@account/x",
        "hdfs:///x",
        "x",
        Path("x@y:z"),
    ],
)
def test_a_location_without_a_secret_is_accepted(location: str | Path) -> None:
    check_location(location)


@pytest.mark.parametrize("location", [Path("s3://b/x"), "s3:/b/x", "gs:/b"])
def test_a_uri_that_lacks_a_slash_is_refused_and_is_no_folder(location: str | Path) -> None:
    with pytest.raises(ConfigError, match="is a URI that lacks a slash, as a path does; give it as a text"):
        check_location(location)


@pytest.mark.parametrize("uri", ["s3://", "s3:///key:HIDDEN@x", "gs://?token=HIDDEN", "abfs:// /x"])
def test_a_uri_without_a_bucket_is_refused_without_showing_the_rest(uri: str) -> None:
    with pytest.raises(ConfigError, match=r"--out \w+:// has no bucket") as raised:
        check_location(uri, "--out")
    assert "HIDDEN" not in str(raised.value)


def test_a_uri_that_cannot_be_parsed_is_refused_without_showing_it() -> None:
    with pytest.raises(ConfigError, match="--out is no URI .*; give s3://BUCKET/FOLDER, for example") as raised:
        check_location("s3://key:HIDDEN@[x/y", "--out")
    assert "HIDDEN" not in str(raised.value)


def test_what_lies_below_a_uri_keeps_its_options() -> None:
    assert below("s3://b/x/?region=r", "runs.jsonl") == "s3://b/x/runs.jsonl?region=r"
    assert below("s3://b", "x") == "s3://b/x"
    assert below("results/x", "y") == "results/x/y"
    assert numbered("s3://b/x/?region=r", 2) == "s3://b/x-2?region=r"


def test_a_numbered_path_is_next_to_the_path() -> None:
    assert numbered("results/x", 2) == Path("results/x-2")
    assert numbered(".", 3) == Path.cwd().with_name(f"{Path.cwd().name}-3")
