"""The document of two epochs side by side."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from milepost.epoch import lasting
from milepost.views.text import show_bytes, show_count, show_time
from milepost.views.tree import UNKNOWN, Fact, Figure, Link, LinkTarget, Row, Section, Table, Text, View

if TYPE_CHECKING:
    from milepost.jobmaster import ComparedEpoch, ComparedFigure, EpochComparison


def comparison_view(comparison: EpochComparison) -> View:
    """Return the document: what changed, the time by phase, and the figures of each node that differ."""
    before, after = comparison.before, comparison.after
    columns = ("figure", f"checkpoint {before.checkpoint_id}", f"checkpoint {after.checkpoint_id}", "change")
    nodes = _rows(comparison.nodes)
    sections = [
        Section(facts=(*_epoch("before", before), *_epoch("after", after), *_inputs(before, after))),
        Section("Figures", tables=(Table(columns, _rows(comparison.figures)),)),
        Section("Time by phase", tables=(Table(columns, _rows(comparison.phases)),)),
        *([Section("Nodes", tables=(Table(columns, nodes),))] if nodes else []),
    ]
    title = f"checkpoint {before.checkpoint_id} compared with checkpoint {after.checkpoint_id}"
    return View(title, (), tuple(sections))


def _epoch(label: str, epoch: ComparedEpoch) -> Iterable[Fact]:
    link = Link(LinkTarget.JOB, ("checkpoints", epoch.checkpoint_id))
    began = "" if epoch.began is None else show_time(epoch.began)
    yield Fact(label, Text(f"checkpoint {epoch.checkpoint_id}", link=link), f"{epoch.outcome}, {began}")


def _inputs(before: ComparedEpoch, after: ComparedEpoch) -> Iterable[Fact]:
    for name, one, other in (
        ("code", before.code_hash, after.code_hash),
        ("spec", before.spec_hash, after.spec_hash),
        ("timeline", before.timeline, after.timeline),
    ):
        note = "" if one == other or name != "timeline" else f"{one}, then {other}"
        yield Fact(
            name, "not known" if one is None or other is None else "the same" if one == other else "another", note
        )


def _rows(figures: Iterable[ComparedFigure]) -> tuple[Row, ...]:
    return tuple(_row(figure) for figure in figures if figure.before is not None or figure.after is not None)


def _row(figure: ComparedFigure) -> Row:
    name = figure.name.removesuffix("_ms").removesuffix("_bytes").replace("_", " ")
    is_time = figure.name.endswith("_ms") or not (figure.node or "_" in figure.name)
    title = f"{figure.node}: {name}" if figure.node else name
    cells = (_shown(figure.name, value, is_time) for value in (figure.before, figure.after))
    change = UNKNOWN
    if figure.before is not None and figure.after is not None:
        change = Figure(f"{(figure.after - figure.before) / figure.before:+.0%}") if figure.before else UNKNOWN
        change = Figure("0%") if figure.before == figure.after else change
    return Row((title, *cells, change))


def _shown(name: str, value: int | None, is_time: bool) -> str:
    if value is None:
        return UNKNOWN
    if is_time:
        return Figure(lasting(value))
    return show_bytes(value) if name.endswith("bytes") else show_count(value)
