"""Sources: plan and read the input of epochs, from files and landed logs."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.sources.bad_input import MAX_NAMED_BAD_RECORDS as MAX_NAMED_BAD_RECORDS
    from milepost.sources.bad_input import BadInput as BadInput
    from milepost.sources.bad_input import BadInputCounter as BadInputCounter
    from milepost.sources.bad_input import BadRecordLocation as BadRecordLocation
    from milepost.sources.bad_input import bad_ratio_too_high as bad_ratio_too_high
    from milepost.sources.bad_input import counts_by_trigger as counts_by_trigger
    from milepost.sources.bad_input import merge_bad_input as merge_bad_input
    from milepost.sources.bad_input import too_many_bad_records as too_many_bad_records
    from milepost.sources.contract import TOMBSTONES as TOMBSTONES
    from milepost.sources.contract import BadMessage as BadMessage
    from milepost.sources.contract import BadObject as BadObject
    from milepost.sources.contract import BadRecord as BadRecord
    from milepost.sources.contract import ObjectPart as ObjectPart
    from milepost.sources.contract import ObjectReader as ObjectReader
    from milepost.sources.contract import PartReader as PartReader
    from milepost.sources.contract import SourceObject as SourceObject
    from milepost.sources.contract import whole_object as whole_object
    from milepost.sources.dead_letter_rows import dead_letter_schema as dead_letter_schema
    from milepost.sources.dead_letter_rows import dead_letters as dead_letters
    from milepost.sources.dimension import cast_to_declared as cast_to_declared
    from milepost.sources.dimension import decode_dimension as decode_dimension
    from milepost.sources.dimension import encode_dimension as encode_dimension
    from milepost.sources.dimension import read_dimension as read_dimension
    from milepost.sources.event_times import EventTimeTracker as EventTimeTracker
    from milepost.sources.event_times import RowsAhead as RowsAhead
    from milepost.sources.event_times import merge_rows_ahead as merge_rows_ahead
    from milepost.sources.formats import build_reader as build_reader
    from milepost.sources.formats import record_places as record_places
    from milepost.sources.kernel.streams import MAX_WHOLE_READ_BYTES as MAX_WHOLE_READ_BYTES
    from milepost.sources.path_columns import PathColumns as PathColumns
else:
    __getattr__, __dir__ = lazy_exports(__name__)
