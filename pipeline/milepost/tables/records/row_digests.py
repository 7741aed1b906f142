"""Digests of the rows of files, which do not depend on how the rows are divided into files."""

from __future__ import annotations

from collections.abc import Iterable

from milepost.tables.records.committables import StagedFile

DIGEST_MODULUS = 1 << 256


def rows_identity(files: Iterable[StagedFile]) -> str | None:
    """Return a fingerprint of the rows of some files that does not depend on how they are divided into files.

    It is the sum, modulo 2^256, of the digests under which the rows were first written. So a joined file has the sum of
    its inputs, as does a file joined from joined files. None if a digest is unknown.
    """
    digests = [row_digest(file) for file in files]
    return None if None in digests else f"{sum(filter(None, digests)) % DIGEST_MODULUS:064x}"


def row_digest(file: StagedFile) -> int | None:
    """Return the digest of a file's rows; None: it is unknown."""
    digest = file.rows_of or file.sha256
    return int(digest, 16) if digest else None
