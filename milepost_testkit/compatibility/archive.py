"""A folder as one compressed file, with the time of each file: an object's version in a folder is its size and time."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

_MTIME_NS = "MILEPOST.mtime_ns"


def pack(folder: Path, archive: Path) -> None:
    """Write a folder's files into a new archive. Equal folders give equal bytes. Raises FileExistsError."""
    with tarfile.open(archive, "x:xz", format=tarfile.PAX_FORMAT, preset=9) as tar:
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            member = tarfile.TarInfo(path.relative_to(folder).as_posix())
            status = path.stat()
            member.size, member.pax_headers = status.st_size, {_MTIME_NS: str(status.st_mtime_ns)}
            with path.open("rb") as file:
                tar.addfile(member, file)


def unpack(archive: Path, folder: Path) -> None:
    """Write an archive's files below a folder."""
    with tarfile.open(archive, "r:xz") as tar:
        for member in tar:
            file = folder / member.name
            file.parent.mkdir(parents=True, exist_ok=True)
            content = tar.extractfile(member)
            assert content is not None, f"{archive} has {member.name}, which is no file"
            file.write_bytes(content.read())
            mtime_ns = int(member.pax_headers[_MTIME_NS])
            os.utime(file, ns=(mtime_ns, mtime_ns))
