"""The contract of an object store, as far as the protocol needs it.

It is here so that state, sources and sinks can refer to it without importing a store. `storage/` has two stores, a
local directory (`local/`) and S3 (`s3/`), and one conformance class (`tests/conformance/stores/object_store.py`) tests
both. Keys are relative to the store's root, use `/`, and are validated: no empty part, no `.` or `..`, no control
character, no leading `/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSequence
from dataclasses import dataclass, field
from typing import IO, Protocol

Names = MutableSequence[str]
"""Collects names that cannot be keys during a listing."""


@dataclass(frozen=True, slots=True)
class ObjectStat:
    """One object in a listing.

    Attributes:
        key: relative to the store's root.
        size: bytes.
        etag: the expected version. S3: the ETag without quotes; local: ``<size>-<mtime_ns>``.
        last_modified_ms: milliseconds since the epoch, UTC.
    """

    key: str
    size: int
    etag: str
    last_modified_ms: int


@dataclass(frozen=True, slots=True)
class Credentials:
    """S3 keys of a Connection. Never stored, shown or logged: only held in memory and in pickled tasks."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """How to reach a store. Picklable; includes credentials if the spec names a Connection.

    Attributes:
        url: ``file:///abs/dir`` or ``s3://bucket/prefix``: the store's root.
        endpoint_url: an S3 endpoint other than AWS, or None.
        region: S3 region.
        endpoint_origins: where `endpoint_url` comes from (environment variables or a Connection), for messages.
        conn_id: the Connection that supplies endpoint, region and credentials; None: the spec supplies them.
        credentials: of that Connection; None: the standard AWS chain of the process that opens the store.
    """

    url: str
    endpoint_url: str | None = None
    region: str = "us-east-1"
    endpoint_origins: tuple[str, ...] = field(default=(), compare=False)
    conn_id: str | None = field(default=None, compare=False)
    credentials: Credentials | None = field(default=None, repr=False)

    @property
    def endpoint(self) -> str:
        """The endpoint and its origin as text; empty for AWS and for a directory."""
        origin = f" (from {', '.join(self.endpoint_origins)})" if self.endpoint_origins else ""
        return f"{self.endpoint_url}{origin}" if self.endpoint_url else ""

    @property
    def is_local(self) -> bool:
        """Whether the store is a local directory."""
        return self.url.startswith("file:")


class ObjectStore(Protocol):
    """Objects by key, with one atomic primitive: create only if absent.

    Every method raises `StoreUnavailable` (as far as is known nothing changed), `EnvironmentUnusable` (missing bucket,
    wrong credentials, full or read-only disk: retrying is useless) or, for a missing object, `NotFound`.
    """

    config: StoreConfig

    def get(self, key: str) -> bytes:
        """Return the whole body. Raises NotFound."""

    def get_if_match(self, key: str, etag: str) -> bytes:
        """Return the body of exactly this version. Raises NotFound, or CommitConflict if the etag differs."""

    def get_range(self, key: str, etag: str, start: int, stop: int) -> bytes:
        """Return bytes [start, stop) of exactly this version, which has at least `stop`. Raises as `get_if_match`."""

    def stat(self, key: str) -> ObjectStat:
        """Return size, version and time of one object. Raises NotFound."""

    def put(self, key: str, body: bytes) -> ObjectStat:
        """Write unconditionally and durably. Readers see the old or the new body, never a part."""

    def create(self, key: str, body: bytes | IO[bytes]) -> ObjectStat:
        """Write only if the key is absent, in a single attempt (no client retries).

        Args:
            body: a file is read from start to end and never held in memory.
        Raises:
            CommitConflict: the key exists (412, 409), *possibly from our own lost attempt*: read back.
            CommitOutcomeUnknown: no answer, or an inconclusive one: read back.
        """

    def list(
        self,
        prefix: str,
        *,
        start_after: str = "",
        limit: int | None = None,
        invalid_names: Names | None = None,
    ) -> Iterator[ObjectStat]:
        """Yield the objects whose key starts with prefix, in ascending byte order of keys, strongly consistent.

        Args:
            invalid_names: receives the names that cannot be keys, as `os.fsdecode` decodes them; directories end in
                ``/``. None: such a name raises EnvironmentUnusable. S3 never adds any: it lists all objects.
        """

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects. Missing keys are ignored."""

    def clock_ms(self) -> int:
        """Return the store's own clock (S3: the Date of its replies), milliseconds since the epoch."""
