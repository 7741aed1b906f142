"""The command `migrate-table`, which moves a sink's table to another path or format."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from milepost.cli.terminal.completion import sink_names
from milepost.cli.terminal.confirmation import DryRun, Yes, agreed
from milepost.cli.terminal.open_job import open_job
from milepost.cli.terminal.options import Job, Json, Verbose
from milepost.cli.terminal.output import Output
from milepost.errors import InvalidRequest
from milepost.protocol.records import checkpoint_name

if TYPE_CHECKING:
    from milepost.jobmaster import TableAddress


class MigratedFormat(StrEnum):
    """Formats that a table can be migrated to."""

    PARQUET = "parquet"
    DELTA = "delta"
    ICEBERG = "iceberg"


class CatalogType(StrEnum):
    """Catalogs of Iceberg; see `CatalogSpec`."""

    REST = "rest"
    SQL = "sql"
    GLUE = "glue"


def register(app: typer.Typer) -> None:
    """Add this command to the group."""
    app.command(name="migrate-table")(migrate_table)


def migrate_table(
    ctx: typer.Context,
    job: Job,
    sink: Annotated[str, typer.Argument(metavar="SINK", help="Name of the sink.", autocompletion=sink_names)],
    to: Annotated[
        MigratedFormat,
        typer.Option("--to", help="Format of the new table, which may be the same. parquet: only from parquet."),
    ],
    path: Annotated[
        str,
        typer.Option("--path", metavar="PATH", help="Path of the new table, as in the spec. Nothing may exist there."),
    ],
    table: Annotated[
        str | None, typer.Option("--table", metavar="NS.NAME", help="Iceberg: name of the table in the catalog.")
    ] = None,
    catalog_type: Annotated[
        CatalogType | None, typer.Option("--catalog-type", help="Iceberg: kind of catalog.")
    ] = None,
    catalog_uri: Annotated[
        str | None, typer.Option("--catalog-uri", metavar="URI", help="Iceberg: a password only as ${env:NAME}.")
    ] = None,
    catalog_name: Annotated[
        str, typer.Option("--catalog-name", metavar="NAME", help="Iceberg: name of the catalog.")
    ] = "milepost",
    catalog_option: Annotated[
        list[str] | None,
        typer.Option("--catalog-option", metavar="KEY=TEXT", help="Iceberg: repeatable; secrets only as ${env:NAME}."),
    ] = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Copy a sink's table to another path, in the same or another format, and continue there.

    The old table stays as long as a retained checkpoint needs it.
    """
    from milepost.jobmaster import Session

    output: Output = ctx.obj
    target = _target(to, path, table, (catalog_type, catalog_uri, catalog_name), _options(catalog_option or []))
    master = open_job(job)
    plan = output.as_typed(master.migrations.plan(sink, target))
    question = f"Migrate the table of sink {plan.sink} of job {plan.job}?"
    if not agreed(plan.text, question, output, plan, dry_run=dry_run, yes=yes, idle=plan.done):
        return None
    decision = Session.cli().decision(f"milepost migrate-table {plan.job} {plan.sink} --to {to.value}")
    result = output.as_typed(master.migrations.run(plan, decision=decision))
    if output.json:
        return output.document(result)
    if result.outcome == "migrated":
        output.text(f"sink {result.sink} of job {result.job} continues at {result.target}")
        output.text(f"{checkpoint_name(result.checkpoint_id)} is the first checkpoint of the new table".capitalize())
    return output.text(f"next: {result.next_step}")


def _target(
    to: MigratedFormat,
    path: str,
    table: str | None,
    catalog: tuple[CatalogType | None, str | None, str],
    options: dict[str, str],
) -> TableAddress:
    from milepost.jobmaster import CatalogAddress, TableAddress

    kind, uri, name = catalog
    if to is not MigratedFormat.ICEBERG:
        if table is not None or kind is not None or uri is not None or options:
            raise InvalidRequest(
                f"--table and --catalog-… are for --to iceberg, not for --to {to.value}. Nothing was changed."
            )
        return TableAddress(to.value, path)
    uri = "" if uri is None and kind is CatalogType.GLUE else uri
    missing = [
        name for name, value in (("--table", table), ("--catalog-type", kind), ("--catalog-uri", uri)) if value is None
    ]
    if kind is None or uri is None or table is None:
        raise InvalidRequest(f"--to iceberg needs {', '.join(missing)}. Nothing was changed.")
    return TableAddress(to.value, path, table, CatalogAddress(kind.value, uri, name, options))


def _options(texts: list[str]) -> dict[str, str]:
    """Parse KEY=TEXT options. Returns them sorted by key."""
    options = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise InvalidRequest(f"--catalog-option {name}: expected KEY=TEXT. Nothing was changed.")
        options[name] = value
    return dict(sorted(options.items()))
