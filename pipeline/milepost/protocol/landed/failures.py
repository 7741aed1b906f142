"""Record the last landing failure of a source, for reports only.

The newest failure overwrites the previous one unconditionally, so concurrent landings do not conflict. A newer
record of the log supersedes it::

    record 7      failure after record 7: SourceUnreachable      reported
    record 8                                                     no longer reported
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from milepost.codec import Count, Text
from milepost.protocol.landed.records import LogRecord

MESSAGE_CHARACTERS, HINT_CHARACTERS = 1_000, 500
"""Maximum length of the texts of a stored failure."""


@dataclass(frozen=True, slots=True)
class LandingFailure:
    """Why a source was not landed. Earlier records of its log are unchanged.

    Attributes:
        error: name of the error's class. runbook: name of its page.
        may_pass: whether another landing may succeed without any correction.
    """

    source: Text
    error: Text
    message: Text
    hint: str
    runbook: Text
    may_pass: bool

    @property
    def text(self) -> str:
        """The error with its message, on one line."""
        return f"{self.error}: {' '.join(self.message.split())}"


@dataclass(frozen=True, slots=True)
class FailureRecord:
    """The last failure of a source, as stored. Its texts are shortened.

    Attributes:
        log, sequence: id of the log, and its newest record at the time. None and 0: there was no log yet.
        failed_at_ms: by the clock of the job's store.
    """

    stored_format: ClassVar[str] = "milepost.landing-failure/1"

    error: Text
    message: Text
    hint: str
    runbook: Text
    may_pass: bool
    log: Text | None
    sequence: Count
    failed_at_ms: Count

    def failure_of(self, source: str) -> LandingFailure:
        """Return the failure. source: its current name in the spec."""
        return LandingFailure(source, self.error, self.message, self.hint, self.runbook, self.may_pass)

    def is_current(self, newest: LogRecord | None) -> bool:
        """Return whether nothing was appended to the log since the failure.

        Args:
            newest: record of the source's log; None: nothing was landed yet.
        """
        return (self.log, self.sequence) == ((None, 0) if newest is None else (newest.log, newest.sequence))


def failure_record(newest: LogRecord | None, now_ms: int, failure: LandingFailure) -> FailureRecord:
    """Return the record to store. newest: record of the log; None: nothing was landed yet."""
    return FailureRecord(
        failure.error,
        _shortened(failure.message, MESSAGE_CHARACTERS) or failure.error,
        _shortened(failure.hint, HINT_CHARACTERS),
        failure.runbook,
        failure.may_pass,
        log=None if newest is None else newest.log,
        sequence=0 if newest is None else newest.sequence,
        failed_at_ms=now_ms,
    )


def _shortened(text: str, characters: int) -> str:
    text = text.strip()
    return text if len(text) <= characters else f"{text[: characters - 1]}…"
