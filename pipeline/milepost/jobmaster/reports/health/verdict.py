"""Judge a job's tables: are they fresh, complete and right?

Each answer has a grade. The grade compares the newest epochs with a bound of the spec (`health`). Without a bound, it
compares them with the median of the job's past epochs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from milepost.codec import OmitNone
from milepost.epoch import CheckpointMetadata, counted, lasting, recorded_watermark_us, watermark_text
from milepost.jobmaster.reports.health.since import Since, since
from milepost.jobspec.job import HealthSpec
from milepost.protocol.records import QUALITY_GATE_REASONS, CompletedCheckpoint
from milepost.quality import VerdictStatus

RECENT_MS = 3_600_000
"""Epochs that completed within this time before the newest one are judged together, besides the newest one alone."""

USUAL_EPOCHS, USUAL_SPAN_MS = 20, 86_400_000
"""An age is compared with the past only if that has so many epochs and lasted so long. Shorter ones have no nights."""

_FEW_ROWS = 10
"""Fewer rows than this are too few for a share above the bound to mean something, unless it is most rows."""

_GATE_REASONS = frozenset(reason.value for reason in QUALITY_GATE_REASONS)

_WARNING, _SKIPPED = VerdictStatus.WARNING.value, VerdictStatus.SKIPPED.value

_MOST = 0.5
_TIMES_USUAL, _HIGHEST_BOUND = 3, 0.1
_LEAST_BOUNDS = {"late": 0.01, "dropped": 0.001, "bad": 0.01, "rejected": 0.01}


class Grade(Enum):
    """How good an answer is, the worst last. UNKNOWN: there is nothing to judge it by, so it decides nothing."""

    UNKNOWN = "unknown"
    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"

    def __lt__(self, other: Grade) -> bool:
        grades = list(Grade)
        return grades.index(self) < grades.index(other)


@dataclass(frozen=True, slots=True)
class Finding:
    """The answer to one question about a job's tables.

    Attributes:
        text: the answer in words, for one line. since: when it became a warning or worse; omitted if it is not one.
    """

    grade: Grade
    text: str
    since: OmitNone[Since] = None


@dataclass(frozen=True, slots=True)
class JobVerdict:
    """The answers about a job's tables.

    Attributes:
        fresh: how old the data is. complete: how many rows are late, dropped, unreadable or rejected by rules.
        right: results of the quality gate.
    """

    fresh: Finding
    complete: Finding
    right: Finding

    @property
    def grade(self) -> Grade:
        """The worst of the three."""
        return max(self.fresh.grade, self.complete.grade, self.right.grade)


class EpochCounts(NamedTuple):
    """What a verdict needs of a completed epoch.

    Attributes:
        completed_ms: when the checkpoint completed.
        rows: rows and unreadable records that it read. judged: rows of sinks that have row rules.
        late, dropped, bad, rejected: as in `CheckpointReport`; None: not recorded.
        watermark_us: None: it has none, or the job is drained.
    """

    checkpoint_id: int
    completed_ms: int
    rows: int
    late: int | None
    dropped: int | None
    bad: int | None
    watermark_us: int | None
    quality: str | None
    judged: int | None = None
    rejected: int | None = None

    def share_of(self, kind: str) -> float:
        """Return the share of rows of a kind, 0 to 1."""
        return (getattr(self, kind) or 0) / max(1, self.whole(kind))

    def whole(self, kind: str) -> int:
        """Return the rows of which those of a kind are a part."""
        return (self.judged or 0) if kind == "rejected" else self.rows


def epoch_counts(checkpoint: CompletedCheckpoint) -> EpochCounts:
    """Return what the manifest has of a checkpoint."""
    rows, late, dropped, bad, judged, rejected = (
        value if isinstance(value := checkpoint.summary.get(name), int) else None
        for name in ("rows_in", "late_rows", "dropped_rows", "bad_records", "judged_rows", "rejected_rows")
    )
    quality = checkpoint.summary.get("quality")
    return EpochCounts(
        checkpoint_id=int(checkpoint.checkpoint_id),
        completed_ms=checkpoint.completed_time_ms,
        rows=(rows or 0) + (bad or 0),
        late=late,
        dropped=dropped,
        bad=bad,
        watermark_us=recorded_watermark_us(checkpoint.summary.get("watermark")),
        quality=quality if isinstance(quality, str) else None,
        judged=judged,
        rejected=rejected,
    )


def judge_freshness(epochs: Sequence[EpochCounts], bounds: HealthSpec, now_ms: int, overdue: str | None) -> Finding:
    """Return how old the event time is up to which the tables are complete.

    Example: the past epochs completed 5 min after their watermarks, hourly. So readers saw data of up to 65 min, and a
    watermark of 3 h ago is a warning: it is more than twice that. The usual age is given where no limit of the spec is.

    Args:
        epochs: completed ones, oldest first; the last is the head.
        overdue: why input is missing, if a source says so.
    """
    if overdue is not None:
        return Finding(Grade.WARNING, overdue)
    timed = [(one.completed_ms, one.watermark_us // 1000) for one in epochs if one.watermark_us is not None]
    if not epochs or epochs[-1].watermark_us is None or not timed:
        return Finding(Grade.UNKNOWN, "no event time says how old the rows are")
    newest_ms = timed[-1][1]
    age_ms = now_ms - newest_ms
    past = timed[:-1] if bounds.max_age is None else []
    usual = f", usually {lasting(round(median(done - mark for done, mark in past)))}" if past else ""
    time = str(watermark_text(newest_ms // 1000 * 1_000_000)).removesuffix("+00:00").replace("T", " ")
    age = f"{lasting(age_ms)} old" if age_ms >= 0 else f"{lasting(-age_ms)} in the future"
    text = f"{age} (event time {time} UTC{usual})"
    bound_ms = _age_bound_ms(timed) if bounds.max_age is None else round(bounds.max_age.total_seconds() * 1000)
    if bound_ms is None:
        return Finding(Grade.UNKNOWN, text)
    if age_ms <= bound_ms:
        return Finding(Grade.GOOD, text)
    return Finding(Grade.WARNING, f"{text}, over the limit of {lasting(bound_ms)}", since(now_ms, newest_ms + bound_ms))


def _age_bound_ms(timed: Sequence[tuple[int, int]]) -> int | None:
    """Return twice the greatest age that readers saw: that of an epoch's data when the next one completed."""
    if len(timed) < USUAL_EPOCHS or timed[-1][0] - timed[0][0] < USUAL_SPAN_MS:
        return None
    return 2 * max(after - mark for (_, mark), (after, _) in pairwise(timed))


def judge_completeness(epochs: Sequence[EpochCounts], bounds: HealthSpec, now_ms: int) -> Finding:
    """Return how many rows of the newest epochs are late, dropped, unreadable or rejected by rules.

    The newest epoch with input is judged alone, and the last hour as one; the worse answer counts. So a flood of late
    rows is seen for an hour, and one late row of a small epoch is not a flood.

    Args:
        epochs: completed ones, oldest first.
    """
    read = [one for one in epochs if one.rows]
    if not read:
        return Finding(Grade.UNKNOWN, "no epoch has read rows")
    recent = [one for one in read if one.completed_ms > read[-1].completed_ms - RECENT_MS]
    alone = _complete("in the newest epoch", read[-1:], read[:-1], bounds)
    together = _complete(f"in the last {counted(len(recent), 'epoch')}", recent, read, bounds)
    worse = max(alone, together, key=lambda finding: finding.grade)
    if worse.grade in (Grade.UNKNOWN, Grade.GOOD):
        return worse
    return replace(worse, since=_since(_first_missing(read, recent, bounds), now_ms))


def _first_missing(read: Sequence[EpochCounts], recent: Sequence[EpochCounts], bounds: HealthSpec) -> EpochCounts:
    """Return where the newest unbroken run of epochs that each miss too many rows begins.

    If no recent epoch misses too many by itself, the recent ones do so together. Then this is the first of them.
    """
    usual = _usual_shares(read, [*_LEAST_BOUNDS])

    def is_missing(one: EpochCounts) -> bool:
        return max(_grades([one], usual, bounds).values()) > Grade.GOOD

    last = next((at for at in range(len(read) - 1, -1, -1) if is_missing(read[at])), None)
    if last is None or read[last].completed_ms < recent[0].completed_ms:
        return recent[0]
    return read[next((at + 1 for at in range(last - 1, -1, -1) if not is_missing(read[at])), 0)]


def _since(epoch: EpochCounts, now_ms: int) -> Since:
    return since(now_ms, epoch.completed_ms, epoch.checkpoint_id)


def _complete(where: str, judged: Sequence[EpochCounts], others: Sequence[EpochCounts], bounds: HealthSpec) -> Finding:
    """Return the finding of some epochs together. others: the epochs whose median share is the usual one."""
    rows = sum(one.rows for one in judged)
    counts, limits = _counts(judged), _limits(bounds)
    usual = _usual_shares(others, [kind for kind, count in counts.items() if count])
    grades = _grades(judged, usual, bounds)
    has_rules = any(one.judged for one in judged)
    if not any(counts.values()):
        none = "none late, unreadable or rejected" if has_rules else "none late or unreadable"
        return Finding(Grade.GOOD, f"{counted(rows, 'row')} {where}, {none}")
    share = f"of {sum(one.judged or 0 for one in judged):,} rejected by rules"
    texts = {
        "late": f"{counts['late']:,} of {counted(rows, 'row')} late",
        "dropped": f"{counts['dropped']:,} dropped" if counts["late"] else "",
        "bad": f"{counts['bad']:,} unreadable" if counts["bad"] else "",
        "rejected": f"{counts['rejected']:,} {share}" if counts["rejected"] else "",
    }
    parts = [
        text + ("" if grades[kind] is Grade.GOOD else f" ({_compared(usual[kind], limits[kind])})")
        for kind, text in texts.items()
        if text
    ]
    return Finding(max(grades.values()), ", ".join([*parts, where]))


def _counts(epochs: Sequence[EpochCounts]) -> dict[str, int]:
    return {kind: sum(getattr(one, kind) or 0 for one in epochs) for kind in _LEAST_BOUNDS}


def _usual_shares(epochs: Sequence[EpochCounts], kinds: Collection[str]) -> dict[str, float]:
    """Return the median share of each kind, 0 for kinds that are not requested."""
    shares = {kind: median([one.share_of(kind) for one in epochs] or [0.0]) for kind in kinds}
    return dict.fromkeys(_LEAST_BOUNDS, 0.0) | shares


def _limits(bounds: HealthSpec) -> dict[str, float | None]:
    return {
        "late": bounds.max_late_ratio,
        "dropped": bounds.max_dropped_ratio,
        "bad": bounds.max_bad_ratio,
        "rejected": bounds.max_rejected_ratio,
    }


def _grades(judged: Sequence[EpochCounts], usual: Mapping[str, float], bounds: HealthSpec) -> dict[str, Grade]:
    """Return the grade of each kind of missing rows, of some epochs together."""
    limits = _limits(bounds)
    return {
        kind: _grade(
            count,
            max(1, sum(one.whole(kind) for one in judged)),
            _bound(kind, usual[kind]) if (limit := limits[kind]) is None else limit,
        )
        for kind, count in _counts(judged).items()
    }


def _compared(usual: float, limit: float | None) -> str:
    """Return what a share that is too high was compared with. limit: by the spec."""
    return f"usually {usual:.1%}" if limit is None else f"over the limit of {100 * limit:.4g}%"


def _bound(kind: str, usual: float) -> float:
    return min(_HIGHEST_BOUND, max(_LEAST_BOUNDS[kind], _TIMES_USUAL * usual))


def _grade(count: int, rows: int, bound: float) -> Grade:
    """Return the grade of `count` of `rows`. 20 of 30 are bad, 9 of 9 are a warning, and 2 of 20 too few to say."""
    share = count / rows
    if share <= bound or (count < _FEW_ROWS and share <= _MOST):
        return Grade.GOOD
    return Grade.BAD if share > _MOST and count >= _FEW_ROWS else Grade.WARNING


def judge_rules(
    epochs: Sequence[EpochCounts],
    head: CheckpointMetadata | None,
    last_failure: str | None,
    now_ms: int,
    failing: Since | None = None,
) -> Finding:
    """Return the quality gate's results for the newest epochs.

    Args:
        head: the newest completed epoch. last_failure: reason of the epoch after it, if that failed.
        failing: since when epochs fail.
    """
    if last_failure in _GATE_REASONS:
        return Finding(Grade.BAD, "the quality gate refused the last epoch", failing)
    results = [] if head is None else [(one.sink, rule) for one in head.verdict.verdicts for rule in one.expectations]
    if not results:
        return Finding(Grade.UNKNOWN, "no rule checks the rows")
    unmet = [f"sink {sink}: {rule.describe()}" for sink, rule in results if not rule.success]
    met = f"{len(results) - len(unmet)} of {counted(len(results), 'rule')} met"
    if unmet:
        return Finding(Grade.WARNING, f"{met}: {unmet[0]}", _warned_since(epochs, now_ms))
    warned = sum(one.quality == _WARNING for one in epochs)
    earlier = f"; {warned} of the last {len(epochs)} epochs had a warning" if warned else ""
    return Finding(Grade.GOOD, f"{met}{earlier}")


def _warned_since(epochs: Sequence[EpochCounts], now_ms: int) -> Since | None:
    """Return where the newest run of epochs with a warning began. Epochs that the gate skipped do not end it."""
    first = None
    for one in reversed(epochs):
        if one.quality == _WARNING:
            first = one
        elif one.quality != _SKIPPED:
            break
    return None if first is None else _since(first, now_ms)
