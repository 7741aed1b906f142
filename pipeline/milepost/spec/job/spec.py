"""The job spec: exactly the keys that work in this version (DESIGN 8.1).

Frozen pydantic models. What a key allows alone is checked here; what keys mean together is checked by `graph.py`.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from milepost.spec.job.source_spec import SourceSpec
from milepost.spec.values.fields import (
    Aggregate,
    AssetUri,
    ColumnName,
    ConnId,
    Cron,
    Duration,
    Function,
    JobName,
    Many,
    NodeName,
    QueueUrl,
    SinkName,
    Size,
    SpecModel,
    Text,
    TimeZone,
)

MAX_KEY_GROUPS = 32_768


def _positive(value: timedelta) -> timedelta:
    if not value:
        raise ValueError("expected a duration above 0s")
    return value


PositiveDuration = Annotated[Duration, AfterValidator(_positive)]


def _distinct(columns: tuple[str, ...]) -> tuple[str, ...]:
    twice = sorted({c for c in columns if columns.count(c) > 1})
    if twice:
        raise ValueError(f"{twice[0]} occurs twice")
    return columns


KeyColumns = Annotated[Many[ColumnName], Field(min_length=1), AfterValidator(_distinct)]
OneInput = Annotated[Many[NodeName], Field(min_length=1, max_length=1)]
Aggregates = Annotated[dict[ColumnName, Aggregate], Field(min_length=1)]


class StoreSpec(SpecModel):
    """How to reach S3. Credentials come from a Connection or the standard AWS chain, never from the spec.

    Attributes:
        conn_id: Airflow Connection of type `aws` or `milepost_s3` with credentials, endpoint and region; outside
            Airflow it is the environment variable AIRFLOW_CONN_<ID>. None = the other two keys, and the standard AWS
            chain.
        endpoint_url: an S3 endpoint other than AWS; empty = AWS.
        region: S3 region.
    """

    conn_id: ConnId | None = None
    endpoint_url: str = ""
    region: Text = "us-east-1"


class SqlOperator(SpecModel):
    """A row-wise SELECT over one input."""

    uid: NodeName
    kind: Literal["sql"]
    inputs: OneInput
    sql: Text


class KeyedOperator(SpecModel):
    """What every operator with state has.

    Attributes:
        renamed_from: the uid under which earlier checkpoints have its state.
    """

    uid: NodeName
    renamed_from: NodeName | None = None
    inputs: OneInput


class AggregateOperator(KeyedOperator):
    """Running aggregates per key; emits, per epoch, the keys that changed."""

    kind: Literal["aggregate"]
    key: KeyColumns
    aggregates: Aggregates


class TumblingWindow(SpecModel):
    """Windows of one size that touch, aligned to 1970-01-01T00:00Z."""

    tumbling: PositiveDuration


class WindowOperator(KeyedOperator):
    """Aggregates per key and event-time window; output has window_start and window_end.

    Attributes:
        allowed_lateness: how long after its end a window still takes rows up. 0s: it is emitted once, then final
            (append); more: again with each epoch that brings it rows (updates).
    """

    kind: Literal["window"]
    key: KeyColumns
    window: TumblingWindow
    aggregates: Aggregates
    allowed_lateness: Duration = timedelta(0)


class DeduplicateOperator(KeyedOperator):
    """The first row of each key.

    Attributes:
        ttl: event time for which a key is remembered; None = for ever, and nothing is late.
    """

    kind: Literal["deduplicate"]
    key: KeyColumns
    ttl: PositiveDuration | None = None


class ProcessOperator(KeyedOperator):
    """A user's class that sees the rows of one key at a time, with state and timers of that key.

    Attributes:
        function: `module:Class`; the module lies beside the spec or is installed.
    """

    kind: Literal["process"]
    key: KeyColumns
    function: Function


Operator = Annotated[
    SqlOperator | AggregateOperator | WindowOperator | DeduplicateOperator | ProcessOperator,
    Field(discriminator="kind"),
]
StatefulSpec = AggregateOperator | WindowOperator | DeduplicateOperator | ProcessOperator


class SinkSpec(SpecModel):
    """A published table.

    Attributes:
        input: a source, an operator, or `<uid>.late`.
        mode: append keeps every row; upsert keeps the latest row per key.
    """

    name: SinkName
    input: Text
    format: Literal["parquet"]
    path: Text
    mode: Literal["append", "upsert"]


class Expectation(SpecModel):
    """One Great Expectations rule; its arguments are the other keys, by their names there."""

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    type: Annotated[str, Field(pattern=r"^expect_[a-z_]+$")]
    severity: Literal["critical", "warning", "info"] = "critical"

    @property
    def arguments(self) -> dict[str, Any]:
        """The expectation's own keyword arguments."""
        return dict(self.model_extra or {})


class QualitySpec(SpecModel):
    """Expectations on the rows that an epoch would publish to one sink."""

    sink: SinkName
    scope: Literal["epoch"] = "epoch"
    engine: Literal["pandas"] = "pandas"
    rows: Annotated[int, Field(ge=0, le=20)] = 20  # failing ones that `show` has of each expectation that vetoed
    expectations: Annotated[Many[Expectation], Field(min_length=1)]


class Retained(SpecModel):
    """Which completed checkpoints stay; what any of the three keeps stays.

    Attributes:
        last: the newest so many.
        hourly, daily: the newest of each of the newest so many hours, and days, that have one: in UTC, by trigger time.
    """

    last: Annotated[int, Field(ge=1, le=10_000)] = 10
    hourly: Annotated[int, Field(ge=0, le=10_000)] = 0
    daily: Annotated[int, Field(ge=0, le=10_000)] = 0


def _number(value: object) -> object:
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _retained(value: object) -> object:
    return {"last": value} if isinstance(value, int) and not isinstance(value, bool) else value


class NoneRestart(SpecModel):
    """`milepost run` ends with the failure."""

    strategy: Literal["none"] = "none"


class FixedDelayRestart(SpecModel):
    """Attributes:
    attempts: restarts of one run; a completed epoch gives none back.
    delay: before each.
    """

    strategy: Literal["fixed_delay"]
    attempts: Annotated[int, Field(ge=1)] = 1
    delay: Duration = timedelta(seconds=1)


class ExponentialDelayRestart(SpecModel):
    """Attributes:
    initial_backoff, max_backoff: the first delay, and the longest.
    backoff_multiplier: each delay is so many times the one before.
    jitter: fraction by which a delay may differ.
    reset_backoff_threshold: no failure for so long starts over.
    attempts: restarts since it started over; None = any number.
    """

    strategy: Literal["exponential_delay"]
    initial_backoff: PositiveDuration = timedelta(seconds=1)
    max_backoff: PositiveDuration = timedelta(minutes=1)
    backoff_multiplier: Annotated[float, BeforeValidator(_number), Field(gt=1)] = 1.5
    jitter: Annotated[float, BeforeValidator(_number), Field(ge=0, le=1)] = 0.1
    reset_backoff_threshold: PositiveDuration = timedelta(hours=1)
    attempts: Annotated[int, Field(ge=1)] | None = None


class FailureRateRestart(SpecModel):
    """Attributes:
    max_failures_per_interval: more failures than that within `interval` end the run.
    delay: before each restart.
    """

    strategy: Literal["failure_rate"]
    max_failures_per_interval: Annotated[int, Field(ge=1)] = 1
    interval: PositiveDuration = timedelta(minutes=1)
    delay: Duration = timedelta(seconds=1)


Restart = Annotated[
    NoneRestart | FixedDelayRestart | ExponentialDelayRestart | FailureRateRestart, Field(discriminator="strategy")
]


class CheckpointingSpec(SpecModel):
    """Attributes:
    retained: which completed checkpoints stay.
    timeout: of one checkpoint, from its trigger; the lease of its session.
    tolerable_failures: failed epochs in a row before the job is FAILED.
    min_pause: least time between the end of one checkpoint and the next trigger.
    max_parallelism: number of key groups, fixed for the job's life.
    restart: what `milepost run` does after a failed epoch; under Airflow the next run is the retry.
    aligned_timeout: how long a subtask aligns and processes, from its start, before it leaves the rest of its input in
        flight, as part of the checkpoint; None = it processes all of it.
    epoch_budget: how long an epoch may take from the start of its run to its commit point; its subtasks leave rows in
        flight, and its plan is scaled by the measured rate, so that it fits; None = as long as it takes.
    max_in_flight: bytes in flight above which no new input is planned; None = any number.
    """

    retained: Annotated[Retained, BeforeValidator(_retained)] = Retained()
    timeout: PositiveDuration = timedelta(minutes=10)
    tolerable_failures: Annotated[int, Field(ge=0)] = 0
    min_pause: Duration = timedelta(0)
    max_parallelism: Annotated[int, Field(ge=1, le=MAX_KEY_GROUPS)] = 128
    restart: Restart = NoneRestart()
    aligned_timeout: PositiveDuration | None = None
    epoch_budget: PositiveDuration | None = None
    max_in_flight: Size | None = None

    @property
    def cuts_epochs(self) -> bool:
        """Whether an epoch may end with rows in flight."""
        return self.aligned_timeout is not None or self.epoch_budget is not None


def _conf_text(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else value


class SparkSpec(SpecModel):
    """Attributes:
    master: Spark master URL; unused where `remote` says a server.
    remote: address of a Spark Connect server, `sc://host:port`; None, or empty once resolved: a session with `master`.
    conn_id: Airflow Connection of type `spark_connect` or `milepost_spark`: address and token of a server, in place of
        `remote`; outside Airflow it is the environment variable AIRFLOW_CONN_<ID>.
    parallelism: subtasks per level, at most checkpointing.max_parallelism.
    conf: Spark settings by name; numbers and booleans become text.
    buffer_size: bytes of rows that one exchange buffer holds before it is sent.
    """

    master: Text = "local[2]"
    remote: Text | None = None
    conn_id: ConnId | None = None
    parallelism: Annotated[int, Field(ge=1, le=MAX_KEY_GROUPS)] = 2
    conf: dict[Text, Annotated[str, BeforeValidator(_conf_text)]] = Field(default_factory=dict)
    buffer_size: Annotated[Size, Field(ge=1)] = 1_000_000


class ScheduleSpec(SpecModel):
    """When Airflow starts an epoch by itself: at times, when assets were updated, or when objects landed; one of them.

    Attributes:
        timezone: of the cron expression.
        asset: the URI of one asset. any_of: URIs of several; an update of one is enough.
        sqs: the URL of a queue of SQS that the landing's bucket tells of new objects; Airflow's triggerer watches it.
            What may read it is the Connection of `store`, or the standard AWS chain.
    """

    cron: Cron | None = None
    timezone: TimeZone = "UTC"
    asset: AssetUri | None = None
    any_of: Annotated[Many[AssetUri], Field(min_length=1)] | None = None
    sqs: QueueUrl | None = None


class AirflowSpec(SpecModel):
    """Attributes:
    retries: of each task of the epoch DAG.
    pool: Airflow pool of the tasks; None = the default pool.
    """

    owner: Text = "data"
    tags: Many[Text] = ("milepost",)
    retries: Annotated[int, Field(ge=0, le=100)] = 2
    pool: Text | None = None


class JobSpec(SpecModel):
    """One job: everything its YAML says.

    Attributes:
        storage: root shared by jobs; all of this job lies under `<storage>/<name>/`.
        schedule: None = epochs only on request.
    """

    name: JobName
    storage: Text
    store: StoreSpec = StoreSpec()
    sources: Annotated[dict[NodeName, SourceSpec], Field(min_length=1)]
    operators: Many[Operator] = ()
    sinks: Many[SinkSpec] = ()
    quality: Many[QualitySpec] = ()
    checkpointing: CheckpointingSpec = CheckpointingSpec()
    spark: SparkSpec = SparkSpec()
    schedule: ScheduleSpec | None = None
    airflow: AirflowSpec = AirflowSpec()

    def operator(self, uid: str) -> SqlOperator | StatefulSpec:
        """Return the operator with this uid. Raises KeyError."""
        return next((o for o in self.operators if o.uid == uid), None) or _missing(uid)

    def sink(self, name: str) -> SinkSpec:
        """Return the sink with this name. Raises KeyError."""
        return next((s for s in self.sinks if s.name == name), None) or _missing(name)


def _missing(name: str) -> Any:
    raise KeyError(name)
