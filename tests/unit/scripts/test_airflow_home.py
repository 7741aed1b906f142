"""The home of our Airflow: private files, secrets that stay, and a password that Airflow need not invent and log."""

from __future__ import annotations

import configparser
import importlib
import sqlite3
from pathlib import Path

import pytest

from scripts import airflow_home


def write(home: Path, port: int = 1234, **settings: dict[str, object]) -> configparser.ConfigParser:
    airflow_home.write_home(home, dags=home / "d", plugins=home / "p", port=port, settings=settings)
    parser = configparser.ConfigParser()
    parser.read(home / "airflow.cfg")
    return parser


def test_everything_in_it_is_readable_by_its_user_only(tmp_path: Path) -> None:
    home = tmp_path / "home"
    write(home)
    assert home.stat().st_mode & 0o077 == 0
    assert [file.name for file in home.iterdir() if file.stat().st_mode & 0o077] == []


def test_a_second_start_keeps_secrets_and_login_and_takes_the_new_port(tmp_path: Path) -> None:
    home = tmp_path / "home"
    first = write(home, 1111)
    password = airflow_home.password(home)
    second = write(home, 2222)
    assert airflow_home.password(home) == password
    assert second["api_auth"]["jwt_secret"] == first["api_auth"]["jwt_secret"]
    assert (first["api"]["port"], second["api"]["port"]) == ("1111", "2222")


def test_a_file_that_was_readable_by_others_no_longer_is(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "airflow.cfg").write_text("[api]\n")
    (home / "airflow.cfg").chmod(0o644)
    write(home)
    assert (home / "airflow.cfg").stat().st_mode & 0o777 == 0o600


def test_paths_with_spaces_and_per_cent_signs_survive(tmp_path: Path) -> None:
    home = tmp_path / "a home, 100%"
    parser = write(home)
    assert parser["core"]["dags_folder"] == str(home / "d")


def test_servers_bind_to_loopback_and_settings_can_be_overridden(tmp_path: Path) -> None:
    parser = write(tmp_path / "home", core={"parallelism": 7})
    assert parser["api"]["host"] == "127.0.0.1"
    assert parser["core"]["parallelism"] == "7"


def test_a_setting_of_none_takes_an_option_away(tmp_path: Path) -> None:
    """What only SQLite takes goes with SQLite."""
    options = write(tmp_path / "home", database={"sql_alchemy_conn": "other", "sql_alchemy_connect_args": None})[
        "database"
    ]
    assert options["sql_alchemy_conn"] == "other"
    assert "sql_alchemy_connect_args" not in options


def test_a_commit_of_airflow_does_not_wait_for_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The module that Airflow must import exists, is private, and opens its database so that writers wait for locks."""
    home = tmp_path / "home"
    database = write(home)["database"]
    monkeypatch.syspath_prepend(home / "config")
    for option in ("sql_alchemy_connect_args", "sql_alchemy_connect_args_async"):
        module, name = database[option].split(".")
        assert (home / "config" / f"{module}.py").stat().st_mode & 0o077 == 0
        arguments = getattr(importlib.import_module(module), name)
        with sqlite3.connect(tmp_path / "airflow.db", **arguments) as connection:
            assert connection.execute("PRAGMA synchronous").fetchone() == (1,)
        connection.close()
    assert database["sql_alchemy_conn"].endswith(f"airflow.db?timeout={airflow_home.LOCK_S}")
    assert float(write(home)["workers"]["execution_api_timeout"]) > airflow_home.LOCK_S
