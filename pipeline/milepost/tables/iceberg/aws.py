"""Sessions and errors of the AWS client, for catalogs that use the store's credentials."""

from __future__ import annotations

from typing import Any

import botocore.session
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    HTTPClientError,
    NoAuthTokenError,
    NoCredentialsError,
    PartialCredentialsError,
    SSLError,
)
from botocore.exceptions import ConnectionError as ConnectionFailed

from milepost.protocol.records import StoreConfig
from milepost.storage import is_loopback

AWS_ERRORS = (BotoCoreError, ClientError)
"""Base classes of the errors of the AWS client."""

_CONNECT_S, _READ_S = 5, 60
_ATTEMPTS = 3
"""A commit that was repeated after a lost reply fails as a conflict. The table is then read for the commit's id."""

_DENIED = frozenset(
    {
        "AccessDenied",
        "AccessDeniedException",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationToken",
        "SignatureDoesNotMatch",
        "UnrecognizedClientException",
    }
)
_UNANSWERED = frozenset(
    {"InternalFailure", "InternalServiceException", "OperationTimeoutException", "RequestTimeout",
     "ServiceUnavailable", "Throttling", "ThrottlingException", "TooManyRequestsException"}
)  # fmt: skip


def aws_session(access: StoreConfig, uri: str) -> botocore.session.Session:
    """Return a session with the credentials of a store, or of the standard AWS chain if the store has none.

    Args:
        uri: of the server, "" for AWS. Endpoints of the environment are ignored, and proxies for a loopback server.
    """
    session = botocore.session.get_session()
    if (credentials := access.credentials) is not None:
        session.set_credentials(credentials.access_key, credentials.secret_key, credentials.session_token)
    proxies: dict[str, Any] = {"proxies": {}} if uri and is_loopback(uri) else {}
    session.set_default_client_config(
        Config(
            connect_timeout=_CONNECT_S,
            read_timeout=_READ_S,
            retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
            ignore_configured_endpoint_urls=True,
            **proxies,
        )
    )
    return session


def is_denied(error: Exception) -> bool:
    """Return whether an error of the AWS client says that access is refused or no credentials were found."""
    if isinstance(error, ClientError):
        return _code(error) in _DENIED
    return isinstance(error, (NoCredentialsError, PartialCredentialsError, NoAuthTokenError))


def is_unanswered(error: Exception) -> bool:
    """Return whether an error of the AWS client leaves a request without an answer, or asks to repeat it."""
    if isinstance(error, ClientError):
        return _code(error) in _UNANSWERED
    return isinstance(error, (HTTPClientError, ConnectionFailed))


def may_have_landed(error: Exception) -> bool:
    """Return whether Glue may have received a commit that got no clear answer."""
    if isinstance(error, (EndpointConnectionError, ConnectTimeoutError, SSLError)):
        return False  # nothing was sent
    return is_unanswered(error)


def _code(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))
