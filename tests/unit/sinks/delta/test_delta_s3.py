"""A Delta table in S3 is committed by conditional writes, with the credentials of its store only."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from uuid import uuid4

import pytest

from milepost.errors import (
    CheckpointError,
    CommitConflict,
    CommitOutcomeUnknown,
    EnvironmentUnusable,
    InvalidRequest,
)
from milepost.protocol.records.object_store import Credentials, StoreConfig
from milepost.sinks.formats.delta.locations import delta_location
from milepost.storage.open import open_store
from milepost.tables.delta.delta_errors import parse_reason
from milepost.tables.delta.locations import DeltaLocation
from milepost_testkit import wording
from milepost_testkit.formats.delta_table import OWNER, SCHEMA, DeltaTableUnderTest, rows, write_id
from milepost_testkit.proxies.recording_proxy import RecordingProxy
from milepost_testkit.readers.reading_engines import ENGINES, ReadingEngines
from milepost_testkit.servers.s3_servers import S3Server, Seaweed

NOWHERE = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def no_credentials_of_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")


def table_on(
    server: S3Server, endpoint_url: str | None = None, prefix: str = "tables", bucket: str | None = None
) -> DeltaTableUnderTest:
    """A table's place in the server's bucket, reached by credentials of its own."""
    url = f"s3://{bucket or server.shared_bucket}/{prefix}/{uuid4().hex}"
    credentials = Credentials(server.access_key, server.secret_key)
    return DeltaTableUnderTest(
        open_store(StoreConfig(url, endpoint_url or server.endpoint_url, credentials=credentials))
    )


@pytest.mark.deep
@pytest.mark.parametrize(("name", "racers"), [("ministack", 6), ("seaweed", 3)])
def test_of_racers_one_wins_and_engines_read_what_it_wrote(
    name: str, racers: int, request: pytest.FixtureRequest, reading_engines: ReadingEngines
) -> None:
    """Rule: a commit is a conditional write, without a table of locks (TABLES 3)."""
    server: S3Server = request.getfixturevalue(name)
    table = table_on(server)
    table.create()
    won = table.race(racers)
    assert won.count(True) == 1 and table.open().number == won.index(True) + 1
    for engine in ENGINES:
        found = reading_engines.read(engine, table.store.config.url, server=server)
        assert found.column("k").to_pylist() == [won.index(True)]


def test_of_racers_that_change_properties_one_wins(ministack: S3Server) -> None:
    """Rule: a commit that is not the library's is the same conditional write; a move that comes later is refused."""
    table = table_on(ministack)
    table.create()
    late, file = table.open(), table.stage(rows(1))
    handles = [table.open() for _ in range(4)]

    def wins(racer: int) -> bool:
        try:
            handles[racer].claim(OWNER, {"delta.logRetentionDuration": f"interval {racer + 90} days"}, None)
        except CommitConflict:
            return False
        return True

    with ThreadPoolExecutor(len(handles)) as pool:
        won = list(pool.map(wins, range(len(handles))))
    assert won.count(True) == 1 and table.others.version() == 1
    kept = table.others.metadata().configuration["delta.logRetentionDuration"]
    assert kept == f"interval {won.index(True) + 90} days"
    with pytest.raises(CommitConflict):
        table.move(1, [file], table=late)
    table.move(1, [file])
    assert table.keys() == [1]


def test_a_place_with_odd_characters_is_the_one_that_the_store_means(ministack: S3Server) -> None:
    """Rule: what tasks stage by our own store is where the library looks for it."""
    table = table_on(ministack, prefix="a b/100%/ü+#&=")
    table.create()
    file = table.stage(rows(1))
    table.move(1, [file])
    table.append_by_others(2)
    assert table.keys() == [1, 2] and table.open().number == 1
    below = [stat.key for stat in table.store.list("")]
    assert file.key in below and "_delta_log/00000000000000000002.json" in below


@pytest.mark.parametrize("odd", ["%20", "%C3%BC", "[x]", "a|b", "a^b", "a\\b"])
@pytest.mark.parametrize("root", ["s3://bucket/tables", "file:///tables"])
def test_a_place_that_the_library_would_take_for_another_is_refused(root: str, odd: str) -> None:
    """Rule: no table is created where no reader finds it; the characters are named."""
    with wording.raises(InvalidRequest):
        delta_location("totals", StoreConfig(f"{root}/{odd.replace('%', '%25') if root.startswith('file') else odd}"))


def test_a_commit_whose_answer_was_lost_is_known_by_its_write_id(ministack: S3Server) -> None:
    """Rule: transports repeat requests, and our own success comes back as a conflict (TABLES 1.5)."""
    with RecordingProxy(ministack.port) as proxy:
        table = table_on(ministack, proxy.endpoint_url)
        table.create()
        table.move(1, [table.stage(rows(1))])
        lost: list[str] = []

        def is_commit(method: str, path: str, headers: dict[str, str]) -> bool:
            if method != "PUT" or not path.endswith("00000000000000000002.json") or lost:
                return False
            lost.append(path)
            return True

        proxy.reset_when = is_commit
        file = table.stage(rows(2))
        with wording.raises(CommitOutcomeUnknown):
            table.move(2, [file])
        assert lost and (table.open().number, table.open().write_id) == (2, write_id(2))
        assert table.keys() == [1, 2] and table.open().foreign_commits() == ()


HOSTILE = {
    "AWS_ACCESS_KEY_ID": "somebody",
    "AWS_SECRET_ACCESS_KEY": "elses",
    "AWS_SESSION_TOKEN": "session",
    "AWS_ENDPOINT": NOWHERE,
    "AWS_ENDPOINT_URL": NOWHERE,
    "AWS_ENDPOINT_URL_S3": NOWHERE,
    "AWS_REGION": "eu-north-1",
    "AWS_DEFAULT_REGION": "eu-north-1",
    "AWS_SKIP_SIGNATURE": "true",
    "AWS_CONDITIONAL_PUT": "disabled",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true",
    "AWS_ALLOW_HTTP": "false",
    "HTTP_PROXY": NOWHERE,
    "http_proxy": NOWHERE,
    "ALL_PROXY": NOWHERE,
}


@pytest.mark.deep
@pytest.mark.parametrize("name", HOSTILE)
def test_the_environment_does_not_count_where_the_store_says_otherwise(
    name: str, seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule: credentials and endpoint come from one function (TABLES 1.15); the library uses no other source."""
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.delenv("no_proxy")
    monkeypatch.setenv(name, HOSTILE[name])
    table = table_on(seaweed)
    table.create()
    table.move(1)
    assert (table.open().number, table.others.version()) == (1, 1)


@pytest.mark.deep
def test_no_search_for_credentials_is_made_where_they_are_given(
    seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Rule: catalog and store options come from the spec alone, not from the machine's cloud (TABLES 1.15)."""
    monkeypatch.delenv("AWS_EC2_METADATA_DISABLED")
    table_on(seaweed).create()
    assert capfd.readouterr().err == ""


def test_credentials_of_the_aws_chain_are_taken_as_they_are_at_each_look(
    seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule: without a Connection it is the chain of our own store, anew at each open (TABLES 1.15)."""
    config = StoreConfig(f"s3://{seaweed.shared_bucket}/chain/{uuid4().hex}", seaweed.endpoint_url)
    for name, value in seaweed.environment().items():
        monkeypatch.setenv(name, value)
    table = DeltaTableUnderTest(open_store(config))
    table.create()
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "rotated-away")
    assert delta_location("totals", config).options["aws_secret_access_key"] == "rotated-away"
    with pytest.raises(EnvironmentUnusable) as raised:
        DeltaTableUnderTest(open_store(config)).format.open()
    assert_no_secret(raised.value, seaweed, "rotated-away")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    with wording.raises(EnvironmentUnusable):
        delta_location("totals", config)


def test_a_bucket_that_is_not_there_is_named_without_a_secret(seaweed: Seaweed) -> None:
    """Rule: what the library says goes through our own words, and no secret is among them (TABLES 1.15)."""
    table = table_on(seaweed, bucket="nobody-made-this")
    for call in (table.format.open, lambda: table.format.create(OWNER, SCHEMA), lambda: table.format.maintain(0)):
        with wording.raises(CheckpointError) as raised:
            call()
        assert_no_secret(raised.value, seaweed)


def test_a_response_that_quotes_secrets_is_reported_without_them() -> None:
    """Rule: servers quote keys and tokens in what they refuse; a place is shown without its options."""
    secrets = {"aws_access_key_id": "AKEY", "aws_secret_access_key": "SECRET", "aws_session_token": "TOKEN"}
    location = DeltaLocation("s3://bucket/table", {**secrets, "aws_region": "r"})
    answer = (
        "Kernel error\n  \x1b[31m↳\x1b[0m 403 Forbidden SECRET\n <?xml version='1.0'?><Error>"
        "<Code>InvalidToken</Code><AWSAccessKeyId>AKEY</AWSAccessKeyId><Token-0>TOKEN</Token-0></Error>"
    )
    assert parse_reason(location, OSError(answer)) == "Kernel error: 403 Forbidden *** InvalidToken"
    assert not any(secret in repr(location) for secret in secrets.values())


def assert_no_secret(error: CheckpointError, server: S3Server, *more: str) -> None:
    told = f"{error!r} {error.message} {error.hint} {error.details} {error.__cause__!r} {error.__context__!r}"
    assert not any(secret in told for secret in (server.access_key, server.secret_key, *more))
