"""Check that everything that a replay reads can still be read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from milepost.epoch import counted
from milepost.errors import InvalidRequest, SourceChanged
from milepost.jobmaster.backfill.replay import RecordedRange
from milepost.jobmaster.job.context import JobContext
from milepost.jobmaster.job.input.table_files import check_table_files
from milepost.protocol.landed import StoredRecord, is_reference, live_sequences
from milepost.protocol.records import ObjectHandle
from milepost.sources.planning import format_object_list, list_objects
from milepost.storage import open_store, stat_handle
from milepost.storage.concurrency import parallel_map
from milepost.storage.log import SourceLog

_NAMED = 20


def _before(faults: Iterable[Mapping[str, object]]) -> int:
    """Return the checkpoint before the first fault that read an object that cannot be read again."""
    return min(int(str(fault["checkpoint_id"])) for fault in faults) - 1


def check_objects(context: JobContext, ranges: Sequence[RecordedRange]) -> None:
    """Check that every object of a replay still exists in its recorded version.

    Raises:
        SourceChanged: with every missing or changed object in `details`.
    """
    faults: list[dict[str, object]] = []
    for name in sorted({name for item in ranges for name, objects in item.objects.items() if objects}):
        if name in context.spec.landed:
            _check_landed_objects(context, ranges, name)
            continue
        store, pattern = context.source(name)
        now = {obj.key: obj for obj in list_objects(open_store(store), pattern).objects}
        for item in ranges:
            for obj in item.objects.get(name, ()):
                stored = now.get(obj.key)
                if stored is None or (stored.etag, stored.size) != (obj.etag, obj.size):
                    state = "gone" if stored is None else f"now {stored.etag} ({stored.size} bytes)"
                    faults.append({"source": name, "key": obj.key, "checkpoint_id": int(item.checkpoint_id)})
                    faults[-1] |= {"recorded": f"{obj.etag} ({obj.size} bytes)", "found": state}
    if faults:
        lines = [
            f"{fault['source']}: {fault['key']}: consumed by checkpoint {fault['checkpoint_id']} as {fault['recorded']}"
            f", {fault['found']}"
            for fault in faults[:_NAMED]
        ]
        raise SourceChanged(
            f"job {context.spec.name}: {counted(len(faults), 'object')} of the recorded ranges cannot be read again."
            f"{format_object_list(lines, len(faults))}\nNothing was changed; the live timeline continues.",
            hint="put the recorded versions back; or go back to before they were read, and the next epochs read what "
            f"is there now: milepost rollback {context.spec.name} --to {_before(faults)} --dry-run",
            objects=faults,
        )


def _check_landed_objects(context: JobContext, ranges: Sequence[RecordedRange], name: str) -> None:
    """Check that every landed object of a replay exists with its size.

    Raises:
        InvalidRequest: records of the replay are below the floor of the log. StateCorrupt: an object is missing.
        SourceChanged: a table has deleted or changed a file that a record refers to.
    """
    log = context.source_log(name)
    floor, newest = log.floor, log.newest()
    below = [item for item in ranges if _has_deleted_rows(log, newest, item, name)]
    if below and floor is not None:
        raise InvalidRequest(
            f"job {context.spec.name}: the replay needs records {below[0].landed[name].first} to {floor.next - 1} of "
            f"source {name}, which are older than `land.retain` and were deleted. Nothing was changed; the live "
            "timeline continues.",
            hint=f"backfill from a retained checkpoint: --from-checkpoint ID; milepost list {context.spec.name} shows "
            "them",
            source=name,
        )
    store = open_store(context.log_store(name))
    every = [obj for item in ranges for obj in item.objects.get(name, ())]
    check_table_files(context, name, every)
    objects = [obj for obj in every if not is_reference(obj.key)]
    parallel_map(store, lambda obj: stat_handle(store, ObjectHandle(obj.key, obj.size, obj.etag)), objects)


def _has_deleted_rows(log: SourceLog, newest: StoredRecord | None, item: RecordedRange, name: str) -> bool:
    """Return whether a range has rows of records below the floor of its log.

    Of a range with void records it is unknown which of its rows were there, and the answer is yes.
    """
    landed = item.landed.get(name)
    if landed is None or newest is None or log.floor is None or landed.first >= log.floor.next:
        return False
    live = live_sequences(landed.first, landed.end.next - 1, newest.record.voids)
    retained = (log.record(sequence).record for sequence in live if sequence >= log.floor.next)
    keys = {key for record in retained for key, *_ in record.versions()}
    return len(live) < landed.count or any(obj.key not in keys for obj in item.objects.get(name, ()))
