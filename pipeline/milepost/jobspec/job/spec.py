"""The job spec as frozen pydantic models, with exactly the keys this version supports.

Constraints on a single key are checked here (DESIGN 8.1). Constraints between keys are checked in `graph/`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field

from milepost.jobspec.job.catalog_spec import CatalogSpec, QualifiedName
from milepost.jobspec.job.checkpointing_spec import MAX_KEY_GROUPS, CheckpointingSpec
from milepost.jobspec.job.health_spec import HealthSpec
from milepost.jobspec.job.notifier_spec import NotifierSpec
from milepost.jobspec.job.prices_spec import PricesSpec
from milepost.jobspec.job.sources.file_source import FileSourceSpec
from milepost.jobspec.job.sources.landed_source import LandedSourceSpec
from milepost.jobspec.job.sources.source_kinds import AnySource
from milepost.jobspec.job.sql_spec import AnySql, CompiledFile
from milepost.language import (
    SINK_FORMATS,
    AssetUri,
    ConnId,
    Cron,
    JobName,
    Many,
    NodeName,
    QueryName,
    QueueUrl,
    SinkName,
    Size,
    SpecModel,
    Text,
    TimeZone,
)
from milepost.operators import AnyOperator
from milepost.operators.base import RowWiseSpec, StatefulSpec, distinct


class StoreSpec(SpecModel):
    """How to reach S3. Credentials come from a Connection or the standard AWS chain, never from the spec.

    Attributes:
        conn_id: Airflow Connection of type `aws` or `milepost_s3` with credentials, endpoint and region. Outside
            Airflow it is read from the environment variable `AIRFLOW_CONN_<ID>`. It cannot be combined with the other
            two keys. null: the other two keys and the standard AWS chain apply.
        endpoint_url: URL of an S3 endpoint other than AWS, with its scheme. Empty: AWS. `${env:…}` is allowed.
        region: the S3 region. `${env:…}` is allowed.
    """

    conn_id: ConnId | None = None
    endpoint_url: str = ""
    region: Text = "us-east-1"


class SinkSpec(SpecModel):
    """A published table.

    Attributes:
        name: `[a-z][a-z0-9_-]{0,62}` without `__`, unique among sinks.
        input: what to publish: a source, an operator, `<uid>.late` (of a join `<uid>.late.<input>`), `<source>.bad`,
            or `<sink>.rejected`, the rows that `on_fail: quarantine` keeps out of another sink.
        format: decides who can read the table. delta and iceberg: any engine that supports the format. postgres: any
            client of the database. parquet: only `milepost read`, and other jobs (`format: milepost`).
        path: location of the table: an S3 or file URL, or a path relative to the spec. It must not overlap with
            another table or with a source. `${env:…}` is allowed. null: the table is in Postgres.
        mode: append keeps every row. upsert keeps the latest row per key, and needs an input with a key. changelog
            keeps every change as a row, with `_op` (insert, upsert, delete) and `_checkpoint`; a delete holds only its
            key.
        catalog: the catalog of an Iceberg table. null for other formats.
        table: name of an Iceberg table in its catalog, `namespace.name`, or of a Postgres table, `schema.name`. null
            for other formats.
        dsn: the Postgres database of the table, `postgresql://USER:PASSWORD@HOST:PORT/DATABASE`. `${env:…}` is
            allowed, and required for a password. null if `conn_id` is given, and for other formats.
        conn_id: Airflow Connection of type `postgres`, instead of `dsn`. Outside Airflow it is read from the
            environment variable `AIRFLOW_CONN_<ID>`. null if `dsn` is given, and for other formats.
        buckets: number of buckets of a Delta or Iceberg upsert table. An epoch rewrites the buckets in which a key
            changed. At most `checkpointing.max_parallelism`. null: chosen by the number of rows, up to 64.
        adopt: take over an existing Delta or Iceberg table that belongs to no Milepost job, and keep its rows. With
            mode upsert the table must be empty. false: an existing table is refused.
        partition_by: partition columns of a Delta or Iceberg table with mode append or changelog. Each file has one
            value per column, which lets engines skip files. It is fixed when the table is created. null: not
            partitioned.
    """

    name: SinkName
    input: Text
    format: Literal["parquet", "delta", "iceberg", "postgres"]
    path: Text | None = None
    mode: Literal["append", "upsert", "changelog"]
    catalog: CatalogSpec | None = None
    table: QualifiedName | None = None
    dsn: Text | None = None
    conn_id: ConnId | None = None
    buckets: Annotated[int, Field(ge=1)] | None = None
    adopt: bool = False
    partition_by: Annotated[Many[Text], Field(min_length=1), AfterValidator(distinct)] | None = None

    @property
    def by_buckets(self) -> bool:
        """Whether the table is divided into buckets of key groups, and an epoch rewrites the changed buckets."""
        return self.mode == "upsert" and SINK_FORMATS[self.format].is_open

    @property
    def location(self) -> str:
        """The table's path, or its name in a database, as messages show it."""
        return self.path if self.path is not None else f"table {self.table}"


class Expectation(SpecModel):
    """One Great Expectations expectation. Its arguments are the other keys, under the library's names.

    Attributes:
        type: name of the expectation, such as `expect_column_values_to_be_between`.
        severity: critical: a failure vetoes the epoch. warning and info: a failure is only recorded.
        on_fail: what happens to a row that fails. veto: nothing, the expectation judges all rows together. drop: the
            row is counted and not published. quarantine: the row is not published, and goes to `<sink>.rejected`, which
            a sink must read. With drop and quarantine, `mostly` is the share of rows below which the expectation is not
            met; without it, any number of rows may fail.
    """

    model_config = ConfigDict(extra="allow", frozen=True, strict=True)

    type: Annotated[str, Field(pattern=r"^expect_[a-z_]+$")]
    severity: Literal["critical", "warning", "info"] = "critical"
    on_fail: Literal["veto", "drop", "quarantine"] = "veto"

    @property
    def judges_rows(self) -> bool:
        """Whether it drops or quarantines single rows."""
        return self.on_fail != "veto"

    @property
    def may_be_unmet(self) -> bool:
        """Whether its severity has an effect. Without `mostly`, any number of rows may be dropped or quarantined."""
        return not self.judges_rows or "mostly" in self.arguments

    @property
    def arguments(self) -> dict[str, Any]:
        """The expectation's own keyword arguments."""
        return dict(self.model_extra or {})


class QualitySpec(SpecModel):
    """Expectations on the rows that an epoch is about to publish to one sink.

    Attributes:
        sink: name of the sink. A sink has at most one suite.
        scope: the rows to validate: those of this epoch.
        engine: the engine that runs the expectations.
        rows: number of failing rows that `show` displays for each expectation that vetoed. 0: none.
        sample: number of rows, spread evenly, on which to validate expectations that need all rows in one process, when
            an epoch has too many rows for that. null: such an expectation vetoes the epoch. All other expectations are
            validated on every row.
        expectations: at least one expectation.
    """

    sink: SinkName
    unavailable_values: ClassVar[Mapping[str, frozenset[str]]] = {
        "scope": frozenset({"table"}),
        "engine": frozenset({"spark"}),
    }

    scope: Literal["epoch"] = "epoch"
    engine: Literal["pandas"] = "pandas"
    rows: Annotated[int, Field(ge=0, le=20)] = 20
    sample: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    expectations: Annotated[Many[Expectation], Field(min_length=1)]

    @property
    def row_rules(self) -> dict[int, Expectation]:
        """The expectations that drop or quarantine rows, by their position."""
        return {number: one for number, one in enumerate(self.expectations) if one.judges_rows}

    @property
    def judged_together(self) -> QualitySpec:
        """The suite without its row rules. It may have no expectations left."""
        if not self.row_rules:
            return self
        return self.model_copy(update={"expectations": tuple(one for one in self.expectations if not one.judges_rows)})

    @property
    def quarantines(self) -> bool:
        """Whether rows may be quarantined."""
        return any(one.on_fail == "quarantine" for one in self.expectations)


def _conf_text(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, (int, float)) else value


class SparkSpec(SpecModel):
    """The Spark session that runs an epoch.

    Attributes:
        master: Spark master URL of a session in the process that runs the epoch. It cannot be combined with `conn_id`
            or with a literal `remote`.
        remote: address of a Spark Connect server, `sc://host:port`. null, or empty after `${env:…}` is resolved: a
            session with `master`.
        conn_id: Airflow Connection of type `spark_connect` or `milepost_spark` with address and token of a server,
            instead of `remote`. Outside Airflow it is read from the environment variable `AIRFLOW_CONN_<ID>`. It cannot
            be combined with `remote` or `master`.
        parallelism: subtasks per level, at most `checkpointing.max_parallelism`. It may change between epochs.
        conf: Spark settings by name. Numbers and booleans become strings. Settings that Milepost controls are refused.
            A secret must be written as `${env:…}`.
        buffer_size: bytes of rows that one exchange buffer holds before it is sent.
    """

    master: Text = "local[2]"
    remote: Text | None = None
    conn_id: ConnId | None = None
    parallelism: Annotated[int, Field(ge=1, le=MAX_KEY_GROUPS)] = 2
    conf: dict[Text, Annotated[str, BeforeValidator(_conf_text)]] = Field(default_factory=dict)
    buffer_size: Annotated[Size, Field(ge=1)] = 1_000_000


class ScheduleSpec(SpecModel):
    """When Airflow starts an epoch: on a schedule, on events (assets updated or objects arriving), or both.

    Attributes:
        cron: five fields such as `*/10 * * * *`, or @hourly, @daily, @weekly, @monthly, @yearly.
        timezone: time zone of the cron expression, such as Europe/Berlin. Refused without `cron`.
        asset: URI of one Airflow asset. An update starts an epoch.
        any_of: URIs of several assets. An update of any of them starts an epoch.
        sqs: URL of an SQS queue that receives the event notifications of the source's bucket. Airflow's triggerer
            watches it, with the credentials of `store.conn_id` or the standard AWS chain. Airflow drops events of a
            paused DAG; the next event, or `cron`, picks up the objects they announced. Needs Airflow 3.3.
    """

    cron: Cron | None = None
    timezone: TimeZone = "UTC"
    asset: AssetUri | None = None
    any_of: Annotated[Many[AssetUri], Field(min_length=1)] | None = None
    sqs: QueueUrl | None = None


class AirflowSpec(SpecModel):
    """Settings of the job's Airflow DAGs.

    Attributes:
        owner: owner of the tasks.
        tags: tags of the DAGs, in addition to the job's name.
        retries: retries of each task of the epoch DAG.
        pool: Airflow pool of the tasks. null: the default pool.
        on_failure: Airflow notifiers to call when a run fails, of the epoch DAG or of the job's form.
        viewers_see_values: whether pages show data values, such as rows that the quality gate refused, to users who may
            read a DAG of the job and not trigger it.
    """

    owner: Annotated[Text, Field(max_length=250)] = "data"
    tags: Many[Annotated[Text, Field(max_length=100)]] = ("milepost",)
    retries: Annotated[int, Field(ge=0, le=100)] = 2
    pool: Annotated[Text, Field(max_length=250)] | None = None
    on_failure: Many[NotifierSpec] = ()
    viewers_see_values: bool = False


class TablesSpec(SpecModel):
    """Where the tables of the SQL statements are. In `path` and `table`, `{name}` is the name of the statement.

    Attributes:
        format: as in a sink.
        path: as in a sink, with `{name}`.
        catalog: as in a sink.
        table: as in a sink, with `{name}`.
        dsn: as in a sink.
        conn_id: as in a sink.
    """

    format: Literal["parquet", "delta", "iceberg", "postgres"]
    path: Text | None = None
    catalog: CatalogSpec | None = None
    table: Text | None = None
    dsn: Text | None = None
    conn_id: ConnId | None = None


class JobSpec(SpecModel):
    """One job.

    Attributes:
        name: `[a-z][a-z0-9_-]{0,62}` without `__`. It names the job's folder in the storage, and its DAGs.
        storage: root shared by jobs. Everything of this job is stored under `<storage>/<name>/`. An S3 or file URL, or
            a path relative to the spec.
        store: how to reach S3.
        sources: sources by name, at least one.
        sql: name of a file with CREATE statements, relative to the spec, such as orders.sql, or models of dbt. They
            are compiled into operators and sinks, which are added to those of the spec. null: the job has no SQL.
        compiled: name of a file with a compiled spec, relative to the spec, such as orders.compiled. Statements that
            have the same tokens and inputs in it keep its operators, so that another version continues their state.
        tables: where the tables of its statements are. null: it has no tables.
        renamed: former names of statements, by name: `{revenue: income}`. Their state continues, and their tables keep
            name and path. A common table expression has its statement in front: `{revenue.recent: income.newest}`.
            A second rename adds an entry: `{earnings: revenue, revenue: income}`.
        statements: the compiled statements by name, as `lint --as-yaml` writes them. A spec with a SQL file has none.
        operators: the operators, connected by name. Without any, sinks publish sources.
        sinks: the published tables.
        quality: expectation suites, at most one per sink.
        checkpointing: retention, time limits and restarts.
        spark: the Spark session that runs an epoch.
        schedule: when Airflow starts an epoch. null: only on request.
        health: how old and how incomplete the tables may be before `status` says so.
        prices: what storage and machines cost. null: no cost estimate.
        airflow: settings of the job's Airflow DAGs.
    """

    name: JobName
    storage: Text
    store: StoreSpec = StoreSpec()
    sources: Annotated[dict[NodeName, AnySource], Field(min_length=1)]
    sql: AnySql | None = None
    compiled: CompiledFile | None = None
    tables: TablesSpec | None = None
    renamed: dict[QueryName, QueryName] = Field(default_factory=dict)
    statements: dict[NodeName, Text] = Field(default_factory=dict)
    operators: Many[AnyOperator] = ()
    sinks: Many[SinkSpec] = ()
    quality: Many[QualitySpec] = ()
    checkpointing: CheckpointingSpec = CheckpointingSpec()
    spark: SparkSpec = SparkSpec()
    schedule: ScheduleSpec | None = None
    health: HealthSpec = HealthSpec()
    prices: PricesSpec | None = None
    airflow: AirflowSpec = AirflowSpec()

    @property
    def streams(self) -> dict[str, AnySource]:
        """The sources whose rows are consumed, each once."""
        return {name: source for name, source in self.sources.items() if not source.is_static}

    @property
    def files(self) -> dict[str, FileSourceSpec]:
        """The sources that are files: streams and static sources."""
        return {name: source for name, source in self.sources.items() if isinstance(source, FileSourceSpec)}

    @property
    def file_streams(self) -> dict[str, FileSourceSpec]:
        """The sources that are files, without static ones."""
        return {name: source for name, source in self.files.items() if not source.is_static}

    @property
    def landed(self) -> dict[str, LandedSourceSpec]:
        """The sources that are landed in a log."""
        return {name: source for name, source in self.sources.items() if isinstance(source, LandedSourceSpec)}

    @property
    def land_schedules(self) -> dict[timedelta, tuple[str, ...]]:
        """The names of the landed sources that have a schedule of their own, by how often they are landed."""
        sources = [(source.land.every, name) for name, source in sorted(self.landed.items())]
        schedules = sorted({every for every, _ in sources if every is not None})
        return {every: tuple(name for own, name in sources if own == every) for every in schedules}

    @property
    def landed_by_epochs(self) -> tuple[str, ...]:
        """The names of the landed sources that have no schedule of their own."""
        return tuple(name for name, source in sorted(self.landed.items()) if source.land.every is None)

    @property
    def dimensions(self) -> dict[str, FileSourceSpec]:
        """The static sources, which lookups read."""
        return {name: source for name, source in self.files.items() if source.static}

    def operator(self, uid: str) -> RowWiseSpec | StatefulSpec:
        """Return the operator with this uid. Raises KeyError."""
        return next((o for o in self.operators if o.uid == uid), None) or _missing(uid)

    def sink(self, name: str) -> SinkSpec:
        """Return the sink with this name. Raises KeyError."""
        return next((s for s in self.sinks if s.name == name), None) or _missing(name)


def _missing(name: str) -> Any:
    raise KeyError(name)
