"""Buffers of rows in flight between subtasks: in memory, spilled, or part of a checkpoint."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.state.buffers.buffers import Buffer as Buffer
    from milepost.state.buffers.buffers import are_partials as are_partials
    from milepost.state.buffers.buffers import as_partials as as_partials
    from milepost.state.buffers.buffers import decode_rows as decode_rows
    from milepost.state.buffers.buffers import encode_rows as encode_rows
    from milepost.state.buffers.buffers import oldest as oldest
    from milepost.state.buffers.channel_state import ChannelFile as ChannelFile
    from milepost.state.buffers.channel_state import ChannelStateHandle as ChannelStateHandle
    from milepost.state.buffers.channel_state import encode_channel_state as encode_channel_state
    from milepost.state.buffers.channel_state import restore_channel_state as restore_channel_state
    from milepost.state.buffers.spill import Spilled as Spilled
    from milepost.state.buffers.spill import SpilledBodies as SpilledBodies
    from milepost.state.buffers.spill import SpillFile as SpillFile
else:
    __getattr__, __dir__ = lazy_exports(__name__)
