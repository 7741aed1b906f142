"""Compile the FROM clause of a SELECT into joins."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.jobspec.sql.joins.frames import FrameCompiler as FrameCompiler
    from milepost.jobspec.sql.joins.sides import Frame as Frame
else:
    __getattr__, __dir__ = lazy_exports(__name__)
