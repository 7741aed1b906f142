"""Code with which other engines read a sink's table.

Texts of the spec stay as they are written, so `${env:…}` is not resolved and no code contains a secret. Each engine
takes credentials from its own standard chain.
"""

from __future__ import annotations

from urllib.parse import unquote, urlsplit

from milepost.jobspec.job import CatalogSpec, SinkSpec
from milepost.jobspec.load import LoadedJob
from milepost.protocol.records import absolute_url

DUCKDB, POLARS, PANDAS, SPARK = "DuckDB", "Polars", "pandas", "Spark"


def reader_code(job: LoadedJob, sink: SinkSpec) -> dict[str, str]:
    """Return engine -> code that reads the table at its location in the spec.

    Args:
        sink: of the spec, unresolved.
    """
    writers = {"delta": _delta, "iceberg": _iceberg, "postgres": _postgres, "parquet": _parquet}
    return writers[sink.format](job, sink)


def _delta(job: LoadedJob, sink: SinkSpec) -> dict[str, str]:
    location = _location(job, sink)
    is_s3 = location.startswith("s3:")
    options = _s3_options(job) if is_s3 else {}
    given = f", storage_options={options!r}" if options else ""
    note = _note(job, "#", location)
    return {
        DUCKDB: f"{_secret(job) if is_s3 else ''}{_note(job, '--', location)}FROM delta_scan({_sql(location)});",
        POLARS: f"import polars as pl\n\n{note}rows = pl.scan_delta({location!r}{given}).collect()",
        PANDAS: "from deltalake import DeltaTable\n\n"
        f"{note}rows = DeltaTable({location!r}{given}).to_pandas()  # pip install deltalake pandas",
        SPARK: f"{note}{_spark_s3(job) if is_s3 else ''}"
        f'rows = spark.read.format("delta").load({_s3a(location)!r})  # with the package delta-spark',
    }


def _iceberg(job: LoadedJob, sink: SinkSpec) -> dict[str, str]:
    catalog = job.with_catalog_file(sink).catalog
    assert catalog is not None and sink.table is not None, "the spec is checked"
    location = _location(job, sink)
    is_s3 = location.startswith("s3:")
    place = {"glue.endpoint" if catalog.type == "glue" else "uri": catalog.uri} if catalog.uri else {}
    properties = {"type": catalog.type, **place, **_region(job, catalog), **catalog.options}
    properties |= {f"s3.{name}": value for name, value in _endpoint(job).items()} if is_s3 else {}
    opened = (
        "from pyiceberg.catalog import load_catalog\n\n"
        f"{_note(job, '#', location, *properties.values())}"
        f"catalog = load_catalog({catalog.name!r}, **{properties!r})\n"
        f"table = catalog.load_table({sink.table!r})\n"
    )
    return {
        DUCKDB: _duckdb_iceberg(job, sink, catalog, opened, is_s3),
        POLARS: f"import polars as pl\n{opened}rows = pl.scan_iceberg(table).collect()",
        PANDAS: f"{opened}rows = table.scan().to_pandas()  # pip install pyiceberg pandas",
        SPARK: _spark_iceberg(job, sink, catalog, is_s3),
    }


def _region(job: LoadedJob, catalog: CatalogSpec) -> dict[str, str]:
    """Return the region of a catalog on AWS, as Milepost takes it from the store; {}: a Connection has it."""
    of_store = _endpoint(job).get("region")
    return {"client.region": of_store} if of_store and catalog.is_on_aws else {}


def _duckdb_iceberg(job: LoadedJob, sink: SinkSpec, catalog: CatalogSpec, opened: str, is_s3: bool) -> str:
    """Return code for DuckDB: it reads REST catalogs, and a table of another catalog by its newest metadata."""
    secret = _secret(job) if is_s3 else ""
    if catalog.type == "rest":
        warehouse, name = catalog.options.get("warehouse", ""), ".".join(map(_ident, (sink.table or "").split(".")))
        signed = ", AUTHORIZATION_TYPE 'sigv4'" if catalog.is_on_aws else ""
        options = f"TYPE iceberg, ENDPOINT {_sql(catalog.uri)}{signed}"
        note = _note(job, "--", catalog.uri, *catalog.options.values())
        return f"{secret}{note}ATTACH {_sql(warehouse)} AS lake ({options});\nFROM lake.{name};"
    run = f"duckdb.sql({secret!r})\n" if secret else ""
    return f"import duckdb\n{opened}{run}rows = duckdb.sql(f\"FROM iceberg_scan('{{table.metadata_location}}')\")"


def _spark_iceberg(job: LoadedJob, sink: SinkSpec, catalog: CatalogSpec, is_s3: bool) -> str:
    kind = "jdbc" if catalog.type == "sql" else catalog.type
    place = _jdbc(catalog.uri) if kind == "jdbc" else catalog.uri
    settings = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": kind}
    settings |= {".glue.endpoint" if kind == "glue" else ".uri": place} if place else {}
    settings |= {f".{name}": value for name, value in (_region(job, catalog) | catalog.options).items()}
    if kind == "jdbc":  # Iceberg requires a warehouse, for new tables only
        settings.setdefault(".warehouse", _location(job, sink))
    if is_s3:
        settings |= {".io-impl": "org.apache.iceberg.aws.s3.S3FileIO"}
        settings |= {f".s3.{name}": value for name, value in _endpoint(job).items() if name == "endpoint"}
    prefix = f"spark.sql.catalog.{catalog.name}"
    lines = [f"spark.conf.set({f'{prefix}{name}'!r}, {value!r})" for name, value in settings.items()]
    name = ".".join(f"`{part.replace('`', '``')}`" for part in (catalog.name, *(sink.table or "").split(".")))
    note = _note(job, "#", *settings.values())
    return note + "\n".join((*lines, f"rows = spark.table({name!r})  # with the package iceberg-spark-runtime"))


def _postgres(job: LoadedJob, sink: SinkSpec) -> dict[str, str]:
    address = _database(sink)
    schema, _, name = (sink.table or "").partition(".")
    query = f"SELECT * FROM {_ident(schema)}.{_ident(name)}"
    note = _credentials_note(sink)
    return {
        DUCKDB: f"{note.replace('#', '--', 1)}ATTACH {_sql(address)} AS pg (TYPE postgres, READ_ONLY);\n"
        f"FROM pg.{_ident(schema)}.{_ident(name)};",
        POLARS: f"import polars as pl\n\n{note}rows = pl.read_database_uri({query!r}, {address!r})",
        PANDAS: f"import pandas as pd\nfrom sqlalchemy import create_engine\n\n{note}"
        f"rows = pd.read_sql({query!r}, create_engine({_psycopg(address)!r}))",
        SPARK: f"{note}rows = spark.read.jdbc({_jdbc(address)!r}, {f'({query}) AS t'!r})",
    }


def _parquet(job: LoadedJob, sink: SinkSpec) -> dict[str, str]:
    """Return code that reads a copy: only Milepost reads a managed table."""
    file = f"{sink.name}.parquet"
    command = f"milepost read {job.spec.name} {sink.name} --output {file}"
    python = f"# first, in a shell: {command}\n"
    return {
        DUCKDB: f"-- first, in a shell: {command}\nFROM read_parquet({_sql(file)});",
        POLARS: f"import polars as pl\n\n{python}rows = pl.read_parquet({file!r})",
        PANDAS: f"import pandas as pd\n\n{python}rows = pd.read_parquet({file!r})",
        SPARK: f"{python}rows = spark.read.parquet({file!r})",
    }


def _location(job: LoadedJob, sink: SinkSpec) -> str:
    """Return the path of a local table, or the URL of another one, with `${env:…}` as in the spec."""
    path = sink.path or ""
    url = path if path.startswith("${") else absolute_url(path, job.module_dir)
    return unquote(urlsplit(url).path) if url.startswith("file:") else url


def _note(job: LoadedJob, mark: str, *texts: str) -> str:
    """Return a comment that names what the code needs from its reader: environment variables and a Connection."""
    lines = []
    if any("${env:" in text for text in (*texts, job.spec.store.endpoint_url, job.spec.store.region)):
        lines.append("${env:NAME} is a variable of the job's environment")
    if job.spec.store.conn_id is not None and any(text.startswith("s3:") for text in texts):
        lines.append(f"endpoint, region and credentials are in Airflow's Connection {job.spec.store.conn_id}")
    return "".join(f"{mark} {line}\n" for line in lines)


def _endpoint(job: LoadedJob) -> dict[str, str]:
    """Return the endpoint and region of the spec; {} if a Connection has them."""
    store = job.spec.store
    if store.conn_id is not None:
        return {}
    return {**({"endpoint": store.endpoint_url} if store.endpoint_url else {}), "region": store.region}


def _s3_options(job: LoadedJob) -> dict[str, str]:
    found = _endpoint(job)
    options = {f"aws_{'endpoint_url' if name == 'endpoint' else name}": value for name, value in found.items()}
    return options | ({"aws_allow_http": "true"} if found.get("endpoint", "").startswith("http:") else {})


def _secret(job: LoadedJob) -> str:
    """Return the statement with which DuckDB reaches S3 with the user's own credentials."""
    found = _endpoint(job)
    parts = ["TYPE s3", "PROVIDER credential_chain"]
    parts += [f"REGION {_sql(found['region'])}"] if "region" in found else []
    if "endpoint" in found:
        host = found["endpoint"].partition("://")[2] or found["endpoint"]
        parts += [f"ENDPOINT {_sql(host.rstrip('/'))}", "URL_STYLE 'path'"]
        parts += ["USE_SSL false"] if found["endpoint"].startswith("http:") else []
    return f"CREATE SECRET ({', '.join(parts)});\n"


def _spark_s3(job: LoadedJob) -> str:
    endpoint = _endpoint(job).get("endpoint")
    if endpoint is None:
        return ""
    settings = {"fs.s3a.endpoint": endpoint, "fs.s3a.path.style.access": "true"}
    lines = [
        f"spark.sparkContext._jsc.hadoopConfiguration().set({name!r}, {value!r})\n" for name, value in settings.items()
    ]
    return "".join(lines)


def _s3a(location: str) -> str:
    return f"s3a{location[2:]}" if location.startswith("s3:") else location


def _database(sink: SinkSpec) -> str:
    """Return the URI of a database without user and password, which each reader has itself."""
    if sink.dsn is None or "://" not in sink.dsn:
        return "postgresql://HOST:5432/DATABASE"
    scheme, _, rest = sink.dsn.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}"


def _credentials_note(sink: SinkSpec) -> str:
    where = f"Airflow's Connection {sink.conn_id}" if sink.conn_id is not None else "your own"
    return f"# user and password: of {where}, such as from PGUSER and PGPASSWORD\n"


def _psycopg(address: str) -> str:
    return f"postgresql+psycopg://{address.partition('://')[2]}"


def _jdbc(uri: str) -> str:
    """Return the JDBC URL of a database URI, without user and password: `sqlite:////a.db` is `jdbc:sqlite:/a.db`."""
    scheme, _, rest = uri.partition("://")
    if scheme.startswith("sqlite"):
        return f"jdbc:sqlite:{rest.removeprefix('/').partition('?')[0]}"
    return f"jdbc:postgresql://{rest.rpartition('@')[2]}"


def _sql(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _ident(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
