"""The exchange of an epoch: barriers, acknowledgements, channel state and watermarks."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.protocol.exchange.acknowledgements import Acknowledgement as Acknowledgement
    from milepost.protocol.exchange.acknowledgements import SubtaskAnswer as SubtaskAnswer
    from milepost.protocol.exchange.acknowledgements import VerifiedAnswers as VerifiedAnswers
    from milepost.protocol.exchange.acknowledgements import decode_answer as decode_answer
    from milepost.protocol.exchange.acknowledgements import encode_answer as encode_answer
    from milepost.protocol.exchange.acknowledgements import verify as verify
    from milepost.protocol.exchange.barrier import AckEvent as AckEvent
    from milepost.protocol.exchange.barrier import Barrier as Barrier
    from milepost.protocol.exchange.barrier import BufferHeader as BufferHeader
    from milepost.protocol.exchange.barrier import ChannelDigest as ChannelDigest
    from milepost.protocol.exchange.barrier import ChannelSum as ChannelSum
    from milepost.protocol.exchange.barrier import EventKind as EventKind
    from milepost.protocol.exchange.barrier import SubtaskAck as SubtaskAck
    from milepost.protocol.exchange.barrier import SubtaskIdentity as SubtaskIdentity
    from milepost.protocol.exchange.barrier import acknowledgement as acknowledgement
    from milepost.protocol.exchange.barrier import distinct_acknowledgements as distinct_acknowledgements
    from milepost.protocol.exchange.channel_check import ChannelCheck as ChannelCheck
    from milepost.protocol.exchange.channel_file import ChannelCommands as ChannelCommands
    from milepost.protocol.exchange.channel_file import ChannelStateResult as ChannelStateResult
    from milepost.protocol.exchange.channel_file import InFlightBuffer as InFlightBuffer
    from milepost.protocol.exchange.channel_file import InputChannel as InputChannel
    from milepost.protocol.exchange.channel_file import Release as Release
    from milepost.protocol.exchange.channel_file import Rethrow as Rethrow
    from milepost.protocol.exchange.channel_file import WriteFile as WriteFile
    from milepost.protocol.exchange.channel_state import ChannelStateWriter as ChannelStateWriter
    from milepost.protocol.exchange.channel_state import share_files as share_files
    from milepost.protocol.exchange.declines import Decline as Decline
    from milepost.protocol.exchange.declines import find_recreated_subtasks as find_recreated_subtasks
    from milepost.protocol.exchange.routing import NullSpreadingKey as NullSpreadingKey
    from milepost.protocol.exchange.watermarks import BEGINNING_OF_TIME_US as BEGINNING_OF_TIME_US
    from milepost.protocol.exchange.watermarks import END_OF_TIME_US as END_OF_TIME_US
    from milepost.protocol.exchange.watermarks import delivered_event_time as delivered_event_time
    from milepost.protocol.exchange.watermarks import firing_watermark as firing_watermark
    from milepost.protocol.exchange.watermarks import is_later as is_later
    from milepost.protocol.exchange.watermarks import latest as latest
    from milepost.protocol.exchange.watermarks import newest_by_partition as newest_by_partition
    from milepost.protocol.exchange.watermarks import operator_watermark as operator_watermark
    from milepost.protocol.exchange.watermarks import output_watermark as output_watermark
    from milepost.protocol.exchange.watermarks import source_watermark as source_watermark
else:
    __getattr__, __dir__ = lazy_exports(__name__)
