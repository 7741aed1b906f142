"""The contract of an object store, as far as the protocol needs one.

A contract only: it lives here so that state, sources and sinks can name it without importing a store.
Two stores exist in `storage/`: a local directory (`local/`) and S3 (`s3/`). One conformance class
(`tests/conformance/stores/object_store.py`) tests both. Keys are relative to the store's root, use `/`, and are
validated: no empty part, no `.` or `..`, no control character, no leading `/`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableSequence
from dataclasses import dataclass, field
from typing import IO, Protocol

Names = MutableSequence[str]
"""Where a listing puts names that can be no key."""


@dataclass(frozen=True, slots=True)
class ObjectStat:
    """What a listing says of one object.

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
    """Keys of S3 that a Connection has. Never stored, shown or logged: they live in memory, and in pickled tasks."""

    access_key: str = field(repr=False)
    secret_key: str = field(repr=False)
    session_token: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """How to reach a store; picklable, with the credentials of a Connection where the spec names one.

    Attributes:
        url: ``file:///abs/dir`` or ``s3://bucket/prefix``: the store's root.
        endpoint_url: an S3 endpoint other than AWS, or None.
        region: S3 region.
        endpoint_origins: what `endpoint_url` was made from, environment variables or a Connection, for messages.
        conn_id: of the Connection that endpoint, region and credentials are from; None: it is the spec's.
        credentials: of that Connection; None: the standard AWS chain of whichever process opens the store.
    """

    url: str
    endpoint_url: str | None = None
    region: str = "us-east-1"
    endpoint_origins: tuple[str, ...] = field(default=(), compare=False)
    conn_id: str | None = field(default=None, compare=False)
    credentials: Credentials | None = field(default=None, repr=False)

    @property
    def endpoint(self) -> str:
        """The endpoint in words, and where it was taken from; empty for AWS and for a directory."""
        origin = f" (from {', '.join(self.endpoint_origins)})" if self.endpoint_origins else ""
        return f"{self.endpoint_url}{origin}" if self.endpoint_url else ""

    @property
    def is_local(self) -> bool:
        """Whether it is a directory."""
        return self.url.startswith("file:")


class ObjectStore(Protocol):
    """Objects by key, with one atomic primitive: create only if absent.

    Every method raises `StoreUnavailable` (nothing known to have changed), `EnvironmentUnusable` (missing bucket,
    wrong credentials, full or read-only disk: retrying is useless) or, for a missing object, `NotFound`.
    """

    config: StoreConfig

    def get(self, key: str) -> bytes:
        """Return the whole body. Raises NotFound."""

    def get_if_match(self, key: str, etag: str) -> bytes:
        """Return the body of exactly this version. Raises NotFound, or CommitConflict when the etag differs."""

    def get_range(self, key: str, etag: str, start: int, stop: int) -> bytes:
        """Return bytes [start, stop) of exactly this version; it has that many. Raises as `get_if_match`."""

    def stat(self, key: str) -> ObjectStat:
        """Raises NotFound."""

    def put(self, key: str, body: bytes) -> ObjectStat:
        """Write unconditionally and durably; a reader sees the old body or the new one, never a part."""

    def create(self, key: str, body: bytes | IO[bytes]) -> ObjectStat:
        """Write only if the key is absent, in a single attempt (no client retries).

        Args:
            body: a file is read from its beginning to its end, and not held in memory.
        Raises:
            CommitConflict: the key exists (412, 409): *possibly by our own lost attempt*; read back.
            CommitOutcomeUnknown: no answer, or an answer that does not say: read back.
        """

    def list(
        self,
        prefix: str,
        *,
        start_after: str = "",
        limit: int | None = None,
        invalid_names: Names | None = None,
    ) -> Iterator[ObjectStat]:
        """Objects whose key starts with prefix, in ascending byte order of keys, strongly consistent.

        Args:
            invalid_names: receives the names that cannot be keys, as `os.fsdecode` decodes them; directories end in
                ``/``. None: such a name raises EnvironmentUnusable. S3 never adds any: it lists all objects.
        """

    def delete(self, keys: Iterable[str]) -> None:
        """Delete; absent keys are fine."""

    def clock_ms(self) -> int:
        """Return the store's own clock (S3: the Date of its replies), milliseconds since the epoch."""
