"""What a machine must have before an epoch can run on it, checked without starting anything heavy."""

from __future__ import annotations

import importlib.metadata
import os
import pwd
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.protocol.errors import CheckpointError

_JAVA_VERSIONS = (17, 21)
_FREE_BYTES = 2_000_000_000
_PACKAGES = ("pyspark", "pyarrow", "boto3", "great-expectations", "apache-airflow", "sqlglot", "pandas")


def environment_checks() -> list[dict[str, Any]]:
    """Return ``{"check", "ok", "detail"}`` per precondition; the detail says what was found and what to do."""
    return [
        _python(),
        _java(),
        *_packages(),
        _disk(),
        _host_name(),
        _user(),
        _proxy(),
    ]


def _check(name: str, ok: bool, detail: str) -> dict[str, Any]:
    return {"check": name, "ok": ok, "detail": detail}


def _python() -> dict[str, Any]:
    found = ".".join(map(str, sys.version_info[:3]))
    ok = (3, 11) <= sys.version_info[:2] <= (3, 13)
    return _check("python", ok, f"{found} ({sys.executable})" if ok else f"{found}; Python 3.11 to 3.13 is needed")


def _java() -> dict[str, Any]:
    from pipeline.spark.java import find_java_home

    try:
        home = Path(find_java_home())
    except CheckpointError as error:
        return _check("java", False, error.message.splitlines()[0])
    try:
        found = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as problem:
        return _check("java", False, f"{home}/bin/java does not run: {type(problem).__name__}; install OpenJDK 17")
    match = re.search(r'version "(\d+)', found.stderr + found.stdout)
    version = int(match[1]) if match else 0
    ok = version in _JAVA_VERSIONS
    return _check("java", ok, f"{version} ({home})" + ("" if ok else "; Java 17 or 21 is needed"))


def _packages() -> Iterator[dict[str, Any]]:
    for name in _PACKAGES:
        try:
            yield _check(name, True, importlib.metadata.version(name))
        except importlib.metadata.PackageNotFoundError:
            yield _check(name, False, "not installed; `pip install -r requirements.txt`")


def _disk() -> dict[str, Any]:
    folder = os.environ.get("TMPDIR", "/tmp")
    try:
        free = shutil.disk_usage(folder).free
    except OSError as problem:
        return _check("disk", False, f"{folder}: {problem.strerror}; set TMPDIR to a folder that exists")
    detail = f"{free / 1e9:.1f} GB free under {folder}"
    return _check("disk", free >= _FREE_BYTES, detail if free >= _FREE_BYTES else f"{detail}; 2 GB are needed")


def _host_name() -> dict[str, Any]:
    name = socket.gethostname()
    try:
        return _check("host name", True, f"{name} = {socket.gethostbyname(name)}")
    except OSError:
        # Local Spark masters get 127.0.0.1 from us; only a cluster needs the name.
        return _check("host name", True, f"{name} does not resolve: local masters work, a Spark cluster would not")


def _user() -> dict[str, Any]:
    uid = os.getuid()
    try:
        return _check("user", True, f"uid {uid} is {pwd.getpwuid(uid).pw_name}")
    except KeyError:
        return _check(
            "user", False, f"uid {uid} has no passwd entry, and Spark dies without one; add it to /etc/passwd"
        )


def _proxy() -> dict[str, Any]:
    proxies = [name for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy") if os.environ.get(name)]
    if not proxies:
        return _check("proxy", True, "none")
    return _check("proxy", True, f"{', '.join(proxies)} set; loopback is reached without it")
