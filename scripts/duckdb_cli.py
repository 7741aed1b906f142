"""DuckDB's own program, which knows nothing of Milepost: it reads tables for the demo and on the pages.

It is of the environment `.venv-readers`, with its extensions from wheels; none is looked for on a network.
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
    """DuckDB failed; the message quotes its error."""


def extension_files() -> list[Path]:
    """Return the files of the extensions, each in a folder that is named by the DuckDB that loads it."""
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
    """Return the rows of one SELECT. Raises DuckDBError: it failed, or gave no answer.

    Args:
        setup: statements that go before it; they may have secrets, which no list of processes shows.
    """
    command = [str(PROGRAM), "-init", os.devnull, "-bail"]
    try:
        ran = subprocess.run(
            command, check=False, env=dict(environ), input=f".mode trash\n{setup}\n.mode json\n{text};\n",
            capture_output=True, text=True, timeout=READ_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise DuckDBError(f"DuckDB gave no answer within {READ_S:.0f} s") from None
    if ran.returncode != 0:
        raise DuckDBError(f"DuckDB ended with {ran.returncode}: {ran.stderr.strip()[-2000:]}")
    rows: list[dict[str, Any]] = json.loads(ran.stdout or "[]")
    return rows


def loading(names: Sequence[str] = EXTENSIONS) -> str:
    """Return the SQL that loads extensions from their files."""
    wanted = [file for file in extension_files() if file.name.split(".")[0] in names]
    return "".join(f"LOAD '{file}';" for file in wanted)


def s3_secret(endpoint_url: str, environ: Mapping[str, str]) -> str:
    """Return the SQL that lets a session read the buckets of a server on loopback, by an environment's credentials."""
    return (
        f"CREATE SECRET (TYPE s3, KEY_ID '{environ['AWS_ACCESS_KEY_ID']}', "
        f"SECRET '{environ['AWS_SECRET_ACCESS_KEY']}', ENDPOINT '{endpoint_url.removeprefix('http://')}', "
        "REGION 'us-east-1', URL_STYLE 'path', USE_SSL false);"
    )


def install_extensions(home: Path, environ: Mapping[str, str]) -> None:
    """Put the extensions where a DuckDB of this home has what it installed, so that it loads them by itself."""
    (about,) = query("SELECT platform FROM pragma_platform()", environ=environ)
    for file in extension_files():
        folder = home / ".duckdb" / "extensions" / file.parent.name / about["platform"]
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file.name).symlink_to(file)
