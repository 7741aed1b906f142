"""Propose the source of a new job from files."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from milepost.errors import InvalidRequest
from milepost.jobspec.job import environment_connection, s3_store
from milepost.protocol.records import SCHEME, StoreConfig, absolute_url, file_url, location_problem
from milepost.sources.inference import ProposedSource, infer_source
from milepost.sources.planning import split_path
from milepost.storage import open_store


@dataclass(frozen=True, slots=True)
class SourceProposal:
    """A source and where it reads.

    Attributes:
        path: of the files, as a spec in a subfolder of the caller's folder states it.
        conn_id: the Connection of the S3 server; None: the standard AWS chain.
    """

    path: str
    source: ProposedSource
    conn_id: str | None = None


_NOT_FILES = {
    "kafka": ("a Kafka topic", "read-kafka.md"),
    "postgres": ("a Postgres table", "read-postgres.md"),
    "postgresql": ("a Postgres table", "read-postgres.md"),
}
"""Schemes of what has rows and is no file: its name, and the page with its source."""


def propose_source(path: str, folder: Path, conn_id: str | None = None) -> SourceProposal:
    """Propose a source that reads files.

    Args:
        path: a file, a folder, or a pattern with `*`: an S3 or file URL, or a path relative to `folder`.
        folder: absolute.
        conn_id: Connection of type `aws` with endpoint and credentials of the S3 server; None: the standard AWS chain.
    Raises:
        NotFound: there are no files. InvalidRequest: the path is invalid, or no source reads the files.
        StoreUnavailable, EnvironmentUnusable: the store cannot be read, or the Connection cannot be used.
    """
    _require_files(path)
    if conn_id is not None and not path.startswith("s3://"):
        raise InvalidRequest(f"--conn-id is for files on S3, and {path!r} is on this machine. Nothing was written.")
    problem = location_problem(path)
    if problem is None and "${" in path:
        problem = "a path with `${` would be read as a variable"
    if problem is not None:
        raise InvalidRequest(f"--from {path!r}: {problem}. Nothing was written.")
    if path.startswith("s3://"):
        bucket, _, key = path.removeprefix("s3://").partition("/")
        root = f"s3://{bucket}"
        store = StoreConfig(url=root) if conn_id is None else s3_store(root, environment_connection(conn_id))
        source = infer_source(open_store(store), key, path)
        return SourceProposal(f"{root}/{source.pattern}", source, conn_id)
    local = unquote(path.removeprefix("file://")) if path.startswith("file://") else path
    is_folder = "*" not in local and (folder / local).is_dir()
    if is_folder:
        root, pattern = file_url(folder / local), ""
    else:
        root, pattern = split_path(absolute_url(local.rstrip("/"), folder))
    source = infer_source(open_store(StoreConfig(url=root)), pattern, path)
    text = posixpath.join(local, source.pattern) if is_folder else local
    return SourceProposal(text if text.startswith("/") else posixpath.normpath(posixpath.join("..", text)), source)


def _require_files(path: str) -> None:
    """Raise InvalidRequest if a path names something else that a source can read."""
    scheme = SCHEME.match(path)
    if scheme is not None and scheme[1].lower() in _NOT_FILES:
        what, page = _NOT_FILES[scheme[1].lower()]
        raise InvalidRequest(
            f"--from reads files, and {scheme[1]}://… names {what}, for which no source is proposed in this version. "
            "Nothing was written.",
            hint=f"Write its source by hand: docs/how-to/{page}",
        )
