"""Open Iceberg catalogs with the options of the spec and nothing else.

pyiceberg's `load_catalog` merges options from the home directory and the environment by the catalog's name. So the
catalog class is constructed directly. Metadata files go through the object store (`file_io.py`), so the catalog holds
no storage credentials.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from pyiceberg.catalog import BOTOCORE_SESSION, Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.rest.auth import AuthManager
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io import PY_IO_IMPL, FileIO
from pyiceberg.typedef import EMPTY_DICT, Properties
from requests import Session

from milepost.errors import InvalidRequest
from milepost.jobspec.job import SIGNED, is_on_aws
from milepost.protocol.records import ObjectStore, StoreConfig
from milepost.storage import is_loopback
from milepost.tables.iceberg.file_io import OPEN_AT, STORE, ReaderFileIO, StoreFileIO, file_io

_TIMEOUTS_S = (5, 60)
"""To connect, and between two bytes of an answer. pyiceberg has no timeout by default."""

_SECRET_OPTIONS = ("token", "credential")


class CatalogKind(Enum):
    """REST: a server of Iceberg's protocol. SQL: two tables in SQLite or Postgres. GLUE: AWS Glue."""

    REST = "rest"
    SQL = "sql"
    GLUE = "glue"


_OPTIONS = {
    CatalogKind.REST: frozenset(
        {"warehouse", "prefix", "token", "credential", "oauth2-server-uri", "scope", "audience", "resource",
         SIGNED, "rest.signing-region", "rest.signing-name"}
    ),
    CatalogKind.SQL: frozenset({"warehouse"}),
    CatalogKind.GLUE: frozenset({"client.region", "glue.id"}),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class CatalogConfig:
    """A catalog and a table in it, from a sink's spec with its secrets resolved.

    Attributes:
        uri: of the server, or an SQLAlchemy URL of the database. "": AWS's own server of Glue.
        table: namespaces and name, at least two parts.
        name: of the catalog. In a SQL catalog it is part of the table's key, so other engines must use the same name.
        options: further options, as Iceberg clients name them.
        spec_key: where the spec has the catalog, for messages.
    """

    kind: CatalogKind
    uri: str = field(repr=False)
    table: tuple[str, ...]
    name: str = "milepost"
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    spec_key: str = "sinks[].catalog"

    def __post_init__(self) -> None:
        unknown = sorted(set(self.options) - _OPTIONS[self.kind])
        if unknown:
            raise InvalidRequest(
                f"table {self.table_name}: its catalog has the option {unknown[0]!r}, which is not available in this "
                f"version for `type: {self.kind.value}`. Nothing was read or written.",
                hint=f"remove it; available: {', '.join(sorted(_OPTIONS[self.kind]))}",
            )
        if self.options.get(SIGNED, "true") not in ("true", "false"):  # pyiceberg would take "True" and "1" for true
            raise InvalidRequest(
                f"table {self.table_name}: the option {SIGNED} of its catalog is {self.options[SIGNED]!r}, expected "
                "'true' or 'false'. Nothing was read or written.",
                hint=f'write {SIGNED}: "true"',
            )
        if len(self.table) < 2 or not all(self.table):
            raise InvalidRequest(
                f"an Iceberg table's name has a namespace and a name, got {self.table_name!r}. "
                "Nothing was read or written.",
                hint="name it as NAMESPACE.TABLE",
            )
        if self.kind is CatalogKind.GLUE and len(self.table) > 2:
            raise InvalidRequest(
                f"a table in AWS Glue is in a database without parts, got {self.table_name!r}. "
                "Nothing was read or written.",
                hint="name it as DATABASE.TABLE",
            )

    @property
    def table_name(self) -> str:
        """The table's name, for people."""
        return ".".join(self.table)

    @property
    def is_on_aws(self) -> bool:
        """Whether its client is that of AWS, or signs requests as AWS does."""
        return is_on_aws(self.kind.value, self.options)

    @property
    def where(self) -> str:
        """The catalog without anything secret, for messages."""
        if not self.uri:
            return "the catalog of AWS Glue"
        parts = urlsplit(self.uri)
        host = parts.netloc.rpartition("@")[2]
        return f"the {self.kind.value.upper()} catalog at {parts.scheme}://{host}{parts.path}"

    @property
    def secrets(self) -> frozenset[str]:
        """Texts that no message may contain."""
        texts = [(self.options.get(name) or "").rpartition(":")[2] for name in _SECRET_OPTIONS]
        parts = urlsplit(self.uri)
        texts.append(parts.netloc.rpartition("@")[0].partition(":")[2])
        texts += [value for name, value in parse_qsl(parts.query) if "pass" in name or "token" in name]
        return frozenset(form for text in texts if text for form in (text, unquote(text), quote(unquote(text))))


def open_catalog(config: CatalogConfig, store: ObjectStore) -> Catalog:
    """Return the connected catalog.

    Args:
        store: rooted at the table.
    Raises: errors of pyiceberg, its HTTP client or its database (`catalog_errors.py`).
    """
    return _connected(config, StoreFileIO, {STORE: store}, store.config)


def open_reader_catalog(config: CatalogConfig, open_at: Callable[[str], ObjectStore], access: StoreConfig) -> Catalog:
    """Return the connected catalog of a table that is only read.

    Args:
        open_at: opens the store of a folder, by its URL. access: with the credentials and the region of such a store.
    Raises: as `open_catalog`.
    """
    return _connected(config, ReaderFileIO, {OPEN_AT: open_at}, access)


def _connected(
    config: CatalogConfig, files: type[StoreFileIO], options: Mapping[str, Any], access: StoreConfig
) -> Catalog:
    properties: dict[str, Any] = {
        **config.options,
        "uri": config.uri,
        PY_IO_IMPL: f"{files.__module__}.{files.__qualname__}",
        **options,
    }
    if config.kind is CatalogKind.SQL:
        return _SqlCatalog(config.name, **{"pool_pre_ping": "true", **properties})
    if config.kind is CatalogKind.GLUE:
        return _glue(config, properties, access)
    if config.is_on_aws:
        properties |= _signing(config, access)
    if "credential" in config.options:
        properties.setdefault("oauth2-server-uri", f"{config.uri.rstrip('/')}/v1/oauth/tokens")
    return _RestCatalog(config.name, **properties)


def _glue(config: CatalogConfig, properties: Mapping[str, Any], access: StoreConfig) -> Catalog:
    from milepost.tables.iceberg.aws import aws_session
    from milepost.tables.iceberg.glue_catalog import StoreGlueCatalog

    more = {"glue.endpoint": config.uri} if config.uri else {}
    region = config.options.get("client.region", access.region)
    session = {BOTOCORE_SESSION: aws_session(access, config.uri)}
    return StoreGlueCatalog(config.name, **{**properties, **more, **session, "client.region": region})


def _signing(config: CatalogConfig, access: StoreConfig) -> dict[str, Any]:
    """Return the properties by which requests are signed as AWS signs them (SigV4)."""
    from milepost.tables.iceberg.aws import aws_session

    region = config.options.get("rest.signing-region", access.region)
    signed = {"client.region": region, "rest.signing-region": region, "rest.sigv4.max-retries": "0"}
    return {BOTOCORE_SESSION: aws_session(access, config.uri), **signed}


class _SqlCatalog(SqlCatalog):
    """A SQL catalog that always uses `StoreFileIO`."""

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        return file_io(self.properties)


class _RestCatalog(RestCatalog):
    """A REST catalog with request timeouts that always uses `StoreFileIO`, and so never requests file credentials."""

    def _load_file_io(self, properties: Properties = EMPTY_DICT, location: str | None = None) -> FileIO:
        return file_io(self.properties)

    def _create_legacy_oauth2_auth_manager(self, session: Session) -> AuthManager:
        self._set_timeouts(session)  # pyiceberg calls this for each new session, before a token is requested
        return super()._create_legacy_oauth2_auth_manager(session)

    def _init_sigv4(self, session: Session) -> None:
        super()._init_sigv4(session)
        self._set_timeouts(session)  # of the adapter that signs

    def _set_timeouts(self, session: Session) -> None:
        if is_loopback(self.uri):
            session.trust_env = False  # HTTP_PROXY of the environment cannot lead to this machine's loopback
        for adapter in session.adapters.values():
            adapter.send = _with_timeout(adapter.send)  # type: ignore[method-assign]


def _with_timeout(send: Callable[..., Any]) -> Callable[..., Any]:
    def send_with_timeout(*args: Any, **options: Any) -> Any:
        return send(*args, **{**options, "timeout": options.get("timeout") or _TIMEOUTS_S})

    return send_with_timeout
