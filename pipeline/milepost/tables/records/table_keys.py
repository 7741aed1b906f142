"""Keys of objects below a table's root, and checks of keys in stored records.

Everything that Milepost writes is below ``_milepost/``, which engines of every format ignore::

    _milepost/owner.json                                        owner of the table (`reservation.py`)
    _milepost/owners/<20 digits of 10^19 - n>.json              later owners; the newest one counts
    _milepost/data/chk-<20 digits>/t<token>/<label>-<sha256>.parquet    files that one token staged
    _milepost/heads/<20 digits of 10^19 - n>.json               commits to a managed Parquet table
    _milepost/garbage/                                          lists of unreferenced files (`table_garbage.py`)
"""

from __future__ import annotations

import re
from typing import Annotated

from milepost.codec import sha256_fault
from milepost.errors import StateCorrupt
from milepost.protocol.records import CheckpointId, FencingToken, key_fault
from milepost.tables.records.committables import JoinedFile, StagedFile

OWN = "_milepost/"
DATA = f"{OWN}data/"

_DATA_KEY = re.compile(rf"{DATA}chk-(\d{{20}})/t(\d+)/(?:j?\d+(?:-\d+)?|all)-[0-9a-f]{{64}}\.parquet")


def staged_prefix(checkpoint_id: int, token: int) -> str:
    """Return the prefix of the files that one token stages for one checkpoint."""
    return f"{DATA}chk-{checkpoint_id:020d}/t{token}/"


def staged_by(key: str) -> tuple[CheckpointId, FencingToken] | None:
    """Return the checkpoint and token that staged a file; None for a key that staging never generates."""
    match = _DATA_KEY.fullmatch(key)
    return None if match is None else (CheckpointId(int(match[1])), FencingToken(int(match[2])))


def table_key_fault(key: str) -> str | None:
    """Return why a key cannot be that of a table's file, or None. Engines may store files anywhere below the root."""
    if staged_by(key) is not None:
        return None
    if key_fault(key) is not None or key.endswith("/") or key.startswith("_"):
        return f"{key!r} is not a valid key of a table's file"
    return None


def _file_fault(file: StagedFile) -> str | None:
    return table_key_fault(file.key) or sha256_fault(file.sha256)


def _joined_fault(joined: JoinedFile) -> str | None:
    faults = (_file_fault(joined.file), *map(table_key_fault, joined.of))
    if not joined.of or len(set(joined.of)) < len(joined.of):
        return f"{joined.file.key!r} joins no files, or the same file twice"
    return next((fault for fault in faults if fault is not None), None)


TableFile = Annotated[StagedFile, _file_fault]
"""A file that a stored record names."""

TableJoin = Annotated[JoinedFile, _joined_fault]
"""A file that a stored record names, and the files that it replaces."""


def check_staged_key(file: StagedFile) -> StagedFile:
    """Return the file if staging can have generated its key. Raises StateCorrupt."""
    if staged_by(file.key) is None or sha256_fault(file.sha256) is not None:
        raise StateCorrupt(f"{file.key!r} is not the key of a staged file", key=file.key)
    return file
