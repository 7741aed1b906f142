"""Dataset names that follow OpenLineage's rules, so they match other tools' events.

A location that contains `${env:…}` may hold a secret. Such a dataset gets the namespace `milepost://job` and
the name `sink`, like its Airflow asset. For Postgres, events contain host, port and database name, never the user.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile
from urllib.parse import urlsplit

from milepost.errors import CheckpointError
from milepost.jobspec.job import (
    CatalogSpec,
    IcebergSourceSpec,
    PostgresAccess,
    PostgresSourceSpec,
    referenced_variables,
)
from milepost.jobspec.load import LoadedJob

_POSTGRES_PORT = "5432"


@dataclass(frozen=True, slots=True, order=True)
class DatasetName:
    """An OpenLineage dataset identifier."""

    namespace: str
    name: str


def job_namespace(job: LoadedJob) -> str:
    """Return the namespace of a job: the URL of its storage, which other jobs may share."""
    return job.storage_url


def location_name(url: str) -> DatasetName:
    """Return the dataset name of an absolute URL in a bucket or on the local file system.

    s3://lake/orders/    namespace s3://lake, name orders
    file:///data/orders  namespace file, name /data/orders
    """
    scheme, _, rest = url.partition("://")
    if scheme == "file":
        return DatasetName("file", rest.rstrip("/") or "/")
    bucket, _, key = rest.partition("/")
    return DatasetName(f"{scheme}://{bucket}", key.strip("/") or "/")


def source_name(job: LoadedJob, source: str) -> DatasetName:
    """Return the dataset name of a source: its external data set, or the folder above the first `*` of its path."""
    spec = job.spec.sources[source]
    if isinstance(spec, IcebergSourceSpec):
        return _in_catalog(spec.catalog, spec.table) or DatasetName(f"milepost://{job.spec.name}", source)
    if spec.dataset is not None:
        return DatasetName(*spec.dataset)
    if isinstance(spec, PostgresSourceSpec):
        try:
            named = _postgres_name(job.source_access(source), spec.table)
        except CheckpointError:  # this process cannot look up the Airflow Connection
            named = None
        return named or DatasetName(f"milepost://{job.spec.name}", source)
    path = spec.location
    if referenced_variables(path):
        return DatasetName(f"milepost://{job.spec.name}", source)
    parts = job.url(path).split("/")
    plain = takewhile(lambda part: "*" not in part, parts)
    return location_name("/".join(plain))


def sink_name(job: LoadedJob, sink: str) -> DatasetName:
    """Return the dataset name of a sink's table: its folder, or its table in a database."""
    spec = job.spec.sink(sink)
    own = DatasetName(f"milepost://{job.spec.name}", sink)
    if spec.path is not None:
        return own if referenced_variables(spec.path) else location_name(job.url(spec.path))
    try:
        return _postgres_name(job.postgres_access(sink), str(spec.table)) or own
    except CheckpointError:  # this process cannot look up the Airflow Connection
        return own


def _postgres_name(access: PostgresAccess, table: str) -> DatasetName | None:
    parameters = access.parameters
    host, port, database = parameters.get("host"), parameters.get("port"), parameters.get("dbname")
    if access.dsn:
        try:
            parts = urlsplit(access.dsn)
            host, port, database = parts.hostname, str(parts.port or ""), parts.path.strip("/")
        except ValueError:
            return None
    if not host or not database:
        return None
    return DatasetName(f"postgres://{host}:{port or _POSTGRES_PORT}", f"{database}.{table}")


def catalog_table(job: LoadedJob, sink: str) -> DatasetName | None:
    """Return the name of a sink's table in its catalog. None if it has none, or if the URI may hold a secret."""
    spec = job.spec.sink(sink)
    return None if spec.catalog is None or spec.table is None else _in_catalog(spec.catalog, spec.table)


def _in_catalog(catalog: CatalogSpec, table: str) -> DatasetName | None:
    if catalog.type == "glue":
        return _in_glue(catalog, table)
    if referenced_variables(catalog.uri):
        return None
    parts = urlsplit(catalog.uri)
    host = parts.hostname or ""
    place = f"{host}:{parts.port}" if parts.port else host
    return DatasetName(f"{parts.scheme}://{place}{parts.path}", table)


def _in_glue(catalog: CatalogSpec, table: str) -> DatasetName | None:
    """Return the name of a table in AWS Glue. None if the spec does not state region and account."""
    region, account = (catalog.options.get(name, "") for name in ("client.region", "glue.id"))
    if not region or not account or referenced_variables(region) or referenced_variables(account):
        return None
    return DatasetName(f"arn:aws:glue:{region}:{account}", f"table/{table.replace('.', '/')}")
