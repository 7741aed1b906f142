"""Read schemas of a Confluent-style registry, for the messages of one landing."""

from __future__ import annotations

import base64
import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pyarrow as pa
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from milepost.errors import EnvironmentUnusable, InvalidRequest, SourceUnreachable
from milepost.protocol.landed import Identity, Position
from milepost.sources.landed.contract import (
    NOTHING_LANDED,
    LandedSource,
    PartRows,
    Pull,
    Reached,
    ResumableSource,
    Resumption,
    RewindableSource,
)
from milepost.sources.landed.registry_schemas import RegistrySchema, schema_ids, schema_key

if TYPE_CHECKING:
    from requests import Response, Session

_LOG = logging.getLogger(__name__)
TIMEOUT_S, TRIES, MAX_WAIT_S = 10, 3, 2.0
"""Of one request: its timeout, its number of tries, and the longest wait between two of them."""

MAX_UNKNOWN_IDS = 1_000
"""A landing fails if the registry lacks more schemas: the messages were not written with it."""

_LOGIN = re.compile(r"//([^/@]*)@")
_PROTOBUF = "PROTOBUF"
_OK, _NOT_FOUND, _TOO_MANY, _FAILED = 200, 404, 429, 500
_REFUSED = (401, 403)
_UNKNOWN_SCHEMA = (40403, 40401, 40402)
"""Error codes for an unknown schema, subject and version."""


@dataclass(frozen=True, slots=True)
class _Answer:
    """One schema. A reference is the name by which it is used, its subject and its version."""

    kind: str
    schema: str
    references: tuple[tuple[str, str, int], ...]


@dataclass
class SchemaRegistry:
    """One registry, opened for one landing. Connects at the first call.

    Attributes:
        source: name of the source, for messages. kind: AVRO or PROTOBUF.
        ca_location: file of CA certificates; None: those of the library.
    """

    source: str
    kind: str
    url: str
    username: str | None = None
    password: str | None = None
    ca_location: str | None = None
    _session: Session | None = field(default=None, init=False)
    _known: dict[int, bytes | None] = field(default_factory=dict, init=False)

    def schemas(self, ids: list[int]) -> dict[bytes, bytes]:
        """Return the metadata that has the schemas with these ids. A schema that the registry lacks is omitted.

        Raises: SourceUnreachable, EnvironmentUnusable, InvalidRequest.
        """
        for schema_id in ids:
            if schema_id not in self._known:
                self._known[schema_id] = self._fetch(schema_id)
        found = {schema_id: self._known[schema_id] for schema_id in ids}
        return {schema_key(schema_id): body for schema_id, body in found.items() if body is not None}

    def _fetch(self, schema_id: int) -> bytes | None:
        answer = self._get(f"schemas/ids/{schema_id}", f"schema {schema_id}")
        if answer is None:
            unknown = sum(body is None for body in self._known.values()) + 1
            _LOG.warning("source %s: the schema registry has no schema %d", self.source, schema_id)
            if unknown > MAX_UNKNOWN_IDS:
                raise self._invalid(
                    f"has none of {unknown} schemas that messages name",
                    "correct `registry`. If the messages have no schema ids, read them with another `value`",
                )
            return None
        references: dict[str, str] = {}
        self._add_references(answer, references, schema_id)
        return RegistrySchema(answer.kind, answer.schema, tuple(references.items())).encoded()

    def _add_references(self, answer: _Answer, found: dict[str, str], schema_id: int) -> None:
        """Add the schemas that a schema refers to, by subject and version. Their own references come first."""
        for name, subject, version in answer.references:
            if name in found:
                continue
            what = f"version {version} of {subject}, which schema {schema_id} refers to"
            referred = self._get(f"subjects/{quote(subject, safe='')}/versions/{version}?deleted=true", what)
            if referred is None:
                raise self._invalid(f"has no {what}", "register it again")
            self._add_references(referred, found, schema_id)
            found[name] = referred.schema

    def _get(self, path: str, what: str) -> _Answer | None:
        """Return a schema; None: the registry does not have it."""
        import requests

        serialized = "" if self.kind != _PROTOBUF else f"{'&' if '?' in path else '?'}format=serialized"
        retrying = Retrying(
            retry=retry_if_exception_type(SourceUnreachable),
            stop=stop_after_attempt(TRIES),
            wait=wait_random_exponential(max=MAX_WAIT_S),
            reraise=True,
        )
        try:
            for attempt in retrying:
                with attempt:
                    return self._answer(f"{self.url.rstrip('/')}/{path}{serialized}", what)
        except (requests.RequestException, OSError, ValueError) as error:
            raise self._invalid(f"cannot be queried: {error}", "correct `registry`") from error
        raise AssertionError("tenacity ends with an answer or an error")

    def _answer(self, url: str, what: str) -> _Answer | None:
        import requests

        try:
            response = self._opened().get(url, timeout=TIMEOUT_S, allow_redirects=False)
        except (requests.ConnectionError, requests.Timeout) as error:
            raise self._unreachable(f"gave no answer: {error}") from error
        status = response.status_code
        if status == _NOT_FOUND and _error_code(response) in _UNKNOWN_SCHEMA:
            return None
        if status in _REFUSED:
            raise EnvironmentUnusable(
                self._text(f"refused the login, or the right to read {what} (HTTP status {status})"),
                hint="correct `username` and `password` of `registry`, or give the user the right to read schemas, "
                "then land again",
                source=self.source,
            )
        if status == _TOO_MANY or status >= _FAILED:
            raise self._unreachable(f"failed (HTTP status {status})")
        try:
            if status != _OK:
                raise ValueError(f"HTTP status {status}")
            return _parsed(response.json(), is_serialized=self.kind == _PROTOBUF)
        except (ValueError, LookupError, TypeError) as error:
            hint = "correct the `url` of `registry`"
            raise self._invalid(f"gave an answer that is not a registry's: {str(error)[:200]}", hint) from error

    def _opened(self) -> Session:
        from requests import Session
        from requests.auth import HTTPBasicAuth

        if self._session is None:
            self._session = Session()
            self._session.headers["Accept"] = "application/vnd.schemaregistry.v1+json, application/json"
            if self.username is not None:
                self._session.auth = HTTPBasicAuth(self.username.encode(), (self.password or "").encode())
            if self.ca_location is not None:
                self._session.verify = self.ca_location
        return self._session

    def _unreachable(self, what: str) -> SourceUnreachable:
        return SourceUnreachable(
            self._text(what),
            hint="check that the registry runs and that this machine reaches it, then land again",
            source=self.source,
        )

    def _invalid(self, what: str, hint: str) -> InvalidRequest:
        return InvalidRequest(self._text(what), hint=f"{hint}, then land again", source=self.source)

    def _text(self, what: str) -> str:
        login = _LOGIN.search(self.url)
        for secret in (self.password, None if login is None else login[1].partition(":")[2]):
            if secret:
                what = what.replace(secret, "***")
        return f"source {self.source}: the schema registry at {_LOGIN.sub('//', self.url)} {what}. {NOTHING_LANDED}"


def _parsed(value: Any, *, is_serialized: bool) -> _Answer:
    """Return a schema as the API has it. Raises LookupError, TypeError, ValueError: it is none.

    Args:
        is_serialized: whether a descriptor of a Protobuf file was requested, in base64, and not its text.
    """
    if not isinstance(value, dict):
        raise TypeError("it is not a JSON object")
    references = tuple(
        (str(item["name"]), str(item["subject"]), int(item["version"])) for item in value.get("references") or ()
    )
    schema = value["schema"]
    if not isinstance(schema, str):
        raise TypeError("`schema` is not a text")
    kind = str(value.get("schemaType") or "AVRO")
    if is_serialized and kind == _PROTOBUF:
        try:
            base64.b64decode(schema, validate=True)
        except ValueError as error:
            raise ValueError("it does not know `format=serialized`, which Protobuf needs") from error
    return _Answer(kind, schema, references)


def _error_code(response: Response) -> object:
    try:
        value = response.json()
    except ValueError:
        return None
    return value.get("error_code") if isinstance(value, dict) else None


@dataclass
class WithSchemas:
    """A source of messages whose objects also carry the schemas that the values were written with."""

    source: LandedSource
    registry: SchemaRegistry

    def identity(self) -> Identity:
        return self.source.identity()

    def initial_position(self) -> Position:
        return self.source.initial_position()

    def next_pull(self, position: Position) -> Pull | None:
        return self.source.next_pull(position)

    def read(self, split: Any) -> Iterator[pa.RecordBatch | PartRows | Reached]:
        for item in self.source.read(split):
            if isinstance(item, Reached):
                yield item
            elif isinstance(item, PartRows):
                yield PartRows(item.part, self._with_schemas(item.rows))
            else:
                yield self._with_schemas(item)

    def _with_schemas(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        return rows.replace_schema_metadata(self.registry.schemas(schema_ids(rows["value"])))

    def commit(self, end: Position) -> None:
        self.source.commit(end)

    def resume_position(self, where: str | int, position: Position) -> Resumption:
        assert isinstance(self.source, ResumableSource), "messages are of Kafka"
        return self.source.resume_position(where, position)

    def newest_true(self, ends: Iterable[Position]) -> int | None:
        assert isinstance(self.source, RewindableSource), "messages are of Kafka"
        return self.source.newest_true(ends)
