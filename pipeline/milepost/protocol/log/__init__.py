"""The manifest log and other stored records as canonical JSON."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.protocol.log.entry_codec import EVENT_BYTES as EVENT_BYTES
    from milepost.protocol.log.entry_codec import decode_entry as decode_entry
    from milepost.protocol.log.entry_codec import decode_event as decode_event
    from milepost.protocol.log.entry_codec import decode_event_from_prefix as decode_event_from_prefix
    from milepost.protocol.log.entry_codec import encode_entry as encode_entry
    from milepost.protocol.log.entry_codec import encode_tombstone as encode_tombstone
    from milepost.protocol.log.garbage_lists import decode_list as decode_list
    from milepost.protocol.log.garbage_lists import encode_list as encode_list
    from milepost.protocol.log.log_entries import CompletedEpoch as CompletedEpoch
    from milepost.protocol.log.log_entries import LogEntry as LogEntry
    from milepost.protocol.log.log_entries import LoggedEvent as LoggedEvent
    from milepost.protocol.log.log_entries import Tombstone as Tombstone
    from milepost.protocol.log.log_entries import aborted_by as aborted_by
    from milepost.protocol.log.log_entries import completion_of as completion_of
    from milepost.protocol.log.log_entries import event_name as event_name
    from milepost.protocol.log.log_entries import tombstone_of as tombstone_of
else:
    __getattr__, __dir__ = lazy_exports(__name__)
