"""Draw the graph of a job."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.jobspec.picture.drawing import STYLE as STYLE
    from milepost.jobspec.picture.drawing import graph_picture as graph_picture
    from milepost.jobspec.picture.drawing import plain_text as plain_text
    from milepost.jobspec.picture.layers import Point as Point
    from milepost.jobspec.picture.layers import place_boxes as place_boxes
else:
    __getattr__, __dir__ = lazy_exports(__name__)
