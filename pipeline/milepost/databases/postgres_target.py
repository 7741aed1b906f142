"""The connection parameters of a Postgres database, from a spec or a Connection only.

Nothing is read from the home directory, such as a password or service file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import psycopg
from psycopg.conninfo import conninfo_to_dict

from milepost.errors import EnvironmentUnusable
from milepost.jobspec.job import PostgresAccess

OLDEST_VERSION = 130000
"""The oldest server that is supported, as `server_version_num`."""

_KNOWN = frozenset(
    {
        "host", "hostaddr", "port", "dbname", "user", "password", "sslmode", "sslrootcert", "sslcert", "sslkey",
        "sslpassword", "channel_binding", "target_session_attrs", "connect_timeout", "application_name",
    }
)  # fmt: skip
_NEEDED = ("host", "dbname", "user")
_SECRETS = ("password", "sslpassword")
_NO_SUCH_FILE = "/dev/null/none"
_FIXED: Mapping[str, str] = {
    "passfile": _NO_SUCH_FILE,
    "client_encoding": "UTF8",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}


@dataclass(frozen=True, slots=True)
class PostgresTarget:
    """The connection parameters of a database.

    Attributes:
        parameters: by libpq's names, including secrets.
    """

    parameters: Mapping[str, str] = field(repr=False)

    @property
    def name(self) -> str:
        """The database for messages, without user and password."""
        port = self.parameters.get("port", "5432")
        return f"database {self.parameters['dbname']} at {self.parameters['host']}:{port}"

    @property
    def user(self) -> str:
        """The name of the role that connects."""
        return self.parameters["user"]

    @property
    def secrets(self) -> frozenset[str]:
        """Texts that no message may contain."""
        return frozenset(self.parameters[name] for name in _SECRETS if self.parameters.get(name))

    def connect(self, **extra: str) -> psycopg.Connection[tuple[object, ...]]:
        """Open a connection. extra: further parameters of libpq. Raises psycopg.Error."""
        return psycopg.connect(**{**self.parameters, **extra}, autocommit=False)  # type: ignore[arg-type]


def find_target(kind: str, owner: str, access: PostgresAccess, consequence: str) -> PostgresTarget:
    """Return the connection parameters. Raises EnvironmentUnusable.

    Args:
        kind: source or sink. owner: its name. consequence: what did not happen, as the end of a message.
    """
    parameters = dict(access.parameters)
    if access.dsn:
        try:
            parameters = {name: str(value) for name, value in conninfo_to_dict(access.dsn).items() if value is not None}
        except psycopg.Error:  # its message quotes the DSN
            raise _unusable(kind, owner, access, "it cannot be parsed", consequence) from None
    unknown = sorted(set(parameters) - _KNOWN)
    if unknown:
        problem = f"it has {', '.join(unknown)}, which is not supported here"
        raise _unusable(kind, owner, access, problem, consequence)
    missing = [name for name in _NEEDED if not parameters.get(name)]
    if missing:
        raise _unusable(kind, owner, access, f"it lacks {' and '.join(missing)}", consequence)
    named = {"application_name": f"milepost {owner}", "connect_timeout": "10", "password": "", **parameters}
    return PostgresTarget({**_FIXED, **named})


def _unusable(kind: str, owner: str, access: PostgresAccess, problem: str, consequence: str) -> EnvironmentUnusable:
    return EnvironmentUnusable(
        f"{kind} {owner}: {access.origin} cannot be used: {problem}. {consequence}",
        hint="expected postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with sslmode=verify-full on a shared network",
        **{kind: owner},
    )
