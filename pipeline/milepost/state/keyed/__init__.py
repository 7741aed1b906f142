"""Keyed state of one operator in one subtask: restore, change, freeze, encode."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.state.keyed.keyed_state import SubtaskState as SubtaskState
    from milepost.state.keyed.restore import restore_state as restore_state
    from milepost.state.keyed.run_reader import referenced_runs as referenced_runs
    from milepost.state.keyed.slices import STATE_COPIES as STATE_COPIES
    from milepost.state.keyed.slices import EncodedSlices as EncodedSlices
    from milepost.state.keyed.slices import SliceEncoder as SliceEncoder
    from milepost.state.keyed.slices import input_cost as input_cost
    from milepost.state.keyed.slices import merge_handles as merge_handles
    from milepost.state.keyed.slices import row_bytes as row_bytes
    from milepost.state.keyed.slices import slices_within as slices_within
    from milepost.state.keyed.slices import split_buffer as split_buffer
    from milepost.state.keyed.slices import state_cost as state_cost
    from milepost.state.keyed.snapshot import FrozenState as FrozenState
else:
    __getattr__, __dir__ = lazy_exports(__name__)
