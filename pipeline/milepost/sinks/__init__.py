"""Sinks: where an epoch's rows become visible, all or none, in checkpoint order (I14)."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.sinks.build import build_sink as build_sink
    from milepost.sinks.build import build_staging as build_staging
    from milepost.sinks.contract import HousekeptSink as HousekeptSink
    from milepost.sinks.contract import PreparedTable as PreparedTable
    from milepost.sinks.contract import Sink as Sink
    from milepost.sinks.contract import SinkChange as SinkChange
    from milepost.sinks.contract import SinkMode as SinkMode
    from milepost.sinks.contract import StagingSink as StagingSink
    from milepost.sinks.contract import TableObject as TableObject
    from milepost.sinks.contract import TablePosition as TablePosition
    from milepost.sinks.contract import TableRead as TableRead
    from milepost.sinks.contract import TableTarget as TableTarget
    from milepost.sinks.parquet_files.file_sample import SAMPLE_BYTES as SAMPLE_BYTES
    from milepost.sinks.parquet_files.file_sample import FileSample as FileSample
    from milepost.sinks.parquet_files.file_sample import first_rows as first_rows
    from milepost.sinks.table_copy import CopyPlan as CopyPlan
    from milepost.sinks.table_copy import stage_copy as stage_copy
else:
    __getattr__, __dir__ = lazy_exports(__name__)
