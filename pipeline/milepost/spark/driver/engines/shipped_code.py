"""Ship this process's code to the executors, so that nothing is installed there.

Spark unpacks the archive into the folder `milepost` of the working directory of an executor's Python daemon and its
workers. Python searches that directory first, so a version installed on the executor is never run (I13).
"""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from milepost.epoch import CODE_HASH, PACKAGE, hash_sources, private_cache, sources_of
from milepost.errors import EnvironmentUnusable
from milepost.language import ARCHIVES, PYTHON, SESSION_PYTHON
from milepost.protocol.records import unusable_disk_error

FOLDER = "milepost"
_WRITTEN = (1980, 1, 1, 0, 0, 0)
"""Modification time of every file, the earliest that ZIP allows: the same code gives the same archive."""


@dataclass(frozen=True, slots=True)
class Archive:
    """One of a spec's `spark.archives`, for a session on a Spark Connect server.

    Attributes:
        text: entry of the spec: `env.tar.gz#environment` is a file and the folder that it is unpacked to.
        identity: the entry with the file's current size and modification time.
    """

    text: str
    identity: str


def parted(conf: Mapping[str, str]) -> tuple[dict[str, str], list[Archive]]:
    """Split `spark.conf` into the settings of a session on a server and the archives that are sent to it.

    Raises:
        EnvironmentUnusable: an archive does not exist.
    """
    settings = dict(conf)
    texts = [text.strip() for text in settings.pop(ARCHIVES, "").split(",") if text.strip()]
    if python := settings.pop(PYTHON, None):
        settings[SESSION_PYTHON] = python
    return settings, [Archive(text, _identity(text)) for text in texts]


def _identity(text: str) -> str:
    address = urlsplit(text)
    try:
        stat = Path(url2pathname(address.path)).stat()
    except OSError as error:
        raise EnvironmentUnusable(
            f"{ARCHIVES} in `spark.conf`: expected a file on this machine, got {text} ({error.strerror}). Nothing was "
            "run.",
            hint="correct it; a Spark Connect server is sent files of this machine only",
        ) from None
    return f"{text} {stat.st_size} {stat.st_mtime_ns}"


def shipped_code() -> Path:
    """Return the archive of this process's code: `<private cache>/code-1/<code hash>.zip`, created once.

    Raises:
        EnvironmentUnusable: the files of the package have changed since this process imported them.
    """
    archive = private_cache() / "code-1" / f"{CODE_HASH}.zip"
    if not archive.is_file():
        _write(archive)
    return archive


def _write(archive: Path) -> None:
    sources = [*sources_of(PACKAGE)]
    if hash_sources(sources) != CODE_HASH:
        raise EnvironmentUnusable(
            f"the code of Milepost in {PACKAGE} changed after this process had imported it, so it cannot be sent to "
            "Spark's executors. Nothing was run.",
            hint="run the epoch in a new process",
        )
    try:
        archive.parent.mkdir(exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=archive.parent, prefix=".code-") as folder:
            packed = Path(folder) / archive.name
            with zipfile.ZipFile(packed, "w") as written:
                for name, body in sources:
                    about = zipfile.ZipInfo(name, _WRITTEN)
                    about.external_attr = 0o644 << 16
                    written.writestr(about, body, zipfile.ZIP_DEFLATED)
            packed.replace(archive)
    except OSError as error:
        raise unusable_disk_error(
            str(archive.parent),
            "store the code for Spark's executors",
            error,
            alternative="set XDG_CACHE_HOME to a folder on another disk",
            now_true="Nothing was run.",
        ) from error
