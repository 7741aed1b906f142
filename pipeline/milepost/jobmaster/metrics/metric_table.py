"""The table of metrics: name, meaning, and the document field that each one reads.

Names are Flink's where it has one (`numRecordsIn`, `lastCheckpointDuration`), else Spark's (`numRowsTotal`). Exporters,
the reference page and the test of the dashboard are all generated from this table. No label contains a checkpoint, run
or machine, because each label value is a series that a monitoring database stores.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum

_CAPITAL = re.compile(r"(?=[A-Z])")


class Kind(Enum):
    """How a metric is exported.

    GAUGE: the current value. EPOCH: an epoch's increment, exported as that of the newest epoch. STATE: a word, exported
    as 1 with the word as a label. EVENT: an occurrence, exported as 1 with the word as a label; pushed, never scraped.
    """

    GAUGE = "gauge"
    EPOCH = "epoch"
    STATE = "state"
    EVENT = "event"


class Unit(Enum):
    """Unit of a value. MOMENT: milliseconds since 1970, converted from text or microseconds."""

    NONE = ""
    MS = "ms"
    BYTES = "bytes"
    MOMENT = "ms since 1970"
    MONEY = "the currency of the label"
    TRUTH = "0 or 1"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric.

    Attributes:
        scope: job, operator, source, sink or phase.
        name: in camel case, without the scope.
        field: path in the documents `status` (of the job) or `checkpoint` (of its head, as in `show`). ``*`` matches
            every key, which becomes the label of the scope.
        label: for a word, the label that it becomes; otherwise a sibling field that becomes an additional label.
        source: the system that the name comes from; "" for our own.
    """

    scope: str
    name: str
    kind: Kind
    unit: Unit
    field: str
    description: str
    source: str = ""
    label: str = ""

    @property
    def full_name(self) -> str:
        """The name in OpenTelemetry and in Airflow's metrics, which ignore case: `milepost.job.num_records_in`."""
        return f"milepost.{self.scope}.{_CAPITAL.sub('_', self.name).lower()}"

    @property
    def prometheus_name(self) -> str:
        """The name as Flink's Prometheus reporter would spell it: `milepost_job_numRecordsIn`."""
        return f"milepost_{self.scope}_{self.name}"

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the labels."""
        scope_label = () if self.scope == "job" else (self.scope,)
        return ("job", *scope_label, *((self.label,) if self.label else ()))


_FLINK, _SPARK = "Flink", "Spark"
_G, _E, _S = Kind.GAUGE, Kind.EPOCH, Kind.STATE
_U = Unit

METRICS: tuple[Metric, ...] = (
    Metric("job", "healthy", _G, _U.TRUTH, "status.healthy", "`milepost status` exits with 0."),
    Metric("job", "status", _S, _U.TRUTH, "status.job_status", "The status of the job.", label="status"),
    Metric("job", "condition", _S, _U.TRUTH, "status.condition",
           "What matters first; of each the runbook has a page of the same name.", label="condition"),
    Metric("job", "fresh", _S, _U.TRUTH, "status.verdict.fresh.grade", "How old its tables are.", label="grade"),
    Metric("job", "complete", _S, _U.TRUTH, "status.verdict.complete.grade",
           "How many rows of the newest epochs are late, dropped, unreadable or rejected.", label="grade"),
    Metric("job", "right", _S, _U.TRUTH, "status.verdict.right.grade", "What the quality gate said of them.",
           label="grade"),
    Metric("job", "lastFailure", _S, _U.TRUTH, "status.last_failure",
           "Why the last epoch failed; no series when it did not.", label="reason"),
    Metric("job", "totalNumberOfCheckpoints", _G, _U.NONE, "status.triggered_checkpoints",
           "Checkpoints that were triggered, on all timelines.", _FLINK),
    Metric("job", "numberOfCompletedCheckpoints", _G, _U.NONE, "checkpoint.epoch",
           "Completed checkpoints of the live lineage: a rollback takes some back.", _FLINK),
    Metric("job", "numberOfFailedCheckpoints", _G, _U.NONE, "status.failed_in_a_row",
           "Failed epochs that count since the last success or `resume`.", _FLINK),
    Metric("job", "lastCompletedCheckpointId", _G, _U.NONE, "status.head", "The head.", _FLINK),
    Metric("job", "lastCheckpointCompletedTimestamp", _G, _U.MOMENT, "status.last_success",
           "When the head was completed.", _FLINK),
    Metric("job", "lastCheckpointDuration", _G, _U.MS, "checkpoint.duration_ms",
           "From the trigger of the head until all its tables were published.", _FLINK),
    Metric("job", "lastCheckpointSize", _G, _U.BYTES, "checkpoint.checkpointed_bytes",
           "State that the head's epoch wrote.", _FLINK),
    Metric("job", "lastCheckpointFullSize", _G, _U.BYTES, "checkpoint.full_bytes",
           "State that the head refers to.", _FLINK),
    Metric("job", "lastCheckpointPersistedData", _G, _U.BYTES, "checkpoint.in_flight_bytes",
           "Rows in flight that the head stores.", _FLINK),
    Metric("job", "checkpointAlignmentTime", _G, _U.MS, "checkpoint.alignment_ms",
           "The longest alignment of a subtask of the head's epoch.", _FLINK),
    Metric("job", "currentInputWatermark", _G, _U.MOMENT, "checkpoint.watermark",
           "The least watermark of the sources that have one.", _FLINK),
    Metric("job", "numEpochsFailed", Kind.EVENT, _U.NONE, "aborted.reason", "An epoch that was aborted.",
           label="reason"),
    Metric("job", "quality", _S, _U.TRUTH, "checkpoint.quality", "Quality verdict of the head.", label="verdict"),
    Metric("job", "pendingObjects", _G, _U.NONE, "status.unread_objects", "Landed objects that no epoch has read."),
    Metric("job", "pendingBytes", _G, _U.BYTES, "status.unread_bytes", "Bytes of those.", _FLINK),
    Metric("job", "lag", _G, _U.MS, "status.lag_ms", "How long ago the oldest of those landed."),
    Metric("job", "numRecordsIn", _E, _U.NONE, "checkpoint.rows_in", "Rows that were read.", _FLINK),
    Metric("job", "numRecordsOut", _E, _U.NONE, "checkpoint.rows_out", "Rows that were published.", _FLINK),
    Metric("job", "numLateRecords", _E, _U.NONE, "checkpoint.late_rows",
           "Late rows, each counted once; a sink of `<uid>.late` has those of one operator."),
    Metric("job", "numLateRecordsDropped", _E, _U.NONE, "checkpoint.dropped_rows", "Those that no sink publishes.",
           _FLINK),
    Metric("job", "numRecordsRejected", _E, _U.NONE, "checkpoint.rejected_rows",
           "Rows that the row rules of sinks refused; no series without such rules."),
    Metric("job", "numRecordsQuarantined", _E, _U.NONE, "checkpoint.quarantined_rows",
           "Those of them that went to `<sink>.rejected`."),
    Metric("job", "epochCost", _G, _U.MONEY, "checkpoint.cost.total",
           "What the head's epoch cost, an estimate by `prices`.", label="currency"),
    Metric("job", "monthCost", _G, _U.MONEY, "status.month.total", "What a month costs, an estimate by `prices`.",
           label="currency"),
    Metric("job", "storedBytes", _G, _U.BYTES, "status.month.stored_bytes",
           "State and tables that retained checkpoints refer to; where `prices` are given."),
    Metric("phase", "duration", _G, _U.MS, "checkpoint.phases.*", "How long a phase of the head's epoch took."),
    Metric("phase", "numPutRequests", _E, _U.NONE, "checkpoint.requests.*.puts",
           "Requests to S3 of the classes put, copy, post and list."),
    Metric("phase", "numGetRequests", _E, _U.NONE, "checkpoint.requests.*.gets",
           "Requests to S3 of the classes get and head."),
    Metric("phase", "numDeleteRequests", _E, _U.NONE, "checkpoint.requests.*.deletes", "Deletes asked of S3."),
    Metric("phase", "numBytesOut", _E, _U.BYTES, "checkpoint.requests.*.sent_bytes", "Bytes sent to S3.", _FLINK),
    Metric("phase", "numBytesIn", _E, _U.BYTES, "checkpoint.requests.*.received_bytes", "Bytes received from S3.",
           _FLINK),
    Metric("source", "numRecordsIn", _E, _U.NONE, "checkpoint.sources.*.rows", "Rows that were read of it.", _FLINK),
    Metric("source", "numRecordsInErrors", _E, _U.NONE, "checkpoint.sources.*.bad.records",
           "Records that cannot be read and went to its dead letters.", _FLINK),
    Metric("source", "numObjectsIn", _E, _U.NONE, "checkpoint.sources.*.objects", "Objects that were read of it."),
    Metric("source", "currentOutputWatermark", _G, _U.MOMENT, "checkpoint.sources.*.watermark_us", "Its watermark.",
           _FLINK),
    Metric("source", "pendingObjects", _G, _U.NONE, "status.sources.*.unread_objects", "Its unread objects."),
    Metric("source", "quarantinedObjects", _G, _U.NONE, "status.sources.*.quarantined.count",
           "Its objects that no epoch reads until they are released."),
    Metric("source", "landedRecords", _G, _U.NONE, "status.sources.*.log.records",
           "Records of a landed source since its log began, also those that were deleted."),
    Metric("source", "landedRows", _G, _U.NONE, "status.sources.*.log.rows", "Rows of those."),
    Metric("source", "landedBytes", _G, _U.BYTES, "status.sources.*.log.bytes", "Stored bytes of those."),
    Metric("source", "oldestLandedRecord", _G, _U.NONE, "status.sources.*.log.retained_from",
           "Number of the oldest record that is retained."),
    Metric("source", "landedGaps", _G, _U.NONE, "status.sources.*.log.gaps",
           "Records by which its log continues after lost data."),
    Metric("source", "landedVoids", _G, _U.NONE, "status.sources.*.log.void_records",
           "Records of its log that proved false, and that no epoch reads."),
    Metric("source", "pendingRecords", _G, _U.NONE, "status.sources.*.log.unread_rows",
           "Rows of its log that no epoch has read.", _FLINK),
    Metric("source", "pendingBytes", _G, _U.BYTES, "status.sources.*.log.unread_bytes", "Stored bytes of those.",
           _FLINK),
    Metric("source", "pendingLogRecords", _G, _U.NONE, "status.sources.*.log.unread_records",
           "Records of its log that no epoch has read."),
    Metric("source", "lag", _G, _U.MS, "status.sources.*.log.lag_ms",
           "How long ago the oldest of those that have rows was landed; 0: there is none."),
    Metric("source", "lastLandingTimestamp", _G, _U.MOMENT, "status.sources.*.log.landed_at",
           "When the newest record of its log was appended. A landing without rows may append none."),
    Metric("source", "lastLandingFailure", _S, _U.TRUTH, "status.sources.*.log.failed.error",
           "Why its last landing failed; no series when it did not.", label="error"),
    Metric("source", "landingBacklog", _G, _U.NONE, "status.sources.*.log.backlog.count",
           "What its external system had and was not landed, when that record was read; of sources that can say.",
           label="unit"),
    Metric("source", "landingBacklogAge", _G, _U.MS, "status.sources.*.log.backlog.age_ms",
           "How long the oldest of that had been there then; of tables of other jobs."),
    Metric("source", "sourceIdleTime", _G, _U.MS, "status.sources.*.newest_object_age_ms",
           "How long ago its newest object landed.", _FLINK),
    Metric("source", "currentEmitEventTimeLag", _G, _U.MS, "status.sources.*.event_time_age_ms",
           "How old the newest event time is that it has delivered.", _FLINK),
    Metric("operator", "numRecordsIn", _E, _U.NONE, "checkpoint.operators.*.rows_in", "Rows that it was given.",
           _FLINK),
    Metric("operator", "numRecordsOut", _E, _U.NONE, "checkpoint.operators.*.rows_out", "Rows that it put out.",
           _FLINK),
    Metric("operator", "numLateRecords", _E, _U.NONE, "checkpoint.operators.*.late_rows", "Its late rows."),
    Metric("operator", "numLateRecordsDropped", _E, _U.NONE, "checkpoint.operators.*.dropped_rows",
           "Those that no sink publishes.", _FLINK),
    Metric("operator", "numRowsTotal", _G, _U.NONE, "checkpoint.operators.*.state_rows", "Rows of its state.", _SPARK),
    Metric("operator", "lastCheckpointFullSize", _G, _U.BYTES, "checkpoint.operators.*.full_bytes",
           "State that the head has of it.", _FLINK),
    Metric("operator", "currentOutputWatermark", _G, _U.MOMENT, "checkpoint.operators.*.firing_watermark_us",
           "How far it has fired.", _FLINK),
    Metric("sink", "numRecordsSend", _E, _U.NONE, "checkpoint.sink_rows.*", "Rows that were published to it.", _FLINK),
    Metric("sink", "commitDuration", _G, _U.MS, "checkpoint.notified_ms.*", "How long its commit took."),
    Metric("sink", "commit", _S, _U.TRUTH, "checkpoint.sinks.*", "Whether its table has the head.", label="state"),
)  # fmt: skip
