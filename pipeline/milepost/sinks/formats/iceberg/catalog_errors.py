"""Errors of a catalog become ours: who did not answer, what is now true, and what to type; never a secret."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import ValidationError as UnreadableReply
from pyiceberg.exceptions import (
    AuthorizationExpiredError,
    CommitFailedException,
    CommitStateUnknownException,
    ForbiddenError,
    NoSuchNamespaceError,
    NoSuchTableError,
    OAuthError,
    RESTError,
    ServerError,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TooManyRequestsError,
    UnauthorizedError,
)
from pyiceberg.exceptions import ValidationError as UnreadableMetadata
from requests import RequestException
from requests.exceptions import ConnectionError as ConnectionFailed
from requests.exceptions import ConnectTimeout, HTTPError, InvalidURL, JSONDecodeError, MissingSchema, SSLError, Timeout
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, SQLAlchemyError
from urllib3.exceptions import MaxRetryError

from milepost.errors import (
    CheckpointError,
    CommitConflict,
    CommitOutcomeUnknown,
    EnvironmentUnusable,
    InvalidRequest,
    StoreUnavailable,
)
from milepost.sinks.formats.iceberg.catalogs import CatalogConfig, CatalogKind
from milepost.storage.tls import failed_before_connecting

_OF_CATALOGS = (
    RESTError, CommitFailedException, NoSuchTableError, NoSuchNamespaceError, TableAlreadyExistsError, RequestException,
    SQLAlchemyError, UnreadableReply, UnreadableMetadata, NotImplementedError, ModuleNotFoundError, ValueError,
)  # fmt: skip
_CONFLICTS = (CommitFailedException, NoSuchTableError, TableAlreadyExistsError)
_NO_RIGHTS = (UnauthorizedError, ForbiddenError, AuthorizationExpiredError, OAuthError)
_NO_ANSWER = (ServerError, ServiceUnavailableError, TooManyRequestsError, ConnectionFailed, Timeout, DBAPIError)
_NO_CATALOG = (InvalidURL, MissingSchema, JSONDecodeError, ArgumentError, NoSuchModuleError)
_DENIED = ("password authentication failed", "permission denied", "access denied", "readonly database",
           "no password supplied", "role ", "unable to open database file")  # fmt: skip
"""What databases say, in lower case, when trying again is useless."""

_TRY_AGAIN = "try again; if it persists, check that it is up and reachable from this machine (`sinks[].catalog.uri`)"


@contextmanager
def catalog_errors(config: CatalogConfig, doing: str, *, may_land: bool = False) -> Iterator[None]:
    """Turn what the catalog's library raises in a block into our errors; ours pass.

    Args:
        doing: what is not done, or not known to be, as the beginning of a message.
        may_land: it is a commit: one whose answer is lost may have landed.
    Raises:
        CommitConflict: the catalog says that the table is not as it was: *possibly after our own success*.
        CommitOutcomeUnknown, StoreUnavailable: it did not say. EnvironmentUnusable: it never will, as configured.
        InvalidRequest: what it has is no table that can be read.
    """
    try:
        yield
    except CheckpointError:
        raise
    except _OF_CATALOGS as error:
        made = _made_of(error, config, doing, may_land)
        if any(secret in text for text in _chain(error) for secret in config.secrets):
            raise made from None
        raise made from error


def _made_of(error: Exception, config: CatalogConfig, doing: str, may_land: bool) -> CheckpointError:
    said = _without_secrets(error, config)
    if isinstance(error, _CONFLICTS) or (may_land and _status(error) == 404):
        return CommitConflict(
            f"{doing}: {config.where} says that table {config.table_name} is not as it was ({said}).",
            hint="read it back: it may be our own",
        )
    if isinstance(error, _NO_RIGHTS) or _is_denied(error):
        return EnvironmentUnusable(f"{doing}: {config.where} denied access ({said}).", hint=_rights_hint(config))
    if isinstance(error, SSLError) and failed_before_connecting(error):
        return EnvironmentUnusable(
            f"{doing}: no TLS connection to {config.where} could be made ({said}).",
            hint="install its certificate (REQUESTS_CA_BUNDLE), or use the right scheme in `sinks[].catalog.uri`",
        )
    if isinstance(error, ModuleNotFoundError):
        return EnvironmentUnusable(
            f"{doing}: {config.where} needs a driver that is not installed ({said}).",
            hint=f"pip install {error.name}",
        )
    if isinstance(error, _NO_CATALOG):
        return EnvironmentUnusable(
            f"{doing}: {config.where} cannot be used ({said}).",
            hint="correct `sinks[].catalog.uri`; Postgres is postgresql+psycopg://USER@HOST/DATABASE",
        )
    if isinstance(error, UnreadableMetadata):
        return InvalidRequest(
            f"{doing}: what {config.where} has as table {config.table_name} is none of Iceberg that can be read here.",
            hint="give the sink another table",
        )
    if isinstance(error, CommitStateUnknownException) or (may_land and _may_have_landed(error)):
        return CommitOutcomeUnknown(
            f"{doing}: nobody knows whether {config.where} did it ({said}). Nothing was deleted.",
            hint="try again: the table is read back first",
        )
    if isinstance(error, _NO_ANSWER):
        return StoreUnavailable(f"{doing}: {config.where} did not answer ({said}).", hint=_TRY_AGAIN)
    return EnvironmentUnusable(
        f"{doing}: {config.where} did not do what was asked of it ({said}).",
        hint="check `sinks[].catalog`: its uri, its type and its options",
    )


def _status(error: Exception) -> int | None:
    """Return the HTTP status that an error of the library was made from; None: from none."""
    cause = error.__cause__
    return cause.response.status_code if isinstance(cause, HTTPError) and cause.response is not None else None


def _may_have_landed(error: Exception) -> bool:
    """Return whether a commit may have arrived of which nothing came back that says how it ended."""
    if isinstance(error, SSLError):
        return True  # its connection broke amid the answer: where none was made, that was told before
    if isinstance(error, ConnectTimeout) or (error.args and isinstance(error.args[0], MaxRetryError)):
        return False  # of our requests none is repeated: no connection was made
    return isinstance(error, _NO_ANSWER) or not isinstance(error, RESTError)


def _is_denied(error: Exception) -> bool:
    return isinstance(error, DBAPIError) and any(words in str(error.orig).lower() for words in _DENIED)


def _rights_hint(config: CatalogConfig) -> str:
    if config.uri.startswith("sqlite"):
        return "make the folder of that file in `sinks[].catalog.uri`, and let this user write there"
    if config.kind is CatalogKind.SQL:
        return "correct user and password in `sinks[].catalog.uri`, or grant that user both of the catalog's tables"
    return "correct `sinks[].catalog.credential` or `.token`, or grant its role reading and writing of that table"


def _without_secrets(error: Exception, config: CatalogConfig) -> str:
    """Return one line of what happened. What a connection failed at is in the name of the error alone."""
    if isinstance(error, DBAPIError):
        text = f"{type(error.orig).__name__}: {error.orig}"
    elif isinstance(error, RequestException):
        text = type(error).__name__
    elif isinstance(error, UnreadableReply):
        text = "its answer is not what Iceberg's protocol says"
    else:
        text = f"{type(error).__name__}: {error}"
    line = " ".join(text.split())[:300]
    for secret in sorted(config.secrets, key=len, reverse=True):
        line = line.replace(secret, "***")
    return line


def _chain(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        yield str(error)
        error = error.__cause__ or error.__context__
