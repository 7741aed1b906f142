"""Judge the staged rows of an epoch by the quality gate.

A sink with few staged rows is judged in this process, as one table. Beyond `DRIVER_ROWS` the rows are judged in shares,
where the tasks run, and only the partial results come here. So the memory of this process does not grow with the data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from milepost.epoch import GateShare, gate_shares_of, is_large
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.retention.vetoes import stage_veto
from milepost.jobspec.job import QualitySpec
from milepost.protocol.records import PendingCheckpoint
from milepost.quality import (
    Evidence,
    GateVerdict,
    PartialResult,
    Verdict,
    check_suite,
    collect_evidence,
    decide_verdict,
    evaluate,
)
from milepost.storage.concurrency import parallel_map
from milepost.tables.records import Committable, decode_schema

JudgeInTasks = Callable[[Sequence[GateShare]], Mapping[str, PartialResult]]
"""Evaluates shares where the epoch's tasks ran. Returns the merged partial result of each sink."""

SinkVerdict = tuple[Verdict, Mapping[int, Evidence]]


def judge(
    context: JobContext,
    pending: PendingCheckpoint,
    committables: Mapping[str, Committable],
    judge_in_tasks: JudgeInTasks,
) -> GateVerdict:
    """Judge what an epoch would publish. The evidence of a veto is stored below the epoch's token.

    Raises: as `gate.evaluate`, and `judge_in_tasks`.
    """
    suites = context.spec.quality
    large = [suite for suite in suites if is_large(committables[suite.sink])]
    verdicts = _judge_on_driver(context, [suite for suite in suites if suite not in large], committables)
    if large:
        verdicts |= _judge_in_tasks(context, large, committables, judge_in_tasks)
    verdict = GateVerdict.of(tuple(verdicts[suite.sink][0] for suite in suites))
    if verdict.vetoes:
        stage_veto(context, pending, verdict, {sink: seen for sink, (_, seen) in verdicts.items()})
    return verdict


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


def _key(context: JobContext, suite: QualitySpec) -> tuple[str, ...]:
    return tuple(context.graph.sink_inputs[suite.sink].key)
