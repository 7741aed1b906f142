"""Landed messages, decoded into rows."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.sources.messages.message_reader import MessageReader as MessageReader
else:
    __getattr__, __dir__ = lazy_exports(__name__)
