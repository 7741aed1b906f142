"""Sections of an incident: the failure, the refusing rules, the input, and the checkpoint that readers see."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from milepost.epoch import counted, lasting
from milepost.jobmaster import HIDDEN_VALUES, Incident, IncidentInput, RefusingRule, RowsBefore, Since
from milepost.views.text import (
    bounds_text,
    checkpoint_link,
    failure_text,
    printable,
    rule_state,
    show_count,
    show_time,
    since_text,
)
from milepost.views.tree import (
    UNKNOWN,
    Fact,
    Figure,
    Meaning,
    Row,
    Section,
    Table,
)


def incident_sections(
    incident: Incident,
    shows_age_ms: int | None = None,
    before: Sequence[RowsBefore] = (),
    *,
    failing: Since | None = None,
    with_values: bool = True,
    with_bounds: bool = True,
) -> tuple[Section, ...]:
    """Return the sections of an incident; the first one states the failure.

    Args:
        shows_age_ms: age of the checkpoint that readers see; None hides it.
        before: published rows of the refused keys, by rule; () hides them.
        failing: time of the first of these failures; None hides it.
        with_values: whether to include data values. with_bounds: whether to include the rules' bounds from the spec.
    """
    failed = f"Checkpoint {incident.checkpoint_id} failed: {incident.meaning or incident.reason}"
    return (
        Section(failed, lines=tuple(_what(incident, failing)), meaning=Meaning.BAD),
        *(
            _rule(rule, published, with_values, with_bounds)
            for rule, published in zip(incident.rules, before or [RowsBefore()] * len(incident.rules), strict=True)
        ),
        *_read(incident),
        Section("What readers see now", lines=tuple(_seen(incident, shows_age_ms))),
    )


def _what(incident: Incident, failing: Since | None) -> Iterator[str]:
    yield failure_text(incident.reason, incident.detail)
    if failing is not None:
        yield f"Epochs fail {since_text(failing)}."
    if read := [one for one in incident.read or () if one.rows]:
        yield f"It read {'; '.join(map(_input, read))}."
    yield "Nothing of it is published."
    if incident.problem is not None:
        yield f"What the quality gate refused cannot be read: {incident.problem}"
    if incident.spec_changed:
        yield "The spec has changed since: the bounds below are those of the current spec."
    if incident.shortened:
        yield "Rows or names were left out: the record would have been larger than 64 kB."


def _rule(rule: RefusingRule, before: RowsBefore, with_values: bool, with_bounds: bool) -> Section:
    facts = [Fact("severity", rule.severity)]
    if with_bounds:
        missing = "the spec no longer has the rule"
        facts.append(Fact("bounds", missing if rule.bounds is None else bounds_text(rule.bounds) or "none"))
    refused, checked = rule.observed.get("unexpected_count"), rule.observed.get("element_count")
    if refused is not None and checked is not None:
        facts.append(Fact("refused", f"{show_count(refused)} of {counted(int(checked), 'row')}"))
    if rule.observed_value is not None and with_values:
        facts.append(Fact("observed value", printable(rule.observed_value)))
    if rule.exception is not None and with_values:
        facts.append(Fact("raised", printable(rule.exception)))
    facts.append(Fact("earlier", _previous(rule)))
    tables = [_rows(rule, before)] if with_values and rule.rows else []
    tables += [_history(rule)] if rule.previous else []
    lines = () if with_values else (HIDDEN_VALUES,)
    if before.problem and with_values:
        lines = (f"What readers see for these keys is not shown: {before.problem}.",)
    title = f"{rule.type}({rule.column or ''})"
    return Section(title, f"rule of table {rule.sink}", tuple(facts), lines=lines, tables=tuple(tables))


def _previous(rule: RefusingRule) -> str:
    """Summarize the rule's earlier results."""
    if not rule.previous:
        return "no earlier result"
    met = sum(result.met for result in rule.previous)
    return f"met in {met} of the last {counted(len(rule.previous), 'epoch')}"


def _rows(rule: RefusingRule, before: RowsBefore) -> Table:
    """Return the refused rows, key columns first. Each value follows the one that readers see now, if it is known."""
    keys = [name for name in rule.key if name in rule.rows[0]]
    names = [name for name in rule.rows[0] if name not in keys]
    columns = list(keys)
    for name in names:
        columns += [f"{name} now", f"{name} refused"] if before.rows else [name]
    rows = []
    for row, published in zip(rule.rows, before.rows or [None] * len(rule.rows), strict=True):
        cells = [show_count(row.get(name)) for name in keys]
        for name in names:
            now = "no row" if published is None else show_count(published.get(name))
            cells += [now, show_count(row.get(name))] if before.rows else [show_count(row.get(name))]
        rows.append(Row(tuple(cells)))
    title = f"{counted(len(rule.rows), 'refused row')}" + (f", by key {', '.join(rule.key)}" if rule.key else "")
    return Table(tuple(map(printable, columns)), tuple(rows), title=printable(title), has_data_columns=True)


def _history(rule: RefusingRule) -> Table:
    rows = [
        Row(
            (
                checkpoint_link(one.checkpoint_id),
                show_time(one.completed),
                rule_state(one.met, one.exception),
                show_count(one.observed.get("unexpected_count")),
                show_count(one.observed.get("element_count")),
            )
        )
        for one in rule.previous
    ]
    return Table(("checkpoint", "completed", "result", "refused", "rows"), tuple(rows), title="Earlier results")


def _read(incident: Incident) -> Iterator[Section]:
    if incident.read is None:
        return
    rows = [
        Row(
            (
                one.source,
                Figure(f"{one.rows:,}"),
                Figure(f"{one.objects:,}"),
                printable(_names(one.first, one.objects)) or UNKNOWN,
                printable(one.records or "-"),
            )
        )
        for one in incident.read
    ]
    columns = ("source", "rows", "objects", "names", "log")
    yield Section("What it read", tables=(Table(columns, tuple(rows), optional=columns[4:]),))


def _input(read: IncidentInput) -> str:
    """Return what an epoch read of a source: `300 rows of sales (0012.csv)`."""
    names = printable(_names(read.first, read.objects))
    return f"{counted(read.rows, 'row')} of {read.source}" + (f" ({names})" if names else "")


def _names(first: Sequence[str], objects: int) -> str:
    more = f" and {objects - len(first):,} more" if first and objects > len(first) else ""
    return ", ".join(first) + more


def _seen(incident: Incident, age_ms: int | None) -> Iterator[str]:
    if incident.shows is None:
        yield "Nothing: no checkpoint has completed yet."
        return
    ago = "" if age_ms is None else f", {lasting(age_ms)} ago"
    yield f"Checkpoint {incident.shows}, completed at {show_time(incident.shows_since)}{ago}."
    if incident.waiting:
        yield f"Tables that do not show it yet: {', '.join(incident.waiting)}."
