"""The document of one table: size, freshness, columns, rules, epochs, files, a sample, and code that reads it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from milepost.epoch import counted, lasting
from milepost.jobmaster import HIDDEN_VALUES, TableReport, TableRule, TableSample, TableState, state_of_report
from milepost.operators.base import BAD
from milepost.views.badge import grade_meaning
from milepost.views.text import (
    bounds_text,
    checkpoint_link,
    observed_text,
    printable,
    rule_state,
    show_bytes,
    show_count,
    show_time,
)
from milepost.views.tree import (
    UNKNOWN,
    Fact,
    Figure,
    Fold,
    Link,
    LinkTarget,
    Meaning,
    Row,
    Section,
    Table,
    Text,
    Value,
    View,
)

_EPOCHS = 10
"""Epochs in the table. Pages also draw them, with more."""

_UNTYPED = ("binary", "large_binary", "list", "large_list", "struct", "map", "fixed_size", "time32", "time64")
"""Beginnings of the types whose values `milepost why` does not read."""

_DATA = "_milepost/data/"
_DIGEST = re.compile(r"([0-9a-f]{12})[0-9a-f]{52}")


def table_view(
    report: TableReport, state: TableState | None = None, *, with_values: bool = True, with_bounds: bool = True
) -> View:
    """Return the document of a table.

    Args:
        state: as the job's health has it; None: computed from the report, without how fresh the job is.
        with_values: whether it has data values. with_bounds: whether it has the bounds of rules, which the spec has.
    """
    state = state_of_report(report) if state is None else state
    badge = Text(state.word, grade_meaning(state.grade))
    sections = [Section(facts=tuple(_facts(report)))]
    if report.waits is not None:
        sections.append(
            Section("Readers do not see the newest checkpoint", lines=(report.waits,), meaning=Meaning.WARN)
        )
    if report.columns:
        sections.append(Section("Columns", tables=(_columns(report),)))
    sections.append(_rules(report, with_bounds))
    if report.epochs or report.unreadable:
        sections.append(Section("Epochs", lines=report.unreadable, tables=(_epochs(report),)))
    if report.newest_files:
        sections.append(Section("Newest files", tables=(_files(report),)))
    sections.append(sample_section(report.sample, report.problem, with_values=with_values))
    if with_values and (commands := _trace_commands(report)):
        sections.append(Section("Trace a row of the sample to its input", source=commands, fold=Fold.CODE))
    sections += [Section(f"Read it with {engine}", source=code, fold=Fold.CODE) for engine, code in report.code.items()]
    return View(f"table {report.sink} of {report.job}", (badge,), tuple(sections))


def _facts(report: TableReport) -> Iterator[Fact]:
    rows = counted(report.rows, "row")
    exact = "" if report.rows_exact else "with replaced and deleted ones: it consists of changes"
    yield Fact("rows", rows if report.rows_exact else f"at most {rows}", exact)
    size = "too many files to add up" if report.bytes is None else show_bytes(report.bytes)
    yield Fact("files", f"{report.files:,}", size)
    if report.event_time is None:
        yield Fact("fresh", "unknown", "no event time says how old the rows are")
    else:
        age = "" if report.age_ms is None else lasting(report.age_ms)
        yield Fact("fresh", f"{age} old", f"complete up to event time {show_time(report.event_time)}")
    if report.shows is None:
        yield Fact("readers see", "nothing yet" if report.waits is None else "an earlier state")
    else:
        seen = Text(f"checkpoint {report.shows}", link=Link(LinkTarget.JOB, ("checkpoints", report.shows)))
        yield Fact("readers see", seen, f"timeline {report.timeline}")
    yield Fact("mode", report.mode, f"key {', '.join(report.key)}" if report.key else "")
    if report.partition_by:
        yield Fact("partitioned by", ", ".join(report.partition_by))
    yield Fact("rows of", report.input)
    yield Fact("table", report.table)


def _columns(report: TableReport) -> Table:
    rows = (Row((printable(one.name), printable(one.type), "yes" if one.nullable else "no")) for one in report.columns)
    return Table(("column", "type", "nullable"), tuple(rows))


def _rules(report: TableReport, with_bounds: bool) -> Section:
    if not report.rules:
        return Section("Quality rules", lines=("No rule checks the rows of this table.",))
    bounds = ("bounds",) if with_bounds else ()
    columns = ("rule", *bounds, "severity", "newest result", "met", "newest refused")
    rows = tuple(_rule(rule, with_bounds) for rule in report.rules)
    return Section("Quality rules", tables=(Table(columns, rows, optional=columns[-1:]),))


def _rule(rule: TableRule, with_bounds: bool) -> Row:
    newest = rule.results[0] if rule.results else None
    met = Figure(f"{sum(result.met for result in rule.results)} of {len(rule.results)}") if rule.results else UNKNOWN
    bounds = (bounds_text(rule.bounds),) if with_bounds else ()
    cells: tuple[Value, ...] = (
        f"{rule.type}({', '.join(rule.columns)})",
        *bounds,
        rule.severity or "",
        UNKNOWN if newest is None else rule_state(newest.met, newest.exception),
        met,
        show_count(None if newest is None else newest.observed.get("unexpected_count")),
    )
    return Row(cells, folds=(_results(rule),) if rule.results else ())


def _results(rule: TableRule) -> Table:
    rows = [
        Row(
            (
                checkpoint_link(one.checkpoint_id),
                show_time(one.completed),
                rule_state(one.met, one.exception),
                observed_text(one.observed, one.exception),
            )
        )
        for one in rule.results
    ]
    title = f"{counted(len(rows), 'result')}, newest first"
    return Table(("checkpoint", "completed", "result", "observed"), tuple(rows), title=title, fold=Fold.RESULTS)


def _epochs(report: TableReport) -> Table:
    rows = [
        Row(
            (
                checkpoint_link(one.checkpoint_id),
                show_time(one.completed) if one.completed else UNKNOWN,
                show_count(one.rows),
                show_count(one.table_rows),
                show_count(one.late_rows),
                UNKNOWN if one.age_ms is None else Figure(lasting(one.age_ms)),
                UNKNOWN if one.rules is None else Figure(f"{one.rules_met or 0} of {one.rules}"),
            )
        )
        for one in reversed(report.epochs[-_EPOCHS:])
    ]
    columns = ("checkpoint", "completed", "rows", "rows of the table", "late", "age of event time", "rules met")
    return Table(columns, tuple(rows), optional=columns[5:])


def _files(report: TableReport) -> Table:
    rows = [
        Row(
            (
                printable(_short(one.key)),
                show_count(one.rows),
                show_bytes(one.bytes),
                "another writer" if one.checkpoint_id is None else checkpoint_link(one.checkpoint_id),
            )
        )
        for one in reversed(report.newest_files)
    ]
    return Table(("file", "rows", "bytes", "written by checkpoint"), tuple(rows))


def _short(key: str) -> str:
    """Return the key of a file without the folder of all files, and with the beginning of its digest."""
    name = key.removeprefix(_DATA)
    return _DIGEST.sub(r"\1…", name)


def sampled_rows(report: TableReport) -> list[str]:
    """Return the rows of the sample as words for `why`: the values of the key, or all values; [] if none can be traced.

    Values that are cut, or cannot be typed, are left out, and rows with such a value in their key.
    Example: `city=Bergen`, `city='New York'`.
    """
    sample = report.sample
    if sample is None or report.mode == "changelog" or report.input.endswith(BAD):
        return []
    unnamed = {column.name for column in report.columns if column.type.startswith(_UNTYPED)}
    names = [name for name in report.key or sample.columns if _can_be_named(name) and name not in unnamed]
    rows = []
    for row in sample.rows:
        values = {name: value for name, value in zip(sample.columns, row, strict=True) if _can_be_typed(value)}
        named = [name for name in names if name in values]
        if named and len(named) >= len(report.key):
            rows.append(shlex.join(f"{name}={_typed(values[name])}" for name in named))
    return list(dict.fromkeys(rows))


def _trace_commands(report: TableReport) -> str:
    at = "" if report.sample is None else f" --at {report.sample.checkpoint_id}"
    command = f"milepost why {report.job} {report.sink}{at}"
    return "\n".join(f"{command} {_arguments(words)}" for words in sampled_rows(report))


def _arguments(words: str) -> str:
    """Return words that begin with a column, also if its name begins with a dash, as an option does."""
    return f"-- {words}" if words.lstrip("'").startswith("-") else words


def _can_be_named(column: str) -> bool:
    return column.isprintable() and "=" not in column


def _can_be_typed(value: str | None) -> bool:
    return value is None or (value.isprintable() and not value.endswith("…"))


def _typed(value: str | None) -> str:
    """Return a value as `why` reads it: text that would be read as null, or that is in quotes, is put in quotes."""
    if value is None:
        return "null"
    return f"'{value}'" if value == "null" or (value[:1] == value[-1:] == "'") else value


def sample_section(sample: TableSample | None, problem: str | None, *, with_values: bool) -> Section:
    """Return the sampled rows of a table, or why there are none."""
    if not with_values:
        return Section("Sample", lines=(HIDDEN_VALUES,))
    if problem is not None:
        return Section("The table cannot be read now", lines=(problem,), meaning=Meaning.WARN)
    if sample is None or sample.file is None:
        return Section("Sample", lines=("The table has no rows.",))
    lines = [f"{counted(sample.cut, 'value')} cut."] if sample.cut else []
    lines += [f"Left out, because of their size or number: {printable(', '.join(sample.left_out))}."] * bool(
        sample.left_out
    )
    if sample.version is not None:
        lines.append(f"Readers name this version of the table {sample.version}.")
    rows = tuple(Row(tuple("null" if value is None else printable(value) for value in row)) for row in sample.rows)
    about = f"the first rows of the newest file, as of checkpoint {sample.checkpoint_id}"
    columns = tuple(printable(name) for name in sample.columns)
    return Section(
        "Sample", about, lines=tuple(lines), tables=(Table(columns, rows, has_data_columns=True),) if columns else ()
    )
