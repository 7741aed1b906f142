"""The gate's verdict on an epoch: few rows are judged here, as one table; more of them in parts, where the tasks run.

Nothing that grows with the data happens in this process: beyond `DRIVER_ROWS` it gets what was found, not the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from milepost.epoch.gate_shares import GateShare, is_large, shares_of
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.retention.vetoes import stage_veto
from milepost.jobspec.job.spec import QualitySpec
from milepost.protocol.records.checkpoints import PendingCheckpoint
from milepost.quality.evidence import Evidence
from milepost.quality.gate import check_suite, evaluate, evidence
from milepost.quality.merged_verdict import verdict_of
from milepost.quality.partial_results import PartialResult
from milepost.quality.verdict import GateVerdict, Verdict
from milepost.sinks.records.committables import Committable, decode_schema
from milepost.storage.concurrency.parallel_map import parallel_map

InTasks = Callable[[Sequence[GateShare]], Mapping[str, PartialResult]]
"""Looks at shares where the epoch's tasks ran: what is found, by sink."""

Judged = tuple[Verdict, Mapping[int, Evidence]]


def judge(
    context: JobContext, pending: PendingCheckpoint, committables: Mapping[str, Committable], in_tasks: InTasks
) -> GateVerdict:
    """Judge what an epoch would publish; what refuses it is left below its token.

    Raises: as `gate.evaluate`, and `in_tasks`.
    """
    suites = context.spec.quality
    large = [suite for suite in suites if is_large(committables[suite.sink])]
    judged = _here(context, [one for one in suites if one not in large], committables)
    if large:
        judged |= _in_parts(context, large, committables, in_tasks)
    verdict = GateVerdict.of(tuple(judged[suite.sink][0] for suite in suites))
    if verdict.vetoes:
        stage_veto(context, pending, verdict, {sink: seen for sink, (_, seen) in judged.items()})
    return verdict


def _here(
    context: JobContext, suites: Sequence[QualitySpec], committables: Mapping[str, Committable]
) -> dict[str, Judged]:
    names = [suite.sink for suite in suites]
    tables = parallel_map(context.store, lambda name: context.sink(name).staged_table(committables[name]), names)
    found: dict[str, Judged] = {}
    for suite, table in zip(suites, tables, strict=True):
        verdict = evaluate(suite, table)
        found[suite.sink] = verdict, evidence(suite, verdict.vetoing, table, _key(context, suite))
    return found


def _in_parts(
    context: JobContext,
    suites: Sequence[QualitySpec],
    committables: Mapping[str, Committable],
    in_tasks: InTasks,
) -> dict[str, Judged]:
    shares: list[GateShare] = []
    for suite in suites:
        check_suite(suite)
        store = context.sink_config(suite.sink)
        shares += shares_of(suite, committables[suite.sink], _key(context, suite), store)
    parts = in_tasks(shares)
    return {
        suite.sink: verdict_of(
            suite, parts[suite.sink], decode_schema(committables[suite.sink].schema), _key(context, suite)
        )
        for suite in suites
    }


def _key(context: JobContext, suite: QualitySpec) -> tuple[str, ...]:
    return tuple(context.graph.sink_inputs[suite.sink].key)
