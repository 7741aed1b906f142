"""The verdict of the quality gate: counts, never values of rows.

A verdict is stored with the checkpoint's metadata and printed by `milepost show`. So for each expectation it has only
the number of rows checked and the number refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from milepost.codec import to_json
from milepost.errors import QualityGateFailed
from milepost.protocol.records import CheckpointFailureReason


class VerdictStatus(Enum):
    """In ascending order of severity. FAILED (a critical expectation is not met) and ERROR (one raised) veto."""

    SKIPPED = "skipped"
    PASSED = "passed"
    WARNING = "warning"
    FAILED = "failed"
    ERROR = "error"

    @property
    def vetoes(self) -> bool:
        """Whether nothing of the epoch may be published."""
        return self in (VerdictStatus.FAILED, VerdictStatus.ERROR)


SAMPLED, REFUSED, REQUIRED = "sampled_rows", "refused_rows", "required_percent"

_FORMER_NAMES = ("dropped_rows", "quarantined_rows")
"""Of `refused_rows`, in records of older versions."""

_GRAVITY = {status: rank for rank, status in enumerate(VerdictStatus)}


@dataclass(frozen=True, slots=True)
class ExpectationResult:
    """One expectation's outcome.

    Attributes:
        column: the column (or columns, comma-separated) it checks; None for the whole table.
        severity: critical, warning or info; None: it judges single rows without `mostly`, so it is always met.
        success: whether it is met. False if it raised.
        observed: counts by name, if it has them: element_count, missing_count, unexpected_count, unexpected_percent,
            sampled_rows, the size of the sample that it was evaluated on. An expectation that judges single rows has
            refused_rows, and required_percent with `mostly`. A row that two of them refuse is in both counts.
        exception: one line if it raised, which vetoes whatever the severity.
    """

    type: str
    column: str | None
    severity: str | None
    success: bool
    observed: Mapping[str, int | float]
    exception: str | None

    @property
    def subject(self) -> str:
        return f"{self.type}({self.column})" if self.column else self.type

    @property
    def refused(self) -> str | None:
        """How many rows it kept out of the table, as text; None: it judges all rows together, or refused none."""
        count = self.observed.get(REFUSED, 0)
        return f"{count} refused" if count else None

    def describe(self) -> str:
        """Return the result as one clause of text, without data values: the message of an exception may have some."""
        subject = self.subject
        if self.exception is not None:
            name, colon, _ = self.exception.partition(": ")
            return f"{subject} raised {name if colon and name.isidentifier() else 'an exception'}"
        unexpected, seen = self.observed.get("unexpected_count"), self.observed.get("element_count")
        sample = self.observed.get(SAMPLED)
        of_sample = "" if sample is None else f", of a sample of {sample} rows"
        if unexpected is not None and seen is not None:
            required = self.observed.get(REQUIRED)
            bound = "" if required is None else f", at least {required:g} % must pass"
            return f"{subject} refused {unexpected} of {seen} rows{of_sample}{bound}"
        return f"{subject} is not met{of_sample}"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The gate's answer for one sink in one epoch.

    Attributes:
        rows: number of rows that the epoch would publish to it.
        expectations: in the order of the spec; empty when skipped.
    """

    sink: str
    status: VerdictStatus
    rows: int
    expectations: tuple[ExpectationResult, ...]

    @property
    def vetoing(self) -> list[int]:
        """Positions of the expectations that veto: critical ones that are not met, and all that raised."""
        return [
            number
            for number, result in enumerate(self.expectations)
            if result.exception is not None or (not result.success and result.severity == "critical")
        ]


def status_of(results: Sequence[ExpectationResult]) -> VerdictStatus:
    """Return the status of a suite with these results."""
    if any(result.exception is not None for result in results):
        return VerdictStatus.ERROR
    broken = [result.severity for result in results if not result.success]
    if "critical" in broken:
        return VerdictStatus.FAILED
    return VerdictStatus.WARNING if broken else VerdictStatus.PASSED


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """The gate's answer for one epoch: the most severe status of its sinks, or SKIPPED without any."""

    status: VerdictStatus
    verdicts: tuple[Verdict, ...]

    @classmethod
    def of(cls, verdicts: tuple[Verdict, ...]) -> GateVerdict:
        gravest = max((v.status for v in verdicts), key=lambda s: _GRAVITY[s], default=VerdictStatus.SKIPPED)
        return cls(gravest, verdicts)

    @property
    def vetoes(self) -> bool:
        """Whether nothing of the epoch may be published."""
        return self.status.vetoes

    def check(self) -> str | None:
        """Return why the status does not fit the verdicts, or None."""
        expected = GateVerdict.of(self.verdicts).status
        return None if self.status is expected else f"says {self.status.value}, its verdicts say {expected.value}"

    def summary(self) -> str:
        """Return one line of text: the status, and up to three expectations that are not met."""
        broken = [
            f"sink {verdict.sink}: {result.describe()} ({result.severity})"
            for verdict in self.verdicts
            for result in verdict.expectations
            if not result.success
        ]
        shown = "; ".join(broken[:3]) + (f"; and {len(broken) - 3} more" if len(broken) > 3 else "")
        return f"{self.status.value}: {shown}" if shown else self.status.value

    def raise_if_vetoed(self, job: str, checkpoint_id: int) -> None:
        """Raise QualityGateFailed if the epoch must not be published."""
        if self.vetoes:
            undecided = self.status is VerdictStatus.ERROR
            reason = (
                CheckpointFailureReason.QUALITY_GATE_ERROR if undecided else CheckpointFailureReason.QUALITY_GATE_FAILED
            )
            raise QualityGateFailed(
                f"checkpoint {checkpoint_id}: the quality gate says {self.summary()}. "
                "Nothing of this epoch is published.",
                hint=f"milepost show {job} {checkpoint_id} shows the refused rows; correct them where they come from, "
                "quarantine their object, or correct the gate, then run again",
                reason=reason.value,
                detail=self.summary(),
                checkpoint_id=checkpoint_id,
                quality=to_json(self),
            )


def current_verdict(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON of a stored `GateVerdict` with the counts of expectations under the names of this version."""
    verdicts = []
    for verdict in document["verdicts"]:
        results = [{**one, "observed": current_counts(one["observed"])} for one in verdict["expectations"]]
        verdicts.append({**verdict, "expectations": results})
    return {**document, "verdicts": verdicts}


def current_counts(observed: Mapping[str, Any]) -> dict[str, Any]:
    """Return the stored counts of an expectation under the names of this version."""
    return {REFUSED if name in _FORMER_NAMES else name: count for name, count in observed.items()}
