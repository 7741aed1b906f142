"""The DuckDB CLI, which reads tables for the demo and for pages of the documentation.

It is installed in `.venv-readers`, with extensions from wheels, so it downloads none.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from scripts.processes import ROOT

PROGRAM = ROOT / ".venv-readers" / "bin" / "duckdb"
EXTENSIONS = ("avro", "delta", "httpfs", "iceberg")
READ_S = 60.0


class DuckDBError(Exception):
    """DuckDB failed. The message quotes its error."""


def extension_files() -> list[Path]:
    """Return the files of the extensions, each in a folder with the name of a DuckDB version."""
    packages = ROOT / ".venv-readers" / "lib"
    found = [
        next(packages.glob(f"python*/site-packages/duckdb_extension_{name}/extensions/*/*.*"), None)
        for name in EXTENSIONS
    ]
    files = [file for file in found if file is not None]
    if len(files) != len(EXTENSIONS) or not PROGRAM.exists():
        raise DuckDBError(f"{PROGRAM.parent.parent} has no DuckDB with its extensions; `make env` builds it")
    return files


def query(text: str, *, setup: str = "", environ: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the rows of one SELECT. Raises DuckDBError: it failed or timed out.

    Args:
        setup: statements to run before it. They may contain secrets: no list of processes shows them.
    """
    command = [str(PROGRAM), "-init", os.devnull, "-bail"]
    try:
        ran = subprocess.run(
            command, check=False, env=dict(environ), input=f".mode trash\n{setup}\n.mode json\n{text};\n",
            capture_output=True, text=True, timeout=READ_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise DuckDBError(f"DuckDB did not answer within {READ_S:.0f} s") from None
    if ran.returncode != 0:
        raise DuckDBError(f"DuckDB ended with {ran.returncode}: {ran.stderr.strip()[-2000:]}")
    rows: list[dict[str, Any]] = json.loads(ran.stdout or "[]")
    return rows


def loading(names: Sequence[str] = EXTENSIONS) -> str:
    """Return the SQL that loads extensions from their files."""
    wanted = [file for file in extension_files() if file.name.split(".")[0] in names]
    return "".join(f"LOAD '{file}';" for file in wanted)


def s3_secret(endpoint_url: str, environ: Mapping[str, str]) -> str:
    """Return the SQL that gives a session access to an S3 server on loopback, with credentials from `environ`."""
    return (
        f"CREATE SECRET (TYPE s3, KEY_ID '{environ['AWS_ACCESS_KEY_ID']}', "
        f"SECRET '{environ['AWS_SECRET_ACCESS_KEY']}', ENDPOINT '{endpoint_url.removeprefix('http://')}', "
        "REGION 'us-east-1', URL_STYLE 'path', USE_SSL false);"
    )


def install_extensions(home: Path, environ: Mapping[str, str]) -> None:
    """Link the extensions into the extension folder of a home, so that DuckDB loads them automatically."""
    (about,) = query("SELECT platform FROM pragma_platform()", environ=environ)
    for file in extension_files():
        folder = home / ".duckdb" / "extensions" / file.parent.name / about["platform"]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file.name).symlink_to(file)
