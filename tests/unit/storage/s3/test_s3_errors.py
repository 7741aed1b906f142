"""The error that each S3 reply maps to. No message quotes a secret."""

from __future__ import annotations

import pytest
from botocore import exceptions as boto

from milepost.errors import (
    CheckpointError,
    CommitConflict,
    CommitOutcomeUnknown,
    EnvironmentUnusable,
    InvalidRequest,
    NotFound,
    StoreUnavailable,
)
from milepost.protocol.records.object_store import StoreConfig
from milepost.storage.open import open_store
from milepost.storage.s3.errors import S3Errors
from milepost_testkit import wording
from milepost_testkit.processes.processes import free_ports

ERRORS = S3Errors(StoreConfig("s3://bucket/job", "http://s3.example:9000"), "bucket")


def reply(status: int, code: str) -> boto.ClientError:
    body = {
        "Error": {"Code": code, "Message": "key AKIASECRET signature 0123456789", "AWSAccessKeyId": "AKIASECRET"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }
    return boto.ClientError(body, "PutObject")


URL = {"endpoint_url": "http://s3.example:9000"}
NO_REPLY = [
    boto.ReadTimeoutError(**URL),
    boto.ConnectionClosedError(**URL),
    boto.HTTPClientError(error="reset"),
    boto.SSLError(**URL, error="[SSL: DECRYPTION_FAILED_OR_BAD_RECORD_MAC] decryption failed or bad record mac"),
]
NO_TLS = boto.SSLError(**URL, error="[SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate")
NOT_SENT = [boto.EndpointConnectionError(**URL), boto.ConnectTimeoutError(**URL)]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (reply(404, "NoSuchKey"), NotFound),
        (reply(404, "NoSuchBucket"), EnvironmentUnusable),
        (reply(412, "PreconditionFailed"), CommitConflict),
        (reply(403, "AccessDenied"), EnvironmentUnusable),
        (reply(403, "403"), EnvironmentUnusable),
        (reply(403, "InvalidAccessKeyId"), EnvironmentUnusable),
        (reply(403, "SignatureDoesNotMatch"), EnvironmentUnusable),
        (reply(400, "ExpiredToken"), EnvironmentUnusable),
        (reply(403, "RequestTimeTooSkewed"), EnvironmentUnusable),
        (reply(301, "PermanentRedirect"), EnvironmentUnusable),
        (reply(400, "InvalidBucketName"), EnvironmentUnusable),
        (reply(501, "NotImplemented"), EnvironmentUnusable),
        (reply(507, "InsufficientStorage"), EnvironmentUnusable),
        (reply(500, "InternalError"), StoreUnavailable),
        (reply(503, "SlowDown"), StoreUnavailable),
        (reply(429, "TooManyRequests"), StoreUnavailable),
        (reply(408, "RequestTimeout"), StoreUnavailable),
        (reply(400, "RequestTimeout"), StoreUnavailable),
        (reply(400, "BadDigest"), StoreUnavailable),
        (boto.NoCredentialsError(), EnvironmentUnusable),
        (boto.PartialCredentialsError(provider="env", cred_var="AWS_SECRET_ACCESS_KEY"), EnvironmentUnusable),
        (boto.ProfileNotFound(profile="p"), EnvironmentUnusable),
        (NO_TLS, EnvironmentUnusable),
        (boto.ParamValidationError(report="Bucket"), InvalidRequest),
        *[(error, StoreUnavailable) for error in (*NO_REPLY, *NOT_SENT)],
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_request_that_is_safe_to_repeat_fails_as_what_to_do_about_it(error, expected) -> None:
    made = ERRORS.of(error, "object 'k' could not be read", "k")
    assert type(made) is expected
    assert_readable(made)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (reply(412, "PreconditionFailed"), CommitConflict),
        (reply(409, "ConditionalRequestConflict"), CommitConflict),
        *[(error, CommitOutcomeUnknown) for error in NO_REPLY],
        *[(reply(status, "Fault"), CommitOutcomeUnknown) for status in (408, 429, 500, 502, 503, 504)],
        *[(error, StoreUnavailable) for error in NOT_SENT],
        (reply(400, "RequestTimeout"), CommitOutcomeUnknown),
        (reply(404, "NoSuchKey"), CommitOutcomeUnknown),
        (boto.NoCredentialsError(), EnvironmentUnusable),
        (NO_TLS, EnvironmentUnusable),
        (reply(403, "AccessDenied"), EnvironmentUnusable),
        (reply(404, "NoSuchBucket"), EnvironmentUnusable),
        (reply(501, "NotImplemented"), EnvironmentUnusable),
        (reply(400, "InvalidArgument"), EnvironmentUnusable),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_create_is_refused_only_by_a_definite_refusal_and_otherwise_unknown(error, expected) -> None:
    """I1: landed, did not land, or unknown."""
    made = ERRORS.of_create(error, "manifest/1")
    assert type(made) is expected
    assert_readable(made)


def test_missing_credentials_lead_to_the_doctor_that_probes_the_store() -> None:
    """Without a job `milepost doctor` probes no store."""
    error = ERRORS.of(boto.NoCredentialsError(), "object 'k' could not be read", "k")
    assert "`milepost doctor JOB`" in str(error.hint)
    wording.describes(error)


def test_refused_deletes_are_an_error_that_names_one() -> None:
    denied = [{"Key": "job/a", "Code": "AccessDenied", "Message": "no"}]
    assert type(ERRORS.of_refused_deletes(denied, 3)) is EnvironmentUnusable
    busy = ERRORS.of_refused_deletes([{"Key": "job/a", "Code": "InternalError"}], 3)
    assert type(busy) is StoreUnavailable
    assert "1 of 3 objects" in busy.message
    assert "'job/a'" in busy.message


def test_an_endpoint_where_nothing_listens_is_unavailable_and_a_create_there_did_not_land(monkeypatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    store = open_store(StoreConfig("s3://bucket/job", f"http://127.0.0.1:{free_ports(1)[0]}"))
    with wording.raises(StoreUnavailable):
        store.create("k", b"")


@pytest.mark.parametrize("endpoint", ["not a url", "127.0.0.1:9000"])
def test_an_endpoint_that_is_no_url_is_an_environment_fault(monkeypatch, endpoint) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    with wording.raises(EnvironmentUnusable):
        open_store(StoreConfig("s3://bucket/job", endpoint)).get("k")


def test_an_unknown_profile_is_an_environment_fault(monkeypatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody-made-this")
    with wording.raises(EnvironmentUnusable):
        open_store(StoreConfig("s3://bucket/job", "http://127.0.0.1:9")).get("k")


def assert_readable(error: CheckpointError) -> None:
    text = f"{error.message} {error.hint} {error.details}"
    assert "SECRET" not in text.replace("AWS_SECRET_ACCESS_KEY", "")
    assert "0123456789" not in text
    assert "\n" not in text
    assert "bucket" in text
    if not isinstance(error, (NotFound, CommitConflict)):
        assert "http://s3.example:9000" in text
