"""The code that runs an epoch goes to executors with it, by Spark's own means: nothing is installed there by hand.

It travels as an archive that Spark unpacks into the folder `milepost` of the directory that an executor's Python
daemon, and so each of its workers, is started in. Python looks there first: what may be installed on an executor is not
run (I13).
"""

from __future__ import annotations

import os
import tempfile
import zipfile
from pathlib import Path

from milepost.epoch.code_hash import CODE_HASH, PACKAGE, hash_sources, sources_of
from milepost.epoch.private_cache import private_cache
from milepost.protocol.records.errors import EnvironmentUnusable

FOLDER = "milepost"
_WRITTEN = (1980, 1, 1, 0, 0, 0)
"""When each file was written, as far as a ZIP can say: the same code is the same archive."""


def shipped_code() -> Path:
    """Return the archive of this process's code, named by its hash; made once, in the user's private cache.

    Raises: EnvironmentUnusable: the files of the package are not those that this process has imported.
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
    archive.parent.mkdir(exist_ok=True, mode=0o700)
    descriptor, temporary = tempfile.mkstemp(dir=archive.parent, prefix=".code-")
    with os.fdopen(descriptor, "wb") as stream, zipfile.ZipFile(stream, "w") as written:
        for name, body in sources:
            about = zipfile.ZipInfo(name, _WRITTEN)
            about.external_attr = 0o644 << 16
            written.writestr(about, body, zipfile.ZIP_DEFLATED)
    Path(temporary).replace(archive)
