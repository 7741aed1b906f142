"""A backfill plan's document tells programs what it would do, and people in its `text`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from milepost.epoch.iso_times import watermark_text, watermark_us
from milepost.epoch.summary import watermark_of
from milepost.jobmaster.backfill.plan import BackfillPlan
from milepost.jobmaster.backfill.replay import RecordedRange
from milepost.jobmaster.compatibility.preflight import preflight
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.leadership.routes import SINK_UNAVAILABLE, find_route
from milepost.protocol.records.ids import checkpoint_name
from milepost.protocol.retention.lineage import lineage
from milepost.spec.graph.compatibility import UNCHANGED


def _kept_ahead(plan: BackfillPlan) -> list[dict[str, Any]]:
    """The sources of which the fork point has rows of the range: too far ahead to move the watermark it is chosen by.

    One date in 9999 would else let every backfill begin before it.
    """
    from_us = plan.request.from_us
    if from_us is None or plan.base is None:
        return []
    live = lineage(plan.state, plan.state.timeline())
    found = []
    for name, source in sorted(plan.base.sources.items()):
        if source.furthest_us is not None and source.ahead_since is not None and source.furthest_us >= from_us:
            older = [int(one.checkpoint_id) for one in live if one.checkpoint_id < source.ahead_since]
            found.append(
                {
                    "source": name,
                    "furthest": watermark_text(source.furthest_us),
                    "since_checkpoint": source.ahead_since,
                    "from_checkpoint": max(older, default=0),
                }
            )
    return found


def document_of(
    context: JobContext, plan: BackfillPlan, fork: str | None, replayed: int, gives_up: Sequence[str]
) -> dict[str, Any]:
    """The plan as a document, with its `text` for people, one line each.

    Args:
        fork: an interrupted backfill of the same request, code and spec, which would be continued; None: a new one.
        replayed: ranges that it has behind it.
        gives_up: forks of other backfills that nobody works on any more: they are disposed of.
    """
    ranges = plan.to_replay
    in_range = [item for item in ranges if _begins_before(item, plan.request.to_us)]
    per_epoch = plan.request.ranges_per_epoch
    left = len(ranges) - replayed
    document: dict[str, Any] = {
        "job": plan.state.job,
        "timeline": plan.state.live,
        "head": int(plan.state.timeline().head),
        "fork_point": int(plan.fork_point),
        "fork_point_watermark": watermark_text(watermark_of(plan.base)) if plan.base is not None else None,
        "kept_ahead": _kept_ahead(plan),
        "from": watermark_text(plan.request.from_us),
        "to": watermark_text(plan.request.to_us),
        "continues": fork,
        "replayed_ranges": replayed,
        "gives_up": list(gives_up),
        "ranges": [
            {
                "checkpoint_id": int(item.checkpoint_id),
                "epoch": item.epoch,
                "starts": item.starts,
                "objects": item.count,
                "bytes": item.size,
                "in_range": _begins_before(item, plan.request.to_us),
            }
            for item in ranges
        ],
        "epochs": -(-left // per_epoch),
        "epochs_judged": len(in_range),
        "objects": sum(item.count for item in ranges),
        "bytes": sum(item.size for item in ranges),
        "preflight": preflight(
            context,
            plan.base,
            plan.loaded,
            allow_non_restored_state=plan.request.allow_non_restored_state,
        ),
        "sinks": _sinks(context, plan),
        "skipped_sinks": _skipped(context, plan),
        "code_hash": plan.code.hash,
        "spec_hash": context.job.spec_hash,
    }
    return document | {"text": list(_text(document))}


def _begins_before(item: RecordedRange, to_us: int | None) -> bool:
    return to_us is None or item.starts is None or watermark_us(item.starts) < to_us


def _sinks(context: JobContext, plan: BackfillPlan) -> dict[str, dict[str, Any]]:
    """What each table holds now and at the fork point: the rows between them are made again."""
    sinks: dict[str, dict[str, Any]] = {}
    for spec in context.spec.sinks:
        sink = context.sink(spec.name)
        try:
            route = find_route(context, plan.state, plan.base, spec.name, sink)
            change = sink.compare(route.base, route.missing)
        except SINK_UNAVAILABLE as error:
            sinks[spec.name] = {"problem": error.message}
            continue
        sinks[spec.name] = {
            "rows_now": change.rows_now,
            "rows_at_fork_point": change.rows_then,
            "objects_now": change.files_now,
            "objects_at_fork_point": change.files_then,
            "cannot_undo": list(sink.undo_limits()),
            "problem": None,
        }
    return sinks


def _skipped(context: JobContext, plan: BackfillPlan) -> list[str]:
    """Sinks of the live head that the spec does not have any more."""
    head = context.base_metadata(plan.state, plan.state.timeline().head)
    return sorted(set(head.marks if head is not None else ()) - {sink.name for sink in context.spec.sinks})


def _text(document: dict[str, Any]) -> Iterator[str]:
    span = f"from {document['from']}" if document["from"] else f"from checkpoint {document['fork_point']}"
    until = f" to {document['to']}" if document["to"] else ""
    yield f"job {document['job']}: backfill {span}{until}, with the code and spec of now"
    mark = f" (watermark {document['fork_point_watermark']})" if document["fork_point_watermark"] else ""
    yield f"forks at {checkpoint_name(document['fork_point'])}{mark}; the live head is checkpoint {document['head']}"
    for kept in document["kept_ahead"]:
        yield (
            f"source {kept['source']}: rows further ahead than max_event_time_ahead, up to {kept['furthest']}, were "
            f"read by checkpoint {kept['since_checkpoint']} or later; what the fork point has of them stays as it is: "
            f"--from-checkpoint {kept['from_checkpoint']} replays them all"
        )
    ranges = document["ranges"]
    first, last = ranges[0]["checkpoint_id"], ranges[-1]["checkpoint_id"]
    yield (
        f"replays what checkpoints {first} to {last} read: {len(ranges)} ranges, {document['objects']:,} objects, "
        f"{document['bytes']:,} bytes, in {document['epochs']} epochs"
    )
    if document["continues"]:
        behind = f"{document['replayed_ranges']} of {len(ranges)}"
        yield f"continues fork {document['continues']}, which has replayed {behind}"
    for fork in document["gives_up"]:
        yield f"gives up fork {fork}, left by a backfill of another range, code or spec: what it replayed is lost"
    if document["to"]:
        judged = [item for item in ranges if item["in_range"]]
        yield (
            f"up to {document['to']}: {len(judged)} ranges, {sum(item['objects'] for item in judged):,} objects; the "
            f"quality gate judges those, and not the {len(ranges) - len(judged)} after them"
        )
    for row in document["preflight"]:
        if row["detail"] != UNCHANGED:
            yield f"{row['uid']}: {row['outcome']}: {row['detail']}"
    for name, sink in document["sinks"].items():
        if sink["problem"] is not None:
            yield f"sink {name}: does not answer now: it follows later"
            continue
        now = "damaged" if sink["rows_now"] is None else f"{sink['rows_now']:,} rows"
        yield (
            f"sink {name}: {now} now, {sink['rows_at_fork_point']:,} at the fork point; what was published since is "
            "made again"
        )
        yield from (f"cannot be undone: sink {name}: {limit}" for limit in sink["cannot_undo"])
    for name in document["skipped_sinks"]:
        yield f"sink {name} is not in the spec any more: its table stays as it is; it follows when the sink comes back"
    yield "until the last step the live timeline goes on; what it completes meanwhile is replayed too"
