"""The SQL text of a job, and the files that its lines come from."""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class SqlText:
    """Statements, as they are compiled.

    Attributes:
        file: the file that the spec names. digest: hex SHA-256 of its text as it was read, combined with `compiled`.
        parts: (line before its first one, file) of each part of the text, ascending.
        compiled: text of the compiled spec whose steps are reused; "" if the spec names none.
    """

    # parts ((0, "models/a.sql"), (4, "models/b.sql")): line 7 of the text is line 3 of models/b.sql
    file: str
    text: str
    digest: str
    parts: tuple[tuple[int, str], ...]
    compiled: str = ""

    @classmethod
    def of(cls, file: str, text: str) -> SqlText:
        """Return the text of one SQL file."""
        return cls(file, text, cls.digest_of(text), ((0, file),))

    @staticmethod
    def digest_of(text: str, compiled: str = "") -> str:
        """Return the digest by which a change of a file is noticed."""
        return hashlib.sha256((f"{text}\0{compiled}" if compiled else text).encode()).hexdigest()

    def with_compiled(self, compiled: str) -> SqlText:
        """Return the statements with the compiled spec whose steps are reused."""
        return replace(self, compiled=compiled, digest=self.digest_of(self.digest, compiled))

    def place(self, line: int, column: int) -> tuple[str, int, int]:
        """Return the file, line and column of a position of the text."""
        index = max(bisect_right(self.parts, line, key=lambda part: part[0]) - 1, 0)
        before, file = self.parts[index]
        return file, max(line - before, 1), max(column, 1)
