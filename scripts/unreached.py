"""Reasons why something could not be fetched, which the last line of `make test-all` reports."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Unreached:
    """Why the last attempt to fetch something reached no server, stored in a file until the next attempt.

    Attributes:
        what: that cannot run without it, for messages. cause: a clause such as "Maven Central was not reached".
    """

    file: Path
    what: str
    cause: str

    def reason(self) -> str | None:
        """Return the stored reason; None: the last attempt succeeded, or there was none."""
        return self.file.read_text(encoding="utf-8").strip() if self.file.exists() else None

    def store(self, reason: str) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        self.file.write_text(f"{reason}\n", encoding="utf-8")

    def clear(self) -> None:
        self.file.unlink(missing_ok=True)

    def closing_words(self) -> str | None:
        """Return the part of the last line of `make test-all`; None: it ran."""
        reason = self.reason()
        return None if reason is None else f"{self.what} DID NOT RUN, {self.cause}: {reason}"
