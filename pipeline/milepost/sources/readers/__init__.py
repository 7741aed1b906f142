"""Readers: the bytes of one object as record batches, and its bad records told apart."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.sources.readers.streams import MAX_WHOLE_READ_BYTES as MAX_WHOLE_READ_BYTES
else:
    __getattr__, __dir__ = lazy_exports(__name__)
