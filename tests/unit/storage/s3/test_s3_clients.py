"""Stores of a process share an S3 client if their access is the same, and never with other credentials."""

from __future__ import annotations

from pathlib import Path

import pytest
from botocore.utils import parse_timestamp

from milepost.protocol.records.object_store import Credentials, StoreConfig
from milepost.storage.s3.store import S3Store, parse_time
from milepost_testkit import wording


def client_of(url: str, credentials: Credentials | None = None) -> object:
    return S3Store(StoreConfig(url, "http://127.0.0.1:1", credentials=credentials))._client()


def test_stores_with_the_same_access_share_their_connections() -> None:
    assert client_of("s3://jobs/a") is client_of("s3://lake/b")


def test_a_connection_s_new_credentials_are_not_reached_with_the_old_ones() -> None:
    first, second = Credentials("a", "old"), Credentials("a", "new")
    assert client_of("s3://jobs", first) is client_of("s3://lake", first)
    assert client_of("s3://jobs", first) is not client_of("s3://jobs", second)
    assert client_of("s3://jobs", first) is not client_of("s3://jobs")


def test_the_next_store_follows_a_changed_aws_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    without = client_of("s3://jobs")
    file.write_text("[default]\naws_access_key_id = a\naws_secret_access_key = of-the-file\n")
    of_file = client_of("s3://jobs")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-the-environment")
    assert len({without, of_file, client_of("s3://jobs")}) == 3


@pytest.mark.parametrize(
    "told",
    [
        "2026-11-26T04:03:39.000Z",
        "2026-11-26T04:03:39Z",
        "2026-11-26T04:03:39.1234567Z",
        "2026-11-26T06:03:39.5+02:00",
        "Thu, 26 Nov 2026 04:03:39 GMT",
        "1795665819",
        1795665819.25,
    ],
)
def test_a_time_of_a_reply_is_what_the_aws_library_takes_it_for(told: str | float) -> None:
    """To the millisecond, which is the required precision of an object's time."""
    assert round(parse_time(told).timestamp() * 1000) == round(parse_timestamp(told).timestamp() * 1000)


def test_what_is_no_time_is_refused_as_the_aws_library_refuses_it() -> None:
    for told in ("2026-11-99T04:03:39Z", "never"):
        with wording.raises(ValueError):
            parse_time(told)
