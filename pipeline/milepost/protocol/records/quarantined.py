"""Objects of file sources that no epoch reads."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QuarantinedObject:
    """One version of an object of a file source, which no epoch and no replay reads until it is released.

    Another version under the same key is not quarantined: a corrected file is read.

    Attributes:
        key: relative to the source's store root. etag, size: of the version.
        since_ms: when it was quarantined.
    """

    source: str
    key: str
    etag: str
    size: int
    since_ms: int

    @property
    def place(self) -> tuple[str, str]:
        """The source and the key. At most one version of them is quarantined."""
        return self.source, self.key

    @property
    def version(self) -> tuple[str, str, int]:
        """The key, etag and size, by which a plan recognises it."""
        return self.key, self.etag, self.size
