"""The job spec: exactly the keys that work in this version (DESIGN 8.1).

Frozen pydantic models. What a key allows alone is checked here; what keys mean together is checked by `graph.py`.
"""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from milepost.spec.job.checkpointing_spec import MAX_KEY_GROUPS, CheckpointingSpec
from milepost.spec.job.notifier_spec import NotifierSpec
from milepost.spec.job.operators.asof import AsofOperator
from milepost.spec.job.operators.join import JoinOperator, PairedOperator
from milepost.spec.job.operators.keyed import Aggregates, AnyColumns, KeyedOperator, distinct
from milepost.spec.job.operators.latest import LatestOperator
from milepost.spec.job.operators.lookup import LookupOperator
from milepost.spec.job.operators.process import ProcessOperator
from milepost.spec.job.operators.top import TopOperator
from milepost.spec.job.operators.window import WindowOperator
from milepost.spec.job.prices_spec import PricesSpec
from milepost.spec.job.source_spec import SourceSpec
from milepost.spec.values.fields import (
    AssetUri,
    ConnId,
    Cron,
    JobName,
    Many,
    NodeName,
    PositiveDuration,
    QueueUrl,
    SinkName,
    Size,
    SpecModel,
    Text,
    TimeZone,
)


class StoreSpec(SpecModel):
    """How to reach S3. Credentials come from a Connection or the standard AWS chain, never from the spec.

    Attributes:
        conn_id: Airflow Connection of type `aws` or `milepost_s3` with credentials, endpoint and region; outside
            Airflow it is the environment variable `AIRFLOW_CONN_<ID>`. null: the other two keys, which are refused
            beside it, and the standard AWS chain.
        endpoint_url: an S3 endpoint other than AWS, with its scheme; empty: AWS. `${env:…}` may stand here.
        region: the S3 region. `${env:…}` may stand here.
    """

    conn_id: ConnId | None = None
    endpoint_url: str = ""
    region: Text = "us-east-1"


class SqlOperator(SpecModel):
    """A row-wise SELECT over one input, or several of them joined by UNION ALL.

    Attributes:
        uid: the operator's name: `[a-z][a-z0-9_]{0,62}` without `__`; no source or other operator has it.
        inputs: sources and operators whose rows are append, each once and read by a SELECT.
        sql: `SELECT … FROM input WHERE …` of Spark SQL, with an input's name behind FROM; several by `UNION ALL`, which
            has no key. `explode(x) AS name` in a SELECT makes a row of each value of a list.
    """

    uid: NodeName
    kind: Literal["sql"]
    inputs: Annotated[Many[NodeName], Field(min_length=1), AfterValidator(distinct)]
    sql: Text


class AggregateOperator(KeyedOperator):
    """Running aggregates per key; emits, per epoch, the keys that changed.

    Attributes:
        key: columns, each once. []: totals over all rows, in one row, which is there from the first epoch on.
        inputs: the name of one source or operator. Its rows are append, or updates: then sums, averages and spreads of
            floats are refused.
        aggregates: column of the output, and what it holds. Nulls count as in SQL; sums of integers are int64, averages
            float64. `var` and `stddev` are of a sample, null of fewer than two values. `first` and `last` are by event
            time, `arg_min(x, y)` and `arg_max(x, y)` by y; of rows that are equal in it the least or greatest x counts.
            `any` and `every` take columns of true and false. `filter (where z)`: rows where z is true, a column, or a
            condition of Spark SQL over a row.
    """

    kind: Literal["aggregate"]
    key: AnyColumns
    aggregates: Aggregates


class DeduplicateOperator(KeyedOperator):
    """The first row of each key.

    Attributes:
        ttl: event time for which a key is remembered, above 0s, and `<uid>.late` has what comes later; null: for ever,
            and nothing is late.
    """

    kind: Literal["deduplicate"]
    ttl: PositiveDuration | None = None


RowWiseSpec = SqlOperator | LookupOperator
"""Operators without state: they cost no exchange."""
StatefulSpec = (
    AggregateOperator
    | WindowOperator
    | DeduplicateOperator
    | ProcessOperator
    | JoinOperator
    | AsofOperator
    | TopOperator
    | LatestOperator
)

Operator = Annotated[RowWiseSpec | StatefulSpec, Field(discriminator="kind")]


def key_texts(operator: RowWiseSpec | StatefulSpec) -> list[str]:
    """Return the key of an operator as signatures have it: columns, of two inputs ``left = right``; [] of sql."""
    if isinstance(operator, PairedOperator | LookupOperator):
        return operator.key_texts
    return list(getattr(operator, "key", ()))


class CatalogSpec(SpecModel):
    """The Iceberg catalog that a table is in; nothing of it is taken from the home folder or the environment.

    Attributes:
        type: rest, a server of Iceberg's protocol; sql, a database: SQLite or Postgres.
        uri: of the server, or of the database as SQLAlchemy has it; a relative file of SQLite begins at the spec's
            folder. `${env:…}` may stand here, and a password only so.
        name: of the catalog: of an sql one a part of the table's key, by which other engines must open it.
        options: further ones, as Iceberg's clients call them: `warehouse`, `prefix`, `token`, `credential` and others.
            `${env:…}` may stand here, and a secret only so.
    """

    type: Literal["rest", "sql"]
    uri: Text
    name: Text = "milepost"
    options: dict[Text, Text] = Field(default_factory=dict)


_QUALIFIED = r"^[^.\s]+(\.[^.\s]+)+$"


def _qualified(name: str) -> str:
    if re.fullmatch(_QUALIFIED, name) is None:
        raise ValueError(
            f"expected a table's name with what it is in, as `schema.name` and without blanks, got {name!r}"
        )
    return name


BUCKET_FORMATS = ("delta", "iceberg")
"""Formats whose tables of the latest rows are files of key groups."""


class SinkSpec(SpecModel):
    """A published table.

    Attributes:
        name: `[a-z][a-z0-9_-]{0,62}` without `__`; no other sink has it.
        input: a source, an operator, `<uid>.late`, of a join `<uid>.late.<input>`, or `<source>.bad`.
        format: who reads the table: delta and iceberg, every engine that knows them; postgres, every client of that
            database; parquet, `milepost read` alone.
        path: where the table is: an S3 or file URL, or a path relative to the spec, in no other table's place and in
            no source's. `${env:…}` may stand here. null: the table is in Postgres.
        mode: append keeps every row; upsert keeps the latest row per key, and needs an input with a key; changelog
            keeps every change as a row, with `_op` (insert, upsert, delete) and `_checkpoint`; a delete has its key.
        catalog: of an Iceberg table. null: the table is of another format.
        table: name of an Iceberg table in its catalog, `namespace.name`, or of a Postgres table, `schema.name`. null:
            the table is of another format.
        dsn: of the Postgres database that a table is in, `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`. `${env:…}`
            may stand here, and a password only so. null: `conn_id` says it, or the table is of another format.
        conn_id: Airflow Connection of type `postgres` with the database, in place of `dsn`; outside Airflow it is the
            environment variable `AIRFLOW_CONN_<ID>`. null: `dsn` says it, or the table is of another format.
        buckets: files of a Delta or Iceberg table of the latest rows; an epoch writes those again in which a key
            changed. At most `checkpointing.max_parallelism`. null: by its rows, up to 64.
        adopt: a Delta or Iceberg table that is there and no Milepost job's becomes this sink's; its rows stay. For mode
            upsert only an empty one. false: such a table is refused.
        partition_by: columns of the rows of a Delta or Iceberg table of mode append or changelog; a file has one value
            in each, which engines skip files by. It is said before the table is made. null: by none.
    """

    name: SinkName
    input: Text
    format: Literal["parquet", "delta", "iceberg", "postgres"]
    path: Text | None = None
    mode: Literal["append", "upsert", "changelog"]
    catalog: CatalogSpec | None = None
    table: Annotated[str, AfterValidator(_qualified), Field(json_schema_extra={"pattern": _QUALIFIED})] | None = None
    dsn: Text | None = None
    conn_id: ConnId | None = None
    buckets: Annotated[int, Field(ge=1)] | None = None
    adopt: bool = False
    partition_by: Annotated[Many[Text], Field(min_length=1), AfterValidator(distinct)] | None = None

    @property
    def by_buckets(self) -> bool:
        """Whether the table is files of key groups, of which the changed ones are written again."""
        return self.mode == "upsert" and self.format in BUCKET_FORMATS

    @property
    def place(self) -> str:
        """Where the table is, for people: its path, or its name in a database."""
        return self.path if self.path is not None else f"table {self.table}"


class Expectation(SpecModel):
    """One Great Expectations rule; its arguments are the other keys, by their names there.

    Attributes:
        type: the rule's name, such as `expect_column_values_to_be_between`.
        severity: critical vetoes the epoch; warning and info are recorded.
    """

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    type: Annotated[str, Field(pattern=r"^expect_[a-z_]+$")]
    severity: Literal["critical", "warning", "info"] = "critical"

    @property
    def arguments(self) -> dict[str, Any]:
        """The expectation's own keyword arguments."""
        return dict(self.model_extra or {})


class QualitySpec(SpecModel):
    """Expectations on the rows that an epoch would publish to one sink.

    Attributes:
        sink: the sink's name; it has one suite.
        scope: which rows are judged: those of this epoch.
        engine: what runs the expectations.
        rows: failing rows that `show` has of each expectation that vetoed; 0: none.
        sample: rows, evenly spread, on which expectations that need all rows at once are judged where an epoch has more
            than one process is to hold; null: there such an expectation vetoes. All others are judged on every row.
        expectations: at least one.
    """

    sink: SinkName
    scope: Literal["epoch"] = "epoch"
    engine: Literal["pandas"] = "pandas"
    rows: Annotated[int, Field(ge=0, le=20)] = 20
    sample: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    expectations: Annotated[Many[Expectation], Field(min_length=1)]


def _conf_text(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else value


class SparkSpec(SpecModel):
    """Where an epoch's Spark is.

    Attributes:
        master: Spark master URL of a session in the process that runs the epoch; refused beside a server that is
            written out.
        remote: address of a Spark Connect server, `sc://host:port`; null, or empty once `${env:…}` is resolved: a
            session with `master`.
        conn_id: Airflow Connection of type `spark_connect` or `milepost_spark`: address and token of a server, in
            place of `remote`; outside Airflow it is the environment variable `AIRFLOW_CONN_<ID>`. Refused beside
            `remote` and `master`.
        parallelism: subtasks per level, at most `checkpointing.max_parallelism`. May change between epochs.
        conf: Spark settings by name; numbers and booleans become text. Those that Milepost makes itself are refused.
            A secret stands here only as `${env:…}`.
        buffer_size: bytes of rows that one exchange buffer holds before it is sent.
    """

    master: Text = "local[2]"
    remote: Text | None = None
    conn_id: ConnId | None = None
    parallelism: Annotated[int, Field(ge=1, le=MAX_KEY_GROUPS)] = 2
    conf: dict[Text, Annotated[str, BeforeValidator(_conf_text)]] = Field(default_factory=dict)
    buffer_size: Annotated[Size, Field(ge=1)] = 1_000_000


class ScheduleSpec(SpecModel):
    """When Airflow starts an epoch by itself: at times; when assets were updated, or objects landed; or both.

    Attributes:
        cron: five fields such as `*/10 * * * *`, or @hourly, @daily, @weekly, @monthly, @yearly.
        timezone: of the cron expression, such as Europe/Berlin; refused without one.
        asset: the URI of one Airflow asset.
        any_of: URIs of several assets; an update of one is enough.
        sqs: the URL of a queue of SQS that the landing's bucket tells of new objects; Airflow's triggerer watches it.
            What may read it is the Connection of `store`, or the standard AWS chain. An event that Airflow drops, as of
            a paused DAG, is made up for by the next one, or by `cron` beside it.
    """

    cron: Cron | None = None
    timezone: TimeZone = "UTC"
    asset: AssetUri | None = None
    any_of: Annotated[Many[AssetUri], Field(min_length=1)] | None = None
    sqs: QueueUrl | None = None


class AirflowSpec(SpecModel):
    """What Airflow is told of the job's DAGs.

    Attributes:
        owner: of the tasks.
        tags: of the DAGs, beside the job's name.
        retries: of each task of the epoch DAG.
        pool: Airflow pool of the tasks; null: the default pool.
        on_failure: whom to tell of each run that failed, of an epoch or of the job's form: Airflow's own notifiers.
    """

    owner: Annotated[Text, Field(max_length=250)] = "data"
    tags: Many[Annotated[Text, Field(max_length=100)]] = ("milepost",)
    retries: Annotated[int, Field(ge=0, le=100)] = 2
    pool: Annotated[Text, Field(max_length=250)] | None = None
    on_failure: Many[NotifierSpec] = ()


class JobSpec(SpecModel):
    """One job: everything its YAML says.

    Attributes:
        name: `[a-z][a-z0-9_-]{0,62}` without `__`: names the job's folder in the storage, and its DAGs.
        storage: root shared by jobs; all of this job lies under `<storage>/<name>/`. An S3 or file URL, or a path
            relative to the spec.
        store: how S3 is reached.
        sources: by name, at least one.
        operators: a graph by uid; none: sinks show sources.
        sinks: the published tables.
        quality: at most one suite per sink.
        checkpointing: what is kept, and how long an epoch may take.
        spark: where an epoch's Spark is.
        schedule: when Airflow starts an epoch; null: only on request.
        prices: what storage and machines cost; null: nothing is estimated.
        airflow: what Airflow is told of the job's DAGs.
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
    prices: PricesSpec | None = None
    airflow: AirflowSpec = AirflowSpec()

    @property
    def streams(self) -> dict[str, SourceSpec]:
        """The sources whose objects are consumed, each once."""
        return {name: source for name, source in self.sources.items() if not source.static}

    @property
    def dimensions(self) -> dict[str, SourceSpec]:
        """The static sources: what lookups read."""
        return {name: source for name, source in self.sources.items() if source.static}

    def operator(self, uid: str) -> RowWiseSpec | StatefulSpec:
        """Return the operator with this uid. Raises KeyError."""
        return next((o for o in self.operators if o.uid == uid), None) or _missing(uid)

    def sink(self, name: str) -> SinkSpec:
        """Return the sink with this name. Raises KeyError."""
        return next((s for s in self.sinks if s.name == name), None) or _missing(name)


def _missing(name: str) -> Any:
    raise KeyError(name)
