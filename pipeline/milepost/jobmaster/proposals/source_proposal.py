"""Propose the source of a new job from files."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from milepost.errors import InvalidRequest
from milepost.protocol.records import StoreConfig, absolute_url, file_url, location_problem
from milepost.sources.inference import ProposedSource, infer_source
from milepost.sources.planning import split_path
from milepost.storage import open_store


@dataclass(frozen=True, slots=True)
class SourceProposal:
    """A source and where it reads.

    Attributes:
        path: of the files, as a spec in a subfolder of the caller's folder states it.
    """

    path: str
    source: ProposedSource


def propose_source(path: str, folder: Path) -> SourceProposal:
    """Propose a source that reads files.

    Args:
        path: a file, a folder, or a pattern with `*`: an S3 or file URL, or a path relative to `folder`.
        folder: absolute.
    Raises:
        NotFound: there are no files. InvalidRequest: the path is invalid, or no source reads the files.
        StoreUnavailable, EnvironmentUnusable: the store cannot be read.
    """
    problem = location_problem(path)
    if problem is None and "${" in path:
        problem = "a path with `${` would be read as a variable"
    if problem is not None:
        raise InvalidRequest(f"--from {path!r}: {problem}. Nothing was written.")
    if path.startswith("s3://"):
        bucket, _, key = path.removeprefix("s3://").partition("/")
        root = f"s3://{bucket}"
        source = infer_source(open_store(StoreConfig(url=root)), key, path)
        return SourceProposal(f"{root}/{source.pattern}", source)
    local = unquote(path.removeprefix("file://")) if path.startswith("file://") else path
    is_folder = "*" not in local and (folder / local).is_dir()
    if is_folder:
        root, pattern = file_url(folder / local), ""
    else:
        root, pattern = split_path(absolute_url(local.rstrip("/"), folder))
    source = infer_source(open_store(StoreConfig(url=root)), pattern, path)
    text = posixpath.join(local, source.pattern) if is_folder else local
    return SourceProposal(text if text.startswith("/") else posixpath.normpath(posixpath.join("..", text)), source)
