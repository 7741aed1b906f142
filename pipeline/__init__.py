"""Milepost: stateful, exactly-once data pipelines as scheduled micro-batch epochs."""

__version__ = "0.1.0"
