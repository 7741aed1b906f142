"""JSON lines: one JSON object per line."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.sources.json_lines.json_lines_reader import JsonLinesReader as JsonLinesReader
    from milepost.sources.json_lines.json_objects import BLANK as BLANK
    from milepost.sources.json_lines.json_objects import JsonObjects as JsonObjects
else:
    __getattr__, __dir__ = lazy_exports(__name__)
