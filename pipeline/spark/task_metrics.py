"""What one task measured, in a side object of its own.

Metrics differ between attempts, so they never travel with the data (I12): each attempt writes
`chk-<id>/t<token>/metrics/<level>-<subtask>-a<attempt>.json`, and the driver reads them for `show`.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class TaskMetrics:
    """Times (milliseconds since the previous mark) and counts of one attempt of one subtask.

    Attributes:
        attempt: Spark's attempt number, from 0; never part of identity.
        alignment_ms: longest time between the first and the last barrier that an operator processed.
        in_flight_bytes: of the buffers that the subtask left unprocessed.
        left_ms: from the end of its processing to its deadline, negative when it was late; None without deadline.
    """

    level: int
    subtask: int
    attempt: int
    rows_in: int = 0
    alignment_ms: int = 0
    in_flight_bytes: int = 0
    left_ms: int | None = None
    marks: dict[str, int] = field(default_factory=dict)
    _last: float = field(default_factory=time.monotonic)

    def mark(self, name: str) -> None:
        """Add the time since the previous mark to `name`."""
        now = time.monotonic()
        self.marks[name] = self.marks.get(name, 0) + round((now - self._last) * 1000)
        self._last = now

    def aligned(self, duration_ms: int, in_flight_bytes: int) -> None:
        """One operator has reached its barrier."""
        self.alignment_ms = max(self.alignment_ms, duration_ms)
        self.in_flight_bytes += in_flight_bytes

    @property
    def file_name(self) -> str:
        return f"{self.level}-{self.subtask}-a{self.attempt}.json"

    def encode(self) -> bytes:
        document: dict[str, Any] = {
            "level": self.level,
            "subtask": self.subtask,
            "attempt": self.attempt,
            "rows_in": self.rows_in,
            "alignment_ms": self.alignment_ms,
            "in_flight_bytes": self.in_flight_bytes,
            "left_ms": self.left_ms,
            **self.marks,
        }
        return json.dumps(document, sort_keys=True).encode()
