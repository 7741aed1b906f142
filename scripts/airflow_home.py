"""Write the home of an Airflow: configuration, secrets and login, readable by this user only."""

from __future__ import annotations

import configparser
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

LOGIN = "admin"
LOCK_S = 60
"""How long a process waits for SQLite's write lock. Python's default of five seconds is too short."""

ANSWER_S = LOCK_S + 30
"""Timeout of requests to the API server, which may wait for the lock. With Airflow's default of five seconds, requests
that are carried out anyway would fail, and with them the task's heartbeat."""

PASSWORDS = "simple_auth_manager_passwords.json.generated"
CONNECTION = "milepost_sqlite"
CONNECTION_CODE = '''\
"""How Airflow's processes open their SQLite database; `sql_alchemy_connect_args` of airflow.cfg names it."""

import sqlite3


class Connection(sqlite3.Connection):
    """A connection whose commits return before they are on disk. A power cut can lose the end of the log.

    Every heartbeat of every task is a commit, and all other writers wait for it. A killed process loses nothing.
    """

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.execute("PRAGMA synchronous=NORMAL").close()


ARGUMENTS = {"factory": Connection}
'''

Settings = Mapping[str, Mapping[str, object]]


def write_home(home: Path, *, dags: Path, plugins: Path, port: int, settings: Settings | None = None) -> None:
    """Create or update AIRFLOW_HOME. Keep the secrets, the login and the database of an earlier start.

    Args:
        home: the folder. dags, plugins: what Airflow loads.
        port: of the API server on loopback, which tasks use too.
        settings: section -> option -> value, which override those below; None removes an option.
    """
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    own = _own_secrets(home)
    (home / "config").mkdir(exist_ok=True, mode=0o700)
    with _private(home / "config" / f"{CONNECTION}.py") as stream:  # Airflow imports from there
        stream.write(CONNECTION_CODE)
    config: dict[str, dict[str, object]] = {
        "core": {
            "dags_folder": dags,
            "plugins_folder": plugins,
            "load_examples": False,
            "executor": "LocalExecutor",
            "parallelism": 4,
            "fernet_key": own["fernet_key"],
            "simple_auth_manager_users": f"{LOGIN}:admin",
            "simple_auth_manager_passwords_file": home / PASSWORDS,
            "execution_api_server_url": f"http://127.0.0.1:{port}/execution/",
        },
        "database": {
            "sql_alchemy_conn": f"sqlite:///{home / 'airflow.db'}?timeout={LOCK_S}",
            "sql_alchemy_connect_args": f"{CONNECTION}.ARGUMENTS",
            "sql_alchemy_connect_args_async": f"{CONNECTION}.ARGUMENTS",
            "sql_alchemy_max_overflow": -1,  # requests that wait for the lock keep their connections
        },
        "workers": {"execution_api_timeout": ANSWER_S},
        "logging": {"base_log_folder": home / "logs"},
        "api": {
            "host": "127.0.0.1",
            "port": port,
            "base_url": f"http://127.0.0.1:{port}",
            "workers": 1,
            "secret_key": own["secret_key"],
        },
        "api_auth": {"jwt_secret": own["jwt_secret"]},
        "scheduler": {"scheduler_idle_sleep_time": 0.2, "enable_health_check": False},
        "dag_processor": {"refresh_interval": 30, "min_file_process_interval": 30, "parsing_processes": 1},
        "usage_data_collection": {"enabled": False},
    }
    for section, options in (settings or {}).items():
        config.setdefault(section, {}).update(options)
    parser = configparser.ConfigParser(interpolation=None)
    # Airflow reads the file with interpolation, so a percent sign in a path is doubled.
    parser.read_dict({section: _as_text(options) for section, options in config.items()})
    with _private(home / "airflow.cfg") as stream:
        parser.write(stream)


def _as_text(options: Mapping[str, object]) -> dict[str, str]:
    return {option: str(value).replace("%", "%%") for option, value in options.items() if value is not None}


def password(home: Path, login: str = LOGIN) -> str:
    """Return the password of a login. Print it only on a terminal."""
    passwords: dict[str, str] = json.loads((home / PASSWORDS).read_text(encoding="utf-8"))
    return passwords[login]


def _own_secrets(home: Path) -> dict[str, str]:
    """Return the secrets of this home, created once. Also create the password file: Airflow would log a password."""
    file = home / "secrets.json"
    if not file.exists():
        import base64

        made = {
            "fernet_key": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode(),
            "secret_key": secrets.token_urlsafe(32),
            "jwt_secret": secrets.token_urlsafe(64),
        }
        with _private(home / PASSWORDS) as stream:
            json.dump({LOGIN: secrets.token_urlsafe(12)}, stream)
        with _private(file) as stream:
            json.dump(made, stream)
    loaded: dict[str, str] = json.loads(file.read_text(encoding="utf-8"))
    return loaded


def _private(file: Path):  # type: ignore[no-untyped-def]
    """Open a file for writing that only this user may read, even if it existed with other permissions."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    os.fchmod(descriptor, 0o600)
    return os.fdopen(descriptor, "w", encoding="utf-8")
