"""S3 and compatible stores, through boto3.

Two clients: one that retries requests that are safe to repeat, and one that never retries, for conditional creates:
a retry after a lost reply would answer 412 for our own success (I1).
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Hashable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache, lru_cache
from itertools import islice
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

import boto3.session
import botocore.session
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.handlers import add_expect_header
from botocore.loaders import Loader, create_loader
from botocore.utils import determine_content_length, get_environ_proxies, parse_timestamp
from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential
from urllib3.exceptions import HTTPError

from milepost.errors import CheckpointError, EnvironmentUnusable, StoreUnavailable
from milepost.protocol.records import Credentials, Names, ObjectStat, StoreConfig, cached_property
from milepost.storage.keys import is_loopback, s3_root, validate_key, validate_prefix
from milepost.storage.requests import count_requests
from milepost.storage.s3.errors import S3Errors, http_status
from milepost.storage.s3.long_waits import long_waits

_FAULTS = (BotoCoreError, ClientError)
_DELETE_BATCH = 1000
_LIST_PAGE = 1000
_MAX_CONNECTIONS = 32
_CONNECT_TIMEOUT_S = 5
_READ_TIMEOUT_S = 60
_ATTEMPTS = 4
_LARGE_BODY_BYTES = 1 << 20
_DATE_VALID_S = 5.0
"""For this long, the clock continues from the Date of the last reply, without a request of its own."""
_MAX_CLIENTS = 32
"""Limit of cached clients. A long-lived process sees many credentials."""


@cache
def _service_models() -> Loader:
    """Parse the description of S3 once per process: it is most of the cost of a client."""
    return create_loader()


def read_service_model() -> None:
    """Load the description of S3 before the first client, without a connection or a search for credentials."""
    credentials = Credentials("none", "none", None)
    aws_session(credentials).client("s3", region_name="us-east-1", endpoint_url="http://127.0.0.1:1")


def aws_session(credentials: Credentials | None) -> boto3.session.Session:
    """Return a session with these credentials; None: those of the standard AWS chain."""
    session = botocore.session.get_session()
    session.register_component("data_loader", _service_models())
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=parse_time)
    if credentials is not None:
        session.set_credentials(credentials.access_key, credentials.secret_key, credentials.session_token)
    return boto3.session.Session(botocore_session=session)


def parse_time(value: Any) -> datetime:
    """Parse a time in a reply. For the format of listings, this is ten times as fast as the AWS library."""
    if isinstance(value, str) and value[4:5] == "-" and value.endswith("Z"):
        with suppress(ValueError):
            return datetime.fromisoformat(value)
    return parse_timestamp(value)


_making = threading.Lock()
"""Held while a client is looked up or created, so that concurrent threads create only one."""


@lru_cache(_MAX_CLIENTS)
def _shared_client(process: int, attempts: int, reached: StoreConfig, chain: Hashable) -> Any:
    """Return the client shared by all stores of a process with the same access, and so its connections.

    Args:
        process: its id: a client must not cross a fork, which would share connections with the parent.
        reached: without the URL of a store. chain: what `_chain` returns; None: the credentials of `reached`.
    """
    endpoint = reached.endpoint_url or None  # an unset ${env:…:-} is ""
    options: dict[str, Any] = {}
    if endpoint is not None:
        options["s3"] = {"addressing_style": "path"}
        if is_loopback(endpoint):
            options["proxies"] = {}  # HTTP_PROXY of the environment cannot lead to this machine's loopback
    client = aws_session(reached.credentials).client(
        "s3",
        endpoint_url=endpoint,
        region_name=reached.region,
        config=Config(
            connect_timeout=_CONNECT_TIMEOUT_S,
            read_timeout=_READ_TIMEOUT_S,
            max_pool_connections=_MAX_CONNECTIONS,
            retries={"mode": "standard", "total_max_attempts": attempts},
            tcp_keepalive=True,
            **options,
        ),
    )
    client.meta.events.unregister("before-call.s3", add_expect_header)
    client.meta.events.register("before-call.s3", _ask_before_a_large_body)
    count_requests(client)
    long_waits(process).observe(client)
    return client


def _ask_before_a_large_body(model: Any, params: dict[str, Any], **_: object) -> None:
    """Make a PUT wait for the server's 100 only for large bodies: the wait costs a round trip."""
    body = params.get("body")
    if hasattr(body, "read") and (determine_content_length(body) or 0) > _LARGE_BODY_BYTES:
        add_expect_header(model, params)


def _chain() -> Hashable:
    """Return the current inputs of the standard AWS credential chain. Roles and SSO renew themselves."""
    environment = sorted((name, value) for name, value in os.environ.items() if name.startswith("AWS_"))
    changed = []
    for variable, usual in (("AWS_SHARED_CREDENTIALS_FILE", "credentials"), ("AWS_CONFIG_FILE", "config")):
        with suppress(OSError, RuntimeError):
            changed.append(Path(os.environ.get(variable) or f"~/.aws/{usual}").expanduser().stat().st_mtime_ns)
    return tuple(environment), tuple(changed)


class _BrokenBody(StoreUnavailable):
    """A reply that broke off inside its body, which botocore itself does not retry."""


class S3Store:
    """Objects below ``s3://bucket/prefix``. Pickles as its configuration; clients are made per process, on first use.

    Credentials come from the standard AWS chain, which are never stored, logged or pickled here, or from the
    configuration, if a Connection provides them.
    """

    def __init__(self, config: StoreConfig) -> None:
        root = s3_root(config.url)
        self.config = config
        self._bucket = root.bucket
        self._prefix = f"{root.prefix}/" if root.prefix else ""
        self._errors = S3Errors(config, root.bucket)
        self._last_date = -_DATE_VALID_S, 0
        """When the last reply with a Date arrived, by the monotonic clock in s, and that Date in ms."""

    def __reduce__(self) -> tuple[type[S3Store], tuple[StoreConfig]]:
        return (S3Store, (self.config,))

    def __repr__(self) -> str:
        return f"S3Store({self.config.url!r})"

    @property
    def route(self) -> tuple[str, str]:
        """The endpoint, configured or found by the AWS library, and its proxy; "" without a proxy.

        Raises:
            EnvironmentUnusable: no client can be created.
        """
        endpoint = str(self._client().meta.endpoint_url)
        direct = bool(self.config.endpoint_url) and is_loopback(endpoint)
        proxies = {} if direct else get_environ_proxies(endpoint)
        return endpoint, proxies.get(urlsplit(endpoint).scheme, "")

    def get(self, key: str) -> bytes:
        return self._read(key, {})

    def get_if_match(self, key: str, etag: str) -> bytes:
        return self._read(key, {"IfMatch": f'"{etag}"'})

    def get_range(self, key: str, etag: str, start: int, stop: int) -> bytes:
        body = self._read(key, {"IfMatch": f'"{etag}"', "Range": f"bytes={start}-{stop - 1}"})
        if len(body) == stop - start:
            return body
        raise EnvironmentUnusable(
            f"{self._errors.where} answered {len(body)} bytes of object {key!r} when it was asked for {stop - start}. "
            "Nothing was changed.",
            hint="use a store that honours the Range of a GET",
            key=key,
        )

    def stat(self, key: str) -> ObjectStat:
        name, client = self._name(key), self._client()
        try:
            reply = client.head_object(Bucket=self._bucket, Key=name)
        except _FAULTS as error:
            raise self._unread(error, key) from error
        self._note_date(reply)
        modified_ms = int(reply["LastModified"].timestamp() * 1000)
        return ObjectStat(key, reply["ContentLength"], reply["ETag"].strip('"'), modified_ms)

    def put(self, key: str, body: bytes) -> ObjectStat:
        name, client = self._name(key), self._client()
        try:
            reply = client.put_object(Bucket=self._bucket, Key=name, Body=body)
        except _FAULTS as error:
            raise self._errors.of(error, f"object {key!r} ({len(body)} bytes) could not be written", key) from error
        return self._written(key, len(body), reply)

    def create(self, key: str, body: bytes | IO[bytes]) -> ObjectStat:
        name, client = self._name(key), self._client(single_attempt=True)
        if not isinstance(body, bytes):
            body.seek(0)
        size = determine_content_length(body) or 0  # of what is ahead: of a file that was sent, nothing is
        try:
            reply = client.put_object(Bucket=self._bucket, Key=name, Body=body, IfNoneMatch="*")
        except _FAULTS as error:
            raise self._errors.of_create(error, key) from error
        return self._written(key, size, reply)

    def list(
        self,
        prefix: str,
        *,
        start_after: str = "",
        limit: int | None = None,
        invalid_names: Names | None = None,
    ) -> Iterator[ObjectStat]:
        validate_prefix(prefix)
        if limit is not None and limit <= 0:
            return iter(())
        page_size = _LIST_PAGE if limit is None else min(limit, _LIST_PAGE)
        if not self.config.endpoint_url:
            return islice(self._pages(prefix, start_after, page_size), limit)
        return islice(self._pages_in_byte_order(prefix, start_after, limit, page_size), limit)

    def delete(self, keys: Iterable[str]) -> None:
        names = (self._name(key) for key in keys)
        while batch := tuple(islice(names, _DELETE_BATCH)):
            objects = [{"Key": name} for name in batch]
            try:
                reply = self._client().delete_objects(Bucket=self._bucket, Delete={"Objects": objects, "Quiet": True})
            except _FAULTS as error:
                raise self._errors.of(error, f"{len(batch)} objects could not be deleted", None) from error
            refused = [entry for entry in reply.get("Errors", ()) if entry.get("Code") != "NoSuchKey"]
            if refused:
                raise self._errors.of_refused_deletes(refused, len(batch))

    def clock_ms(self) -> int:
        """Return the Date of the last reply plus the whole seconds since then. It is never ahead of the store's clock.

        A request is sent if the last Date is too old.
        """
        noted_s, date_ms = self._last_date
        passed_s = time.monotonic() - noted_s
        if passed_s < _DATE_VALID_S:
            return (date_ms + int(passed_s * 1000)) // 1000 * 1000
        return self._date_ms(self._head_bucket())

    # -- requests -----------------------------------------------------------------------------------------------

    def _head_bucket(self) -> dict[str, Any]:
        try:
            reply: dict[str, Any] = self._client().head_bucket(Bucket=self._bucket)
        except _FAULTS as error:
            if http_status(error) == 404:
                raise self._errors.missing_bucket() from error
            raise self._errors.of(error, "its clock could not be read", None) from error
        return reply

    @retry(
        retry=retry_if_exception_type(_BrokenBody),
        stop=stop_after_attempt(3),
        wait=wait_random_exponential(multiplier=0.1, max=2),
        reraise=True,
    )
    def _read(self, key: str, condition: dict[str, str]) -> bytes:
        name, client = self._name(key), self._client()
        try:
            reply = client.get_object(Bucket=self._bucket, Key=name, **condition)
        except _FAULTS as error:
            raise self._unread(error, key) from error
        self._note_date(reply)
        try:
            with long_waits(os.getpid()).reading_body(f"s3://{self._bucket}/{name}"):
                body: bytes = reply["Body"].read()
        except (BotoCoreError, HTTPError, OSError) as error:
            raise _BrokenBody(
                f"object {key!r} could not be read from {self._errors.where}: its body broke off "
                f"({type(error).__name__}). Nothing was changed.",
                hint="try again",
                key=key,
            ) from error
        return body

    def _unread(self, error: Exception, key: str) -> CheckpointError:
        if http_status(error) == 404:
            # A HEAD's 404 does not say what is missing, and SeaweedFS says NoSuchKey for a GET from no bucket:
            # this raises when it is the bucket.
            self._head_bucket()
            return self._errors.absent(key)
        return self._errors.of(error, f"object {key!r} could not be read", key)

    def _pages_in_byte_order(
        self, prefix: str, start_after: str, limit: int | None, page_size: int
    ) -> Iterator[ObjectStat]:
        """List in the order of AWS, also where the server uses another.

        SeaweedFS walks directories, so ``a/b`` comes before ``a-b``, and its StartAfter skips in that order. Both
        orders agree as long as no key has a further ``/``, so reading the head of the manifest still costs one LIST of
        one key.
        """
        if limit is not None and not start_after:
            first = [*islice(self._pages(prefix, "", page_size), limit)]
            if not any("/" in stat.key[len(prefix) :] for stat in first):
                yield from first
                return
        after = start_after.encode()
        wanted = (stat for stat in self._pages(prefix, "", _LIST_PAGE) if stat.key.encode() > after)
        yield from sorted(wanted, key=lambda stat: stat.key.encode())

    def _pages(self, prefix: str, start_after: str, page_size: int) -> Iterator[ObjectStat]:
        request: dict[str, Any] = {"Bucket": self._bucket, "Prefix": self._prefix + prefix, "MaxKeys": page_size}
        if start_after:
            request["StartAfter"] = self._prefix + start_after
        while True:
            try:
                reply = self._client().list_objects_v2(**request)
            except _FAULTS as error:
                raise self._errors.of(error, f"objects below {prefix!r} could not be listed", None) from error
            self._note_date(reply)
            for entry in reply.get("Contents", ()):
                modified_ms = int(entry["LastModified"].timestamp() * 1000)
                key = entry["Key"].removeprefix(self._prefix)
                yield ObjectStat(key, entry["Size"], entry["ETag"].strip('"'), modified_ms)
            if not reply.get("IsTruncated"):
                return
            request["ContinuationToken"] = reply["NextContinuationToken"]

    def _name(self, key: str) -> str:
        return validate_key(self._prefix + validate_key(key))

    def _written(self, key: str, size: int, reply: dict[str, Any]) -> ObjectStat:
        return ObjectStat(key, size, reply["ETag"].strip('"'), self._date_ms(reply))

    def _date_ms(self, reply: dict[str, Any]) -> int:
        noted_s, date = time.monotonic(), reply["ResponseMetadata"]["HTTPHeaders"].get("date")
        try:
            parse_time = parsedate_to_datetime(date)
        except (TypeError, ValueError) as error:
            raise self._errors.missing_date(date) from error
        date_ms = int(parse_time.astimezone(UTC).timestamp()) * 1000
        self._last_date = noted_s, date_ms
        return date_ms

    def _note_date(self, reply: dict[str, Any]) -> None:
        """Record the Date of any reply. A reply without one is ignored."""
        with suppress(EnvironmentUnusable):
            self._date_ms(reply)

    # -- clients ------------------------------------------------------------------------------------------------

    @cached_property
    def _reached(self) -> tuple[StoreConfig, Hashable]:
        """The configuration and credential source that determine the client, fixed when the store is first used."""
        return replace(self.config, url=""), None if self.config.credentials is not None else _chain()

    def _client(self, *, single_attempt: bool = False) -> Any:
        attempts = 1 if single_attempt else _ATTEMPTS
        try:
            with _making:
                return _shared_client(os.getpid(), attempts, *self._reached)
        except (BotoCoreError, ValueError) as error:
            raise self._errors.of_client(error) from error
