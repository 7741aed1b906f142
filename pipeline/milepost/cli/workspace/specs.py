"""The commands init, lint, schema and doctor."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from milepost.cli.terminal.completion import job_names
from milepost.cli.terminal.options import Job, Json, Verbose
from milepost.cli.terminal.output import Output
from milepost.cli.workspace.explained import add_sizes, show_graph, write_picture
from milepost.codec import to_json
from milepost.errors import EnvironmentUnusable, InvalidRequest
from milepost.extras import install_command, missing_libraries
from milepost.views import price_text

if TYPE_CHECKING:
    from milepost.jobmaster import JobMaster, StateSize, UpsertPrice
    from milepost.jobspec.load import LoadedJob


_DUCKDB = "`pip install duckdb-cli`"


def register(app: typer.Typer) -> None:
    """Add these commands to the group."""
    app.command()(init)
    app.command()(lint)
    app.command()(schema)
    app.command()(doctor)


def _examples(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the names of the examples with this prefix."""
    from milepost.cli.workspace.example_files import example_names

    return [name for name in example_names() if name.startswith(incomplete)]


def init(
    ctx: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="Name of the new job.")] = None,
    example: Annotated[
        str | None,
        typer.Option(
            "--example", metavar="EXAMPLE", help="Write an example job instead, such as join.", autocompletion=_examples
        ),
    ] = None,
    sql: Annotated[bool, typer.Option("--sql", help="Write the new job's operators as SQL statements.")] = False,
    origin: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="PATH", help="Read files: a file, a folder, or a quoted pattern, local or on S3."
        ),
    ] = None,
    conn_id: Annotated[
        str | None,
        typer.Option(
            "--conn-id",
            metavar="ID",
            help="With --from: the Connection of the S3 server, from AIRFLOW_CONN_<ID>; default: the AWS chain.",
        ),
    ] = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Write config/NAME.yaml, ready to run, over sample data or your files, or an example of the how-to guides."""
    from milepost.cli.workspace.scaffold import write_job

    output: Output = ctx.obj
    if conn_id is not None and origin is None:
        raise InvalidRequest("--conn-id names the S3 server of --from, which is missing. Nothing was written.")
    if example is not None:
        if origin is not None:
            raise InvalidRequest("--from is for a new job, and --example writes an existing one. Nothing was written.")
        if sql:
            raise InvalidRequest("--sql is for a new job, and --example writes an existing one. Nothing was written.")
        return _init_example(name, example, output)
    if name is None:
        from milepost.cli.workspace.example_files import example_names

        raise InvalidRequest(
            "init needs the NAME of the new job, or --example. Nothing was written.",
            hint=f"Use `milepost init visits`, or an example: {', '.join(example_names())}.",
        )
    if origin is not None:
        return _init_from(name, origin, output, conn_id=conn_id, sql=sql)
    missing = [extra for extra in ("spark", "quality", "delta") if missing_libraries(extra)]
    opened = "delta" not in missing
    files = write_job(name, Path.cwd(), gated="quality" not in missing, opened=opened, sql=sql)
    if output.json:
        return output.document({"job": name, "files": [str(path) for path in files], "missing_extras": missing})
    for path in files:
        output.text(f"wrote {path}")
    if "quality" in missing:
        output.note(f"Its quality gate is a comment for now: it needs `{install_command('quality')}`.")
    _note_next_steps(name, "totals", missing, output)


def _init_from(name: str, origin: str, output: Output, *, conn_id: str | None, sql: bool) -> None:
    from milepost.cli.workspace.proposed_job import TABLE, sample_text, source_document, write_proposed_job
    from milepost.cli.workspace.scaffold import new_spec
    from milepost.jobmaster import propose_source

    missing = [extra for extra in ("spark", "delta") if missing_libraries(extra)]
    root = Path.cwd()
    new_spec(name, root, *([f"{name}.sql"] if sql else []))  # before files are read
    proposal = propose_source(origin, root, conn_id)
    table_format = "parquet" if "delta" in missing else "delta"
    files = write_proposed_job(name, root, origin, proposal, table_format=table_format, sql=sql)
    if output.json:
        document = {"job": name, "files": [str(path) for path in files], "missing_extras": missing}
        return output.document(document | {"source": source_document(proposal)})
    for path in files:
        output.text(f"wrote {path}")
    undeclared = len(proposal.source.columns) - len(proposal.source.declared)
    left_out = f", {undeclared} not declared" if undeclared else ""
    output.note(f"Read {sample_text(proposal.source)}: {len(proposal.source.declared)} columns declared{left_out}.")
    output.note(f"{files[0]} gives a reason for each. Correct it where needed, then `milepost lint {name}`.")
    _note_next_steps(name, TABLE, missing, output)


def _note_next_steps(name: str, table: str, missing: Collection[str], output: Output) -> None:
    """Print how a new job is run, and how its table is read."""
    from milepost.cli.workspace.scaffold import table_of

    first = f"`{install_command('spark')}`, then " if "spark" in missing else ""
    output.note(f"Next: {first}`milepost run {name}`, then `milepost read {name} {table}`.")
    if "delta" in missing:
        output.note(f"Its table is Parquet for now: one that other engines read needs `{install_command('delta')}`.")
    else:
        scan = f"FROM delta_scan('{table_of(name, table)}')"
        output.note(f'Other engines read it too: `duckdb -c "{scan}"` ({_DUCKDB}).')


def _init_example(name: str | None, example: str, output: Output) -> None:
    from milepost.cli.workspace.example_files import write_example

    if name is not None:
        raise InvalidRequest(
            f"an example has its own name, and cannot be called {name}. Nothing was written.",
            hint=f"Use `milepost init --example {example}`.",
        )
    written = write_example(example, Path.cwd())
    missing = [extra for extra in written.extras if missing_libraries(extra)]
    if output.json:
        files = [str(path) for path in written.files]
        return output.document({"job": example, "files": files, "missing_extras": missing})
    for path in written.files:
        output.text(f"wrote {path}")
    first = f"`{install_command(','.join(missing))}`, then " if missing else ""
    output.note(f"Next: {first}`milepost run {example}`, then `milepost read {example} {written.first_sink}`.")


def lint(
    ctx: typer.Context,
    job: Job,
    file: Annotated[
        Path | None, typer.Option("--output", metavar="FILE.svg", help="Draw the graph to a new file.")
    ] = None,
    as_yaml: Annotated[
        bool, typer.Option("--as-yaml", help="Print the spec with the operators that its SQL is compiled into.")
    ] = False,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Validate a spec, explain its graph, and compare it with the job's head."""
    if file is not None and file.suffix != ".svg":
        raise InvalidRequest(f"{file} is no .svg: a graph is drawn as SVG. Nothing was written.")
    from milepost.jobmaster import JobMaster, advice, statement_edits
    from milepost.jobspec.load import lint_report, load_job, shown_path

    output: Output = ctx.obj
    loaded = load_job(job)
    if as_yaml:
        loaded.graph()
        return _print_spec(loaded, output)
    master = JobMaster(loaded)
    report = lint_report(loaded, master.context.graph)
    unasked = master.reports.check_sink_columns()
    with_head = _compared(master)
    report["compatibility"], report["compatibility_unknown"] = with_head.rows, with_head.unknown
    report["refused_tables"] = list(with_head.refused_tables)
    report["source_warnings"] = list(with_head.source_warnings)
    report["upsert"] = [to_json(price) for price in with_head.prices]
    edits = statement_edits(loaded.spec, with_head.rows)
    for statement in report["statements"]:
        edit = edits.get(statement["name"])
        statement["edit"] = None if edit is None else edit.value
        statement["incomplete_before"] = with_head.incomplete.get(statement["name"])
    add_sizes(report, with_head.sizes)
    if file is not None:
        write_picture(report, file)
    refused = [row for row in report["compatibility"] if row["outcome"] == "refused"]
    hint = output.as_typed(advice(loaded.spec, master.context.graph, refused)) if refused else None
    if output.json:
        output.document(report | {"hint": hint}, ok=not refused)
        raise typer.Exit(2 if refused else 0)
    verdict = "does not fit its head, so `run` refuses it" if refused else "is valid"
    if not refused and with_head.refused_tables:
        verdict += " by itself, and `run` would refuse a new table"
    output.text(f"{shown_path(loaded.path)}: job {report['job']} {verdict}; exchanges per epoch: {report['levels']}")
    show_graph(report, output)
    if file is not None:
        output.note(f"the graph is drawn to {file}")
    if report["columns_unknown"]:
        names = ", ".join(report["columns_unknown"])
        output.note(f"note: lint loads no process function: what reads the columns of {names} is checked by `run`")
    for why in unasked:
        output.note(f"note: columns were not compared with what the format holds: {why}")
    for name, types in report["other_type_names"].items():
        same = ", ".join(f"{column} {written} is {canonical}" for column, (written, canonical) in types.items())
        output.note(f"note: types of source {name}: {same}")
    for key, version in report["needed_versions"].items():
        output.note(f"note: {key} needs {version} or later")
    for uid in report["unread"]:
        output.note(f"note: nothing reads {uid}")
    if report["compatibility"]:
        output.text()
        _show_compatibility(report["compatibility"], output)
    elif report["compatibility_unknown"]:
        output.note(f"note: not compared with the job's head: {report['compatibility_unknown']}")
    for warning in with_head.source_warnings:
        output.note(f"warning: {warning}")
    for why in with_head.refused_tables:
        output.note(f"note: `run` would refuse a new table: {why}")
    for price in with_head.prices:
        if price.written_bytes_per_day is not None:
            output.paragraph(price_text(price), "  ", "")
            if price.advice is not None:
                output.note(f"note: {price.sink}: {price.advice}")
    if hint is not None:
        output.note(f"What to do: {hint}")
    raise typer.Exit(2 if refused else 0)


def _show_compatibility(compatibility: Sequence[Mapping[str, str]], output: Output) -> None:
    """Print a row for each part of the job that differs from the head, and the names of the others."""
    from milepost.jobspec.graph import UNCHANGED

    different = [row for row in compatibility if row["detail"] != UNCHANGED]
    if not different:
        return output.text("state and tables continue unchanged from the head")
    rows = [[row["uid"], row["outcome"], row["verdict"]] for row in different]
    output.table(["with the head", "outcome", "verdict"], rows, notes=[row["detail"] for row in different])
    listed = {row["uid"] for row in different} | {"job"}
    if same := [row["uid"] for row in compatibility if row["uid"] not in listed]:
        output.paragraph(f"unchanged: {', '.join(same)}", "  ", "")


def _print_spec(loaded: LoadedJob, output: Output) -> None:
    """Print the text of a spec; of a job with a SQL file, the compiled spec."""
    if output.json:
        return output.document({"job": loaded.spec.name, "spec": loaded.text})
    output.text(loaded.text.rstrip("\n"))


@dataclass(frozen=True, slots=True)
class _WithHead:
    """The comparison of a spec with the stored job.

    Attributes:
        rows: verdicts against the job's head. unknown: why the store could not be read; None if it was read.
        prices: cost of the upserts. sizes: state sizes at the head.
        refused_tables: why `run` would refuse a new table now, one entry per table.
        source_warnings: one entry per source of which nothing, or not everything, would be read.
        incomplete: statements that do not equal their queries -> the checkpoint before which they do not.
    """

    rows: list[dict[str, Any]]
    unknown: str | None = None
    prices: tuple[UpsertPrice, ...] = ()
    refused_tables: tuple[str, ...] = ()
    source_warnings: tuple[str, ...] = ()
    sizes: Mapping[str, StateSize] = field(default_factory=dict)
    incomplete: Mapping[str, int] = field(default_factory=dict)


def _compared(master: JobMaster) -> _WithHead:
    from milepost.errors import StoreUnavailable
    from milepost.jobmaster import source_checks

    try:
        refused = tuple(f"{error.message} What to do: {error.hint}" for error in master.reports.refused_tables())
        rows, prices = list(master.reports.compatibility()), master.reports.upsert_prices()
        warnings = tuple(f"source {one.name}: {one.detail}" for one in source_checks(master.job) if one.suspicious)
        sizes, incomplete = master.reports.state_sizes(), master.reports.incomplete_statements()
        return _WithHead(rows, None, prices, refused, warnings, sizes, incomplete)
    except (StoreUnavailable, EnvironmentUnusable) as error:
        # Without access to the store, as in CI, the spec alone is checked, and the report names what was not compared.
        return _WithHead([], error.message.splitlines()[0])


def schema(ctx: typer.Context, as_json: Json = False, verbose: Verbose = False) -> None:
    """Print the JSON Schema of a spec, for editors."""
    from milepost.jobspec.load import json_schema

    output: Output = ctx.obj
    if output.json:
        output.document(json_schema())
    output.text(json.dumps(json_schema(), indent=2))


def doctor(
    ctx: typer.Context,
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOB]", autocompletion=job_names, help="Also check this job's stores, sources and expectations."
        ),
    ] = None,
    as_json: Json = False,
    verbose: Verbose = False,
) -> None:
    """Check Python, Java, Spark, disk and host name, and a job's stores, sources and expectations."""
    from milepost.cli.workspace.doctor import environment_checks

    output: Output = ctx.obj
    checks = environment_checks()
    if job is not None:
        from milepost.cli.workspace.doctor import job_checks
        from milepost.jobspec.load import load_job

        checks += job_checks(load_job(job))
    failed = [check for check in checks if not check.ok]
    if output.json:
        output.document({"checks": checks}, ok=not failed)
    for check in checks:
        word = "FAIL" if not check.ok else "warn" if check.warning else "ok  "
        output.text(f"{word}  {check.check}: {check.detail}")
    raise typer.Exit(EnvironmentUnusable.exit_code if failed else 0)
