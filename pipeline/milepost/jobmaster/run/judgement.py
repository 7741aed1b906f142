"""Judge the staged rows of an epoch by the quality gate.

A sink with few staged rows is judged in this process, as one table. Beyond `DRIVER_ROWS` the rows are judged in shares,
where the tasks run, and only the partial results come here. So the memory of this process does not grow with the data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from milepost.codec import from_json
from milepost.epoch import GateShare, InputRecord, SourceSnapshot, gate_shares_of, is_large
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.retention.vetoes import stage_veto
from milepost.jobmaster.run.payloads import iter_payloads
from milepost.jobspec.job import QualitySpec
from milepost.operators.base import REJECTED
from milepost.protocol.exchange import VerifiedAnswers
from milepost.protocol.landed import LandedRange, position_text
from milepost.protocol.records import PendingCheckpoint
from milepost.quality import (
    NAMED_OBJECTS,
    Evidence,
    GateVerdict,
    PartialResult,
    RejectedRows,
    Verdict,
    VerdictStatus,
    VetoedInput,
    check_suite,
    collect_evidence,
    decide_verdict,
    evaluate,
    merge_rejected,
    refused_positions,
    rows_at,
    with_row_rules,
)
from milepost.storage.concurrency import parallel_map
from milepost.tables.records import Committable, decode_schema

JudgeInTasks = Callable[[Sequence[GateShare]], Mapping[str, PartialResult]]
"""Evaluates shares where the epoch's tasks ran. Returns the merged partial result of each sink."""

_POSITION_CHARACTERS = 200
"""Longer positions of landed sources are cut in a veto."""

SinkVerdict = tuple[Verdict, Mapping[int, Evidence]]


def judge(
    context: JobContext,
    pending: PendingCheckpoint,
    committables: Mapping[str, Committable],
    rejected: Mapping[str, RejectedRows],
    judge_in_tasks: JudgeInTasks,
    input_read: Callable[[], Mapping[str, VetoedInput]],
) -> GateVerdict:
    """Judge what an epoch would publish. The evidence of a veto is stored below the epoch's token.

    Args:
        rejected: what the row rules of each sink refused, in the tasks.
        input_read: returns what the epoch read, by source; called if there is a veto.
    Raises: as `gate.evaluate`, and `judge_in_tasks`.
    """
    judged = [suite.judged_together for suite in context.spec.quality]
    suites = [suite for suite in judged if suite.expectations]
    large = [suite for suite in suites if is_large(committables[suite.sink])]
    verdicts = _judge_on_driver(context, [suite for suite in suites if suite not in large], committables)
    if large:
        verdicts |= _judge_in_tasks(context, large, committables, judge_in_tasks)
    for suite in context.spec.quality:
        rows = committables[suite.sink].rows
        skipped: SinkVerdict = Verdict(suite.sink, VerdictStatus.SKIPPED, rows, ()), {}
        of_rows, evidence = verdicts.get(suite.sink, skipped)
        whole, shown = with_row_rules(suite, of_rows, evidence, rejected.get(suite.sink, RejectedRows()))
        verdicts[suite.sink] = whole, shown | _quarantined(context, suite, whole, committables)
    verdict = GateVerdict.of(tuple(verdicts[suite.sink][0] for suite in context.spec.quality))
    if verdict.vetoes:
        stage_veto(context, pending, verdict, {sink: seen for sink, (_, seen) in verdicts.items()}, input_read())
    return verdict


def vetoed_input(
    record: InputRecord, snapshots: Callable[[], Mapping[str, SourceSnapshot]]
) -> Mapping[str, VetoedInput]:
    """Return what an epoch read, by source, without sources that had nothing to read.

    Args:
        snapshots: returns the sources at the end of the epoch.
    """
    rows = {name: snapshot.rows for name, snapshot in snapshots().items()}
    return {
        item.name: VetoedInput(
            rows=rows.get(item.name, 0),
            objects=len(item.objects),
            first=tuple(obj.key for obj in item.objects[:NAMED_OBJECTS]),
            records=None if item.landed is None else _records_text(item.landed),
        )
        for item in record.sources
        if item.objects or item.landed is not None
    }


def _records_text(landed: LandedRange) -> str:
    position = position_text(landed.end.at, _POSITION_CHARACTERS)
    return f"records {landed.first} to {landed.end.next - 1}, up to position {position}"


def _judge_on_driver(
    context: JobContext, suites: Sequence[QualitySpec], committables: Mapping[str, Committable]
) -> dict[str, SinkVerdict]:
    names = [suite.sink for suite in suites]
    tables = parallel_map(context.store, lambda name: context.sink(name).staged_table(committables[name]), names)
    verdicts: dict[str, SinkVerdict] = {}
    for suite, table in zip(suites, tables, strict=True):
        verdict = evaluate(suite, table)
        verdicts[suite.sink] = verdict, collect_evidence(suite, verdict.vetoing, table, _key(context, suite))
    return verdicts


def _judge_in_tasks(
    context: JobContext,
    suites: Sequence[QualitySpec],
    committables: Mapping[str, Committable],
    judge_in_tasks: JudgeInTasks,
) -> dict[str, SinkVerdict]:
    shares: list[GateShare] = []
    for suite in suites:
        check_suite(suite)
        store = context.sink_config(suite.sink)
        shares += gate_shares_of(suite, committables[suite.sink], _key(context, suite), store)
    parts = judge_in_tasks(shares)
    return {
        suite.sink: decide_verdict(
            suite, parts[suite.sink], decode_schema(committables[suite.sink].schema), _key(context, suite)
        )
        for suite in suites
    }


def rejected_rows(verified: VerifiedAnswers, sinks: Iterable[str]) -> dict[str, RejectedRows]:
    """Return what the row rules of each sink refused in all tasks. A sink without such rules has no entry."""
    rejected = {}
    for sink in sinks:
        parts = [from_json(RejectedRows, part, sink) for _, part in iter_payloads(verified, "rejected", sink)]
        if parts:
            rejected[sink] = merge_rejected(parts)
    return rejected


def _quarantined(
    context: JobContext, suite: QualitySpec, verdict: Verdict, committables: Mapping[str, Committable]
) -> dict[int, Evidence]:
    """Return some quarantined rows for each row rule that vetoes, from a sink that would have published them."""
    readers = [sink.name for sink in context.spec.sinks if sink.input == suite.sink + REJECTED]
    whole = len(verdict.expectations) == len(suite.expectations)
    numbers = [*range(len(suite.expectations))] if whole else [*suite.row_rules]
    rules = {at: suite.expectations[numbers[at]] for at in verdict.vetoing if numbers[at] in suite.row_rules}
    if not rules or not readers or is_large(committables[readers[0]]):
        return {}
    table = context.sink(readers[0]).staged_table(committables[readers[0]])
    return {
        at: Evidence(rows_at(table, refused_positions(rule, table)[: suite.rows], [str(rule.arguments["column"])]))
        for at, rule in rules.items()
    }


def _key(context: JobContext, suite: QualitySpec) -> tuple[str, ...]:
    return tuple(context.graph.sink_inputs[suite.sink].key)
