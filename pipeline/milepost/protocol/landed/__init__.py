"""A source's log of landed rows: its records, how one is appended, and the ranges that epochs read."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.protocol.landed.appends import JOB as JOB
    from milepost.protocol.landed.appends import SLOT as SLOT
    from milepost.protocol.landed.appends import first_record as first_record
    from milepost.protocol.landed.appends import next_record as next_record
    from milepost.protocol.landed.appends import require_identity as require_identity
    from milepost.protocol.landed.appends import require_own_log as require_own_log
    from milepost.protocol.landed.continuations import continuing_record as continuing_record
    from milepost.protocol.landed.continuations import copied_record as copied_record
    from milepost.protocol.landed.continuations import is_continued_by as is_continued_by
    from milepost.protocol.landed.failures import FailureRecord as FailureRecord
    from milepost.protocol.landed.failures import LandingFailure as LandingFailure
    from milepost.protocol.landed.failures import failure_record as failure_record
    from milepost.protocol.landed.files import LandedObject as LandedObject
    from milepost.protocol.landed.files import ReferencedFile as ReferencedFile
    from milepost.protocol.landed.files import is_reference as is_reference
    from milepost.protocol.landed.floors import floor_at as floor_at
    from milepost.protocol.landed.floors import floor_of as floor_of
    from milepost.protocol.landed.floors import highest_floor as highest_floor
    from milepost.protocol.landed.floors import raised_floor as raised_floor
    from milepost.protocol.landed.gaps import gap_record as gap_record
    from milepost.protocol.landed.positions import position_changes as position_changes
    from milepost.protocol.landed.positions import position_text as position_text
    from milepost.protocol.landed.ranges import RecordLimits as RecordLimits
    from milepost.protocol.landed.ranges import joined_ranges as joined_ranges
    from milepost.protocol.landed.ranges import range_of as range_of
    from milepost.protocol.landed.ranges import within_limits as within_limits
    from milepost.protocol.landed.records import Gap as Gap
    from milepost.protocol.landed.records import Identity as Identity
    from milepost.protocol.landed.records import LandedRange as LandedRange
    from milepost.protocol.landed.records import LogPosition as LogPosition
    from milepost.protocol.landed.records import LogRecord as LogRecord
    from milepost.protocol.landed.records import Position as Position
    from milepost.protocol.landed.records import SourceBacklog as SourceBacklog
    from milepost.protocol.landed.records import StoredRecord as StoredRecord
    from milepost.protocol.landed.records import Void as Void
    from milepost.protocol.landed.records import VoidSpan as VoidSpan
    from milepost.protocol.landed.records import decode_record as decode_record
    from milepost.protocol.landed.records import encode_record as encode_record
    from milepost.protocol.landed.records import require_follows as require_follows
    from milepost.protocol.landed.voids import accept_record as accept_record
    from milepost.protocol.landed.voids import false_span as false_span
    from milepost.protocol.landed.voids import is_void as is_void
    from milepost.protocol.landed.voids import live_records as live_records
    from milepost.protocol.landed.voids import live_sequences as live_sequences
    from milepost.protocol.landed.voids import totals_read as totals_read
    from milepost.protocol.landed.voids import void_record as void_record
    from milepost.protocol.landed.voids import void_span_read as void_span_read
else:
    __getattr__, __dir__ = lazy_exports(__name__)
