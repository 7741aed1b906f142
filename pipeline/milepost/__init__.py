"""Milepost: stateful, exactly-once data pipelines as scheduled micro-batch epochs."""

__version__ = "0.1.0"

if __name__ != "milepost":
    # Two names would be two sets of classes: what one raises, no `except` of the other would catch.
    raise ImportError(f"Milepost is imported as `milepost`, not as `{__name__}`; put its folder's parent on the path")
