"""Translate errors of the catalog client into Milepost's errors, without secrets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

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
from milepost.storage import failed_before_connecting
from milepost.tables.iceberg.catalogs import CatalogConfig, CatalogKind

_CATALOG_ERRORS = (
    RESTError, CommitFailedException, NoSuchTableError, NoSuchNamespaceError, TableAlreadyExistsError, RequestException,
    SQLAlchemyError, UnreadableReply, UnreadableMetadata, NotImplementedError, ModuleNotFoundError, ValueError,
)  # fmt: skip
_CONFLICTS = (CommitFailedException, NoSuchTableError, TableAlreadyExistsError)
_DENIED_ERRORS = (UnauthorizedError, ForbiddenError, AuthorizationExpiredError, OAuthError)
_UNANSWERED = (ServerError, ServiceUnavailableError, TooManyRequestsError, ConnectionFailed, Timeout, DBAPIError)
_BAD_ADDRESS = (InvalidURL, MissingSchema, JSONDecodeError, ArgumentError, NoSuchModuleError)
_DENIED_TEXTS = ("password authentication failed", "permission denied", "access denied", "readonly database",
           "no password supplied", "role ", "unable to open database file")  # fmt: skip
"""Parts of database messages, in lower case, for which a retry is useless."""


@contextmanager
def translated_errors(config: CatalogConfig, failure: str, *, may_land: bool = False) -> Iterator[None]:
    """Translate errors of the catalog client that the block raises. Milepost's own errors pass through.

    Args:
        failure: what did not happen, or is not confirmed, as the start of the message.
        may_land: the block is a commit, so a commit without an answer may have landed.
    Raises:
        CommitConflict: the table has changed, *possibly by this very commit*.
        CommitOutcomeUnknown: a commit got no answer. StoreUnavailable: any other request got no answer.
        EnvironmentUnusable: the catalog cannot be used as it is configured.
        InvalidRequest: the catalog has an entry that is not a readable Iceberg table.
    """
    try:
        yield
    except CheckpointError:
        raise
    except _errors_of(config) as error:
        translated = _translate(error, config, failure, may_land)
        if any(secret in text for text in _chain(error) for secret in config.secrets):
            raise translated from None
        raise translated from error


def _errors_of(config: CatalogConfig) -> tuple[type[Exception], ...]:
    """Return what the client of a catalog raises. The AWS library is imported only for a catalog that uses it."""
    return (*_CATALOG_ERRORS, *_aws().AWS_ERRORS) if config.is_on_aws else _CATALOG_ERRORS


def _aws() -> ModuleType:
    from milepost.tables.iceberg import aws

    return aws


def _translate(error: Exception, config: CatalogConfig, failure: str, may_land: bool) -> CheckpointError:
    reason = _describe(error, config)
    if isinstance(error, _CONFLICTS) or (may_land and _status(error) == 404):
        return CommitConflict(
            f"{failure}: {config.where} reports that table {config.table_name} has changed ({reason}).",
            hint="read it again: the change may be this very commit",
        )
    if isinstance(error, _DENIED_ERRORS) or _is_denied(error, config):
        return EnvironmentUnusable(f"{failure}: {config.where} denied access ({reason}).", hint=_rights_hint(config))
    if isinstance(error, SSLError) and failed_before_connecting(error):
        return EnvironmentUnusable(
            f"{failure}: no TLS connection to {config.where} is possible ({reason}).",
            hint=f"install its certificate (REQUESTS_CA_BUNDLE), or correct the scheme in `{config.spec_key}.uri`",
        )
    if isinstance(error, ModuleNotFoundError):
        return EnvironmentUnusable(
            f"{failure}: {config.where} needs a driver that is not installed ({reason}).",
            hint=f"pip install {error.name}",
        )
    if isinstance(error, _BAD_ADDRESS):
        return EnvironmentUnusable(
            f"{failure}: {config.where} cannot be used ({reason}).",
            hint=f"correct `{config.spec_key}.uri`; Postgres is postgresql+psycopg://USER@HOST/DATABASE",
        )
    if isinstance(error, UnreadableMetadata):
        return InvalidRequest(
            f"{failure}: table {config.table_name} of {config.where} is not a readable Iceberg table.",
            hint="name another table",
        )
    if isinstance(error, CommitStateUnknownException) or (may_land and _may_have_landed(error, config)):
        return CommitOutcomeUnknown(
            f"{failure}: it is unknown whether {config.where} committed ({reason}). Nothing was deleted.",
            hint="try again: the table is read first",
        )
    if isinstance(error, _UNANSWERED) or (config.is_on_aws and _aws().is_unanswered(error)):
        return StoreUnavailable(
            f"{failure}: {config.where} did not answer ({reason}).",
            hint="try again; if it persists, check that it is up and reachable from this machine "
            f"(`{config.spec_key}.uri`)",
        )
    return EnvironmentUnusable(
        f"{failure}: {config.where} refused the request ({reason}).",
        hint=f"check `{config.spec_key}`: its uri, its type and its options",
    )


def _status(error: Exception) -> int | None:
    """Return the HTTP status behind an error of the client; None if there is none."""
    cause = error.__cause__
    return cause.response.status_code if isinstance(cause, HTTPError) and cause.response is not None else None


def _may_have_landed(error: Exception, config: CatalogConfig) -> bool:
    """Return whether the catalog may have received a commit that got no clear answer."""
    if config.is_on_aws and isinstance(error, _aws().AWS_ERRORS):
        return _aws().may_have_landed(error)
    if isinstance(error, SSLError):
        return True  # the connection broke during the answer; a failed handshake is handled by `_translate`
    if isinstance(error, ConnectTimeout) or (error.args and isinstance(error.args[0], MaxRetryError)):
        return False  # the client repeats no request, so no connection was made
    return isinstance(error, _UNANSWERED) or not isinstance(error, RESTError)


def _is_denied(error: Exception, config: CatalogConfig) -> bool:
    if config.is_on_aws and _aws().is_denied(error):
        return True
    return isinstance(error, DBAPIError) and any(words in str(error.orig).lower() for words in _DENIED_TEXTS)


def _rights_hint(config: CatalogConfig) -> str:
    if config.uri.startswith("sqlite"):
        return f"create the folder of the file in `{config.spec_key}.uri`, with write access for this user"
    if config.kind is CatalogKind.SQL:
        return (
            f"correct user and password in `{config.spec_key}.uri`, or grant that user access to the catalog's two "
            "tables"
        )
    if config.is_on_aws:
        rights = "GetDatabase, CreateDatabase, GetTable, CreateTable and UpdateTable of Glue"
        return (
            "the credentials are those of `store`: its connection, or the standard AWS chain; allow them "
            f"{rights if config.kind is CatalogKind.GLUE else 'to read and write the table'}"
        )
    return f"correct `{config.spec_key}.credential` or `.token`, or grant its role read and write access to the table"


def _describe(error: Exception, config: CatalogConfig) -> str:
    """Return the error on one line, without secrets. For a failed connection this is the name of the error."""
    if isinstance(error, DBAPIError):
        text = f"{type(error.orig).__name__}: {error.orig}"
    elif isinstance(error, RequestException):
        text = type(error).__name__
    elif isinstance(error, UnreadableReply):
        text = "its response does not follow Iceberg's protocol"
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
