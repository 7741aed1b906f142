"""The S3 clients of a process: stores share one where they are reached the same way, and never with other keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from milepost.protocol.records.object_store import Credentials, StoreConfig
from milepost.storage.s3.store import S3Store


def client_of(url: str, credentials: Credentials | None = None) -> object:
    return S3Store(StoreConfig(url, "http://127.0.0.1:1", credentials=credentials))._client()


def test_stores_of_one_way_share_their_connections() -> None:
    assert client_of("s3://jobs/a") is client_of("s3://lake/b")


def test_a_connection_s_new_credentials_are_not_reached_with_the_old_ones() -> None:
    first, second = Credentials("a", "old"), Credentials("a", "new")
    assert client_of("s3://jobs", first) is client_of("s3://lake", first)
    assert client_of("s3://jobs", first) is not client_of("s3://jobs", second)
    assert client_of("s3://jobs", first) is not client_of("s3://jobs")


def test_what_the_aws_tools_are_told_anew_is_followed_by_the_next_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "credentials"
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(file))
    without = client_of("s3://jobs")
    file.write_text("[default]\naws_access_key_id = a\naws_secret_access_key = of-the-file\n")
    of_file = client_of("s3://jobs")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of-the-environment")
    assert len({without, of_file, client_of("s3://jobs")}) == 3
