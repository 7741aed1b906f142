"""Translate the errors of an S3 endpoint. Messages name bucket and endpoint, never a secret."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    CredentialRetrievalError,
    EndpointConnectionError,
    InvalidConfigError,
    NoCredentialsError,
    ParamValidationError,
    PartialCredentialsError,
    ProfileNotFound,
    ProxyConnectionError,
    SSLError,
    TokenRetrievalError,
    UnauthorizedSSOTokenError,
)

from milepost.errors import (
    CheckpointError,
    CommitConflict,
    CommitOutcomeUnknown,
    EnvironmentUnusable,
    InvalidRequest,
    NotFound,
    StoreUnavailable,
)
from milepost.protocol.records import StoreConfig
from milepost.storage.tls import failed_before_connecting

_NO_CREDENTIALS = (
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    TokenRetrievalError,
    UnauthorizedSSOTokenError,
    ProfileNotFound,
    InvalidConfigError,
)
_NEVER_SENT = (
    *_NO_CREDENTIALS,
    EndpointConnectionError,
    ConnectTimeoutError,
    ProxyConnectionError,
    ParamValidationError,
)

_CHAIN_HINT = "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or AWS_PROFILE, or a role) for this endpoint"
_WRONG_CREDENTIALS = frozenset(
    {"InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "ExpiredToken", "ExpiredTokenException",
     "TokenRefreshRequired", "InvalidSecurity", "AuthorizationHeaderMalformed", "NotSignedUp", "AccountProblem",
     "UnrecognizedClientException"}
)  # fmt: skip
_WRONG_REGION = frozenset({"PermanentRedirect", "IllegalLocationConstraintException", "TemporaryRedirect"})
_TRANSIENT = frozenset({"RequestTimeout", "BadDigest", "IncompleteBody", "XAmzContentSHA256Mismatch"})
"""Codes sent with status 400 for a correct request that was truncated or damaged in transit."""

_TRY_AGAIN = "try again; if it persists, check that the endpoint is up and reachable from this machine"


@dataclass(frozen=True, slots=True)
class _Refusal:
    """An error reply, explained to the operator of the job: `says` completes the message."""

    statuses: tuple[int, ...]
    codes: frozenset[str]
    says: str
    hint: str


_REFUSALS = (
    _Refusal(
        (),
        frozenset({"RequestTimeTooSkewed"}),
        "refused it: this machine's clock is too far off. Nothing was changed.",
        "synchronise the clock",
    ),
    _Refusal(
        (301, 307), _WRONG_REGION, "is in another region ({reason}). Nothing was changed.", "correct `store.region`"
    ),
    _Refusal(
        (403,),
        frozenset(),
        "denied access ({reason}). Nothing was changed.",
        "check the credentials in use and the bucket's policy: read, write, list and delete are needed",
    ),
    _Refusal(
        (501,),
        frozenset({"NotImplemented"}),
        "does not offer this request ({reason}). Nothing was changed.",
        "use a store that offers conditional writes; `milepost doctor JOB` probes it",
    ),
    _Refusal((507,), frozenset(), "has no space left ({reason}).", "free space, then run again"),
)
_REFUSED = _Refusal(
    (), frozenset(), "refused the request ({reason}). Nothing was changed.", "check bucket name, region and endpoint"
)
"""Any other request that the server understood and refused."""


class S3Errors:
    """Creates the errors of one store.

    Attributes:
        where: bucket and endpoint, for messages.
    """

    def __init__(self, config: StoreConfig, bucket: str) -> None:
        self._config = config
        self._bucket = bucket
        self.where = f"bucket {bucket!r} at {config.endpoint or f'AWS S3 in region {config.region}'}"

    def absent(self, key: str) -> NotFound:
        return NotFound(f"object {key!r} does not exist in {self._config.url}.", key=key)

    def missing_bucket(self) -> EnvironmentUnusable:
        return EnvironmentUnusable(
            f"{self.where} does not exist. Nothing was read or written.",
            hint="create the bucket, or correct the location in the spec",
            bucket=self._bucket,
        )

    def missing_date(self, date: object) -> EnvironmentUnusable:
        return EnvironmentUnusable(
            f"{self.where}: a reply had no usable Date header (got {date!r}): there is no clock to judge leases by.",
            hint="use an endpoint, or a proxy, that keeps the Date header",
        )

    def of_client(self, error: Exception) -> CheckpointError:
        """Return the error for a client that could not be created: bad profile, endpoint or configuration file."""
        if isinstance(error, _NO_CREDENTIALS):
            return self._credentials(type(error).__name__)
        return EnvironmentUnusable(
            f"{self.where} cannot be used: {_line(error)}. Nothing was read or written.",
            hint="correct endpoint and region, in `store` or in its Connection, or the AWS configuration file",
        )

    def of(self, error: Exception, doing: str, key: str | None) -> CheckpointError:
        """Return the error for a failed request that is safe to repeat.

        Args:
            doing: a clause, e.g. ``object 'a' could not be read``.
            key: of the object; None if the request is not about one object.
        """
        details = {"key": key} if key is not None else {}
        if isinstance(error, ClientError):
            return self._of_reply(error, doing, key)
        if isinstance(error, _NO_CREDENTIALS):
            return self._credentials(type(error).__name__)
        if isinstance(error, ParamValidationError):
            return InvalidRequest(f"{doing}: {self.where}: the request is malformed: {_line(error)}", **details)
        if _is_without_tls(error):
            return EnvironmentUnusable(
                f"{doing}: no TLS connection to {self.where} could be made: {_line(error)}. Nothing was changed.",
                hint="install the endpoint's certificate (AWS_CA_BUNDLE), or use the right scheme in endpoint_url",
                **details,
            )
        return StoreUnavailable(f"{doing}: {self.where} did not answer ({_reason(error)}).", hint=_TRY_AGAIN, **details)

    def of_create(self, error: Exception, key: str) -> CheckpointError:
        """Return the error for a failed conditional create.

        Only a definite refusal means that nothing was created. After any other error, such as a timeout, the outcome is
        unknown.
        """
        status, code = http_status(error), _code(error)
        doing = f"object {key!r} was not created"
        if status in (409, 412):
            return CommitConflict(
                f"object {key!r} exists already in {self._config.url}, or is being created: {_reason(error)}.",
                hint="read it back: it may be our own",
                key=key,
            )
        definite = status is not None and 300 <= status < 500 and status not in (408, 429) and code not in _TRANSIENT
        if status == 404 and code != "NoSuchBucket":
            definite = False
        if definite or status == 501 or isinstance(error, _NEVER_SENT) or _is_without_tls(error):
            return self.of(error, doing, key)
        return CommitOutcomeUnknown(
            f"it is unknown whether object {key!r} was created: {self.where} did not confirm it ({_reason(error)}). "
            "Nothing was deleted.",
            hint="try again: what is there is read back first",
            key=key,
        )

    def of_refused_deletes(self, refused: Sequence[dict[str, Any]], requested: int) -> CheckpointError:
        """Return the error for a multi-object delete that some objects refused."""
        first = refused[0]
        message = (
            f"{len(refused)} of {requested} objects could not be deleted from {self.where}, e.g. {first.get('Key')!r}: "
            f"{first.get('Code')} {first.get('Message', '')}".rstrip()
            + ". The others were deleted."
        )
        if first.get("Code") in ("AccessDenied", "MethodNotAllowed"):
            return EnvironmentUnusable(message, hint="allow s3:DeleteObject on this prefix")
        return StoreUnavailable(message, hint=_TRY_AGAIN)

    def _of_reply(self, error: ClientError, doing: str, key: str | None) -> CheckpointError:
        details = {"key": key} if key is not None else {}
        code, status = _code(error), http_status(error) or 0
        if code == "NoSuchBucket":
            return self.missing_bucket()
        if status == 404 and key is not None:
            return self.absent(key)
        if status == 412:
            return CommitConflict(
                f"{doing}: object {key!r} of {self._config.url} is not the expected version.", **details
            )
        if code in _WRONG_CREDENTIALS or status == 401:
            return self._credentials(_reason(error))
        refusal = next((refusal for refusal in _REFUSALS if status in refusal.statuses or code in refusal.codes), None)
        if refusal is None and 400 <= status < 500 and status not in (408, 409, 429) and code not in _TRANSIENT:
            refusal = _REFUSED
        if refusal is not None:
            says = refusal.says.format(reason=_reason(error))
            return EnvironmentUnusable(f"{doing}: {self.where} {says}", hint=refusal.hint, **details)
        return StoreUnavailable(f"{doing}: {self.where} answered {_reason(error)}.", hint=_TRY_AGAIN, **details)

    def _credentials(self, reason: str) -> EnvironmentUnusable:
        conn_id = self._config.conn_id
        ours = conn_id is not None and self._config.credentials is not None
        hint = f"correct login and password of Connection {conn_id}" if ours else _CHAIN_HINT
        return EnvironmentUnusable(
            f"{self.where} cannot be used: no valid credentials ({reason}). Nothing was read or written.",
            hint=f"{hint}, then check it with `milepost doctor JOB`",
            bucket=self._bucket,
        )


def http_status(error: Exception) -> int | None:
    """Return the HTTP status of an error reply; None if there was no reply."""
    if not isinstance(error, ClientError):
        return None
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    return int(status) if status is not None else None


def _is_without_tls(error: Exception) -> bool:
    return isinstance(error, SSLError) and failed_before_connecting(error)


def _code(error: Exception) -> str:
    return str(error.response.get("Error", {}).get("Code", "")) if isinstance(error, ClientError) else ""


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _reason(error: Exception) -> str:
    """Return the reason without request headers, signatures or keys, which replies may quote."""
    if isinstance(error, ClientError):
        status, code = str(http_status(error)), _code(error)
        return f"HTTP {status}" if code in ("", status) else f"HTTP {status} {code}"  # a HEAD's reply has no code
    if isinstance(error, BotoCoreError):
        return type(error).__name__.removesuffix("Error").removesuffix("Exception")
    return type(error).__name__
