"""The manifest's transitions: requests, decisions, events and invariants."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.protocol.manifest.decisions import Request as Request
    from milepost.protocol.manifest.decisions import decide as decide
else:
    __getattr__, __dir__ = lazy_exports(__name__)
