"""Decide what an edit of a SQL statement does to recorded state and tables.

What an operator or a sink holds is right if the text from the sources to it is the one it was computed with, whether a
statement or an operator of the spec has that text. Otherwise it is *refilled*: rebuilt in the next epoch from current
rows that are right. If rows that it needs are gone, it is refused (*backfill*), or continues with the new text from now
on. Example, of a HAVING::

    orders -> totals__agg (unchanged) -> totals (edited) -> sizes__agg
                                                            refilled from the current rows of totals__agg

An operator of the spec that reads no statement follows the rules of a spec: it continues. SQL that reads it lacks rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from milepost.epoch import CheckpointMetadata
from milepost.jobmaster.compatibility.edits.recorded_texts import RecordedTexts
from milepost.jobspec.graph import (
    JobGraph,
    SinkInput,
    is_changed,
    is_other_table,
    state_signatures,
    statement_of,
)
from milepost.jobspec.job import JobSpec
from milepost.jobspec.load import hash_spec
from milepost.operators.base import APPEND, RETRACTIONS


@dataclass(frozen=True, slots=True)
class QueryEdits:
    """The verdicts of the edits since a checkpoint. Nodes and sinks that are in none of these are unchanged.

    Attributes:
        refilled: operators that restart with all current rows of updates upstream.
        replaced: sinks of which the next epoch replaces all rows.
        lacking: operators, new or edited, that lack rows that were read before, or read them through another text.
        lacking_sinks: sinks for which the same is true.
        stuck: operators that can neither continue, because an input is refilled, nor restart, because of another one.
        stuck_sinks: sinks that cannot replace the rows that they show.
        continued: operators without a statement, upstream too, that continue with another text, or begin empty.
    """

    refilled: frozenset[str] = frozenset()
    replaced: frozenset[str] = frozenset()
    lacking: frozenset[str] = frozenset()
    lacking_sinks: frozenset[str] = frozenset()
    stuck: frozenset[str] = frozenset()
    stuck_sinks: frozenset[str] = frozenset()
    continued: frozenset[str] = frozenset()


def query_edits(
    spec: JobSpec, graph: JobGraph, base: CheckpointMetadata | None, *, from_now_on: bool = False
) -> QueryEdits:
    """Return what the edits of SQL statements since a checkpoint do.

    Args:
        from_now_on: edited state continues with the new text.
    """
    if base is None or not spec.statements or hash_spec(spec) == base.spec_hash:
        return QueryEdits()
    edits = _Edits(spec, graph, base, from_now_on).verdicts()
    if from_now_on:
        return edits
    accepted = _Edits(spec, graph, base, True).verdicts()  # what would be refilled from state that continues
    return replace(
        edits,
        lacking=edits.lacking | accepted.refilled - edits.refilled,
        lacking_sinks=edits.lacking_sinks | accepted.replaced - edits.replaced,
    )


class _SinkVerdict(Enum):
    """What an edit does to a sink: the sink continues, or is in a set of `QueryEdits`."""

    CONTINUES = "continues"
    REPLACED = "replaced"
    LACKING = "lacking"
    STUCK = "stuck"


@dataclass(slots=True)
class _Edits:
    spec: JobSpec
    graph: JobGraph
    base: CheckpointMetadata
    from_now_on: bool
    refilled: set[str] = field(default_factory=set)
    lacking: set[str] = field(default_factory=set)
    continued: set[str] = field(default_factory=set)
    unusable: set[str] = field(default_factory=set)
    """Operators of which the state is refused."""
    texts: RecordedTexts = field(init=False)

    def __post_init__(self) -> None:
        self.texts = RecordedTexts(self.spec, self.base)

    def verdicts(self) -> QueryEdits:
        signatures, stuck = state_signatures(self.spec, self.graph), set()
        recorded: Mapping[str, Any] = self.base.signatures["operators"]
        for node in self.graph.stateful:
            uid, before = node.uid, recorded.get(node.uid)
            lacks = any(self._lacks(name) for name in node.inputs)
            if before is None or uid not in self.base.operators:
                if lacks:
                    (self.continued if statement_of(self.spec, uid) is None else self.lacking).add(uid)
                continue
            moved, after = any(self._moves(name) for name in node.inputs), signatures["operators"][uid]
            differs, same = is_changed(before, after), self.texts.is_same_state(uid, before, after)
            if not self.texts.is_governed(uid, before):
                (self.unusable if differs else self.continued if not same else set()).add(uid)
            elif not lacks:
                if moved or differs or not self.texts.is_same(uid, before, after):
                    self.refilled.add(uid)
            elif moved:
                stuck.add(uid)
                self.unusable.add(uid)
            elif differs:
                self.unusable.add(uid)
            elif not same:
                self.lacking.add(uid)
        sinks: dict[_SinkVerdict, set[str]] = {verdict: set() for verdict in _SinkVerdict}
        for name, rows in self.graph.sink_inputs.items():
            before = None if name not in self.base.sinks else self.base.signatures["sinks"].get(name)
            sinks[self._sink_verdict(rows, before, signatures["sinks"][name])].add(name)
        return QueryEdits(
            refilled=frozenset(self.refilled),
            replaced=frozenset(sinks[_SinkVerdict.REPLACED]),
            lacking=frozenset(self.lacking),
            lacking_sinks=frozenset(sinks[_SinkVerdict.LACKING]),
            stuck=frozenset(stuck),
            stuck_sinks=frozenset(sinks[_SinkVerdict.STUCK]),
            continued=frozenset(self.continued),
        )

    def _sink_verdict(
        self, rows: SinkInput, before: Mapping[str, Any] | None, after: Mapping[str, Any]
    ) -> _SinkVerdict:
        if before is None:
            is_statement = statement_of(self.spec, rows.uid) is not None
            lacks = is_statement and not rows.part and self._lacks(rows.uid)
            return _SinkVerdict.LACKING if lacks else _SinkVerdict.CONTINUES
        moved, (same, governed) = self._moves(rows.uid), self.texts.of_sink(rows, before, after)
        if not governed or is_other_table(before, after) or (same and not moved):
            return _SinkVerdict.CONTINUES
        if rows.mode == "upsert" and not rows.part and not self._lacks(rows.uid):
            graph = self.graph
            if graph.nodes[graph.keyed_by(rows.uid)].publishes_state:
                return _SinkVerdict.REPLACED
        return _SinkVerdict.STUCK if moved else _SinkVerdict.LACKING

    def _lacks(self, uid: str) -> bool:
        """Return whether rows that a new reader of a node needs are lost. Current rows of updates are read again."""
        node = self.graph.nodes[uid]
        if not node.inputs:
            return uid in self.base.sources
        if uid in self.base.operators and uid not in self.refilled:
            has_current_rows = node.output_kind == RETRACTIONS or (node.output_kind != APPEND and node.publishes_state)
            accepted = self.from_now_on or uid not in self.lacking | self.continued
            return not has_current_rows or uid in self.unusable or not accepted
        return any(self._lacks(name) for name in node.inputs)

    def _moves(self, uid: str) -> bool:
        """Return whether a node's rows are computed again from refilled state."""
        node = self.graph.nodes[uid]
        if node.is_stateful:
            return uid in self.refilled
        return any(self._moves(name) for name in node.inputs)
