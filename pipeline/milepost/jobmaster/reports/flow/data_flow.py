"""Combine the graph of a spec with figures of the newest epochs, by node and edge."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from milepost.epoch import iso_ms
from milepost.errors import NotFound, StateCorrupt, StoreUnavailable
from milepost.jobmaster.figures.epoch_rows import EpochRow
from milepost.jobmaster.figures.row import completed_row
from milepost.jobmaster.figures.stored_rows import NodeFigures, StoredRows, completed_lineage
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.reports.tables.table_report import reason_to_wait
from milepost.jobspec.load import lint_report
from milepost.operators.base import BAD
from milepost.protocol.records import ManifestState

EPOCHS = 30
"""Number of epochs whose rows an edge shows."""


@dataclass(frozen=True, slots=True)
class FlowEpoch:
    """The newest epoch with figures. ended: when its checkpoint completed."""

    checkpoint_id: int
    epoch: int | None
    ended: str | None


@dataclass(frozen=True, slots=True)
class FlowNode:
    """A source or an operator, with its figures in the newest epoch; None: unknown.

    Attributes:
        kind: `source`, `static`, or that of the operator. mode: of its rows.
        time_share: its part of the time of all tasks, 0 to 1. None: not measured, as for SQL and sources.
        late_rows: rows that were late here. dropped_rows: those of them that no table has.
        bad_records: of a source. loses: dropped rows and unread bad records per epoch, oldest first; () if there was
            none.
        state: bounds of its state, as text.
    """

    name: str
    kind: str
    mode: str
    rows_in: int | None
    rows_out: int | None
    late_rows: int | None
    dropped_rows: int | None
    bad_records: int | None
    time_share: float | None
    state_bytes: int | None
    loses: tuple[int | None, ...] = ()
    state: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FlowTable:
    """The table of a sink. rows: of the whole table. shows: checkpoint that readers see; None: not the newest one.

    Attributes:
        rules, rules_met: of the quality gate. written_rows: by the newest epoch.
    """

    name: str
    format: str
    mode: str
    rows: int | None
    written_rows: int | None
    rules: int | None
    rules_met: int | None
    shows: int | None


@dataclass(frozen=True, slots=True)
class FlowEdge:
    """Rows that flow from a node to an operator or a table.

    Attributes:
        part: "" for rows, ``.late…``, ``.bad`` or ``.rejected`` for late rows, bad records or rejected rows.
        output: what `to` reads, such as ``totals``, ``totals.late`` or ``table.rejected``.
        sink: whether `to` is a table.
        rows: per epoch, oldest first; None: unknown.
    """

    source: str
    part: str
    output: str
    to: str
    sink: bool
    mode: str
    rows: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class DataFlow:
    """The graph of a job, with figures of its newest epochs.

    Attributes:
        newest: None if there are no figures yet. epochs: how many epochs have figures, at most `EPOCHS`.
        removed: nodes that these epochs had, and that the spec no longer has.
        without_figures: nodes of the spec that the newest epoch has no figures of.
        unreadable: why stored figures cannot be read, one line each.
    """

    newest: FlowEpoch | None
    epochs: int
    nodes: tuple[FlowNode, ...]
    tables: tuple[FlowTable, ...]
    edges: tuple[FlowEdge, ...]
    removed: tuple[str, ...]
    without_figures: tuple[str, ...]
    unreadable: tuple[str, ...]


def data_flow(context: JobContext) -> DataFlow:
    """Return the data flow of a job. Raises InvalidRequest: this version refuses the graph."""
    report = lint_report(context.job, context.graph)
    head = context.log.head()
    newest, figures, unreadable = (None, [], []) if head is None else _newest(context, head.state)
    latest = figures[-1] if figures else NodeFigures()
    nodes = {name for epoch in figures for name in (*epoch.sources, *epoch.operators)}
    sinks = {name for epoch in figures for name in epoch.sinks}
    spec_nodes = {node["uid"] for node in report["nodes"]}
    spec_sinks = [sink["name"] for sink in report["sinks"]]
    known = {*latest.sources, *latest.operators}
    moving = [node["uid"] for node in report["nodes"] if node["kind"] != "static"]
    removed = [*sorted(nodes - spec_nodes), *sorted(sinks - {*spec_sinks})]
    missing = [
        *(uid for uid in moving if uid not in known),
        *(name for name in spec_sinks if name not in latest.sinks),
    ]
    return DataFlow(
        newest,
        len(figures),
        tuple(_nodes(report, figures, latest)),
        tuple(_tables(report, latest, head.state if head is not None else None)),
        tuple(_edges(context, report, figures)),
        tuple(removed),
        tuple(missing) if figures else (),
        tuple(unreadable),
    )


def _newest(context: JobContext, state: ManifestState) -> tuple[FlowEpoch | None, list[NodeFigures], list[str]]:
    """Return the newest epoch, the figures of the newest epochs, oldest first, and what cannot be read."""
    head = state.head()
    if head is None:
        return None, [], []
    stored = StoredRows(context.store)
    found: list[NodeFigures] = []
    try:
        rows = list(islice(completed_lineage(stored.epochs(), head.checkpoint_id, state.live), EPOCHS))
        nodes = stored.nodes(rows)
        found = [nodes[key] for row in reversed(rows) if (key := (row.checkpoint_id, row.timeline)) in nodes]
    except (NotFound, StoreUnavailable):  # epochs merge these rows; the newest epoch has its figures in its metadata
        rows = []
    if not rows or not found or rows[0].checkpoint_id != head.checkpoint_id:
        try:
            row = completed_row(head, context.base_metadata(state, head.checkpoint_id), ())
        except StateCorrupt as error:
            stored.unreadable.append(error.message)
            return (None, [], stored.unreadable) if not found else (_epoch(rows[0]), found, stored.unreadable)
        found = [*found[1 - EPOCHS :], NodeFigures.of(row)]
    newest = FlowEpoch(int(head.checkpoint_id), int(head.epoch), iso_ms(head.completed_time_ms))
    return newest, found, stored.unreadable


def _epoch(row: EpochRow) -> FlowEpoch:
    return FlowEpoch(row.checkpoint_id, row.epoch, None if row.end_time is None else iso_ms(row.end_time))


def _nodes(report: Mapping[str, Any], figures: Sequence[NodeFigures], latest: NodeFigures) -> Iterator[FlowNode]:
    read = {edge["from"] for edge in report["edges"] if edge["part"] == BAD}
    for node in report["nodes"]:
        uid, is_source = node["uid"], node["kind"] == "source"
        own = (latest.sources if is_source else latest.operators).get(uid, {})
        lost: tuple[int | None, ...] = ()
        if not is_source or uid not in read:
            name = "bad_records" if is_source else "dropped_rows"
            lost = tuple((epoch.sources if is_source else epoch.operators).get(uid, {}).get(name) for epoch in figures)
        ms = own.get("busy_ms")
        yield FlowNode(
            name=uid,
            kind=node["kind"],
            mode=node["mode"],
            rows_in=own.get("rows_in"),
            rows_out=own.get("rows" if is_source else "rows_out"),
            late_rows=own.get("late_rows"),
            dropped_rows=own.get("dropped_rows"),
            bad_records=own.get("bad_records"),
            time_share=None if ms is None or not latest.task_ms else min(1.0, ms / latest.task_ms),
            state_bytes=own.get("state_bytes") if node["state"] else None,
            loses=lost if any(lost) else (),
            state=tuple(f"{state['name']}: {state['bound']}" for state in node["state"]),
        )


def _tables(report: Mapping[str, Any], latest: NodeFigures, state: ManifestState | None) -> Iterator[FlowTable]:
    head = None if state is None else state.head()
    for sink in report["sinks"]:
        own = latest.sinks.get(sink["name"], {})
        yield FlowTable(
            name=sink["name"],
            format=sink["format"],
            mode=sink["mode"],
            rows=own.get("table_rows"),
            written_rows=own.get("rows"),
            rules=own.get("rules"),
            rules_met=own.get("rules_met"),
            shows=None
            if state is None or head is None or reason_to_wait(state, sink["name"])
            else int(head.checkpoint_id),
        )


def _edges(context: JobContext, report: Mapping[str, Any], figures: Sequence[NodeFigures]) -> Iterator[FlowEdge]:
    kinds = {node["uid"]: node["kind"] for node in report["nodes"]}
    for edge in report["edges"]:
        rows = _rows_of(edge, kinds[edge["from"]] == "source")
        output = context.graph.sink_inputs[edge["to"]].output if edge["sink"] else edge["from"]
        yield FlowEdge(
            source=edge["from"],
            part=edge["part"],
            output=output,
            to=edge["to"],
            sink=edge["sink"],
            mode=edge["mode"],
            rows=tuple(rows(epoch) for epoch in figures),
        )


def _rows_of(edge: Mapping[str, Any], from_source: bool) -> Callable[[NodeFigures], int | None]:
    """Return what reads the rows of an edge from an epoch: of a table those that it got, else those of its origin."""
    if edge["sink"]:
        return lambda epoch: epoch.sinks.get(edge["to"], {}).get("rows")
    if from_source:
        return lambda epoch: epoch.sources.get(edge["from"], {}).get("rows")
    return lambda epoch: epoch.operators.get(edge["from"], {}).get("rows_out")
