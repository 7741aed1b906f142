"""Data that the job master and the data plane exchange about one epoch."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.epoch.answers import EpochAnswers as EpochAnswers
    from milepost.epoch.answers import EpochReport as EpochReport
    from milepost.epoch.answers import EpochRunner as EpochRunner
    from milepost.epoch.cache_folder import private_cache as private_cache
    from milepost.epoch.code_hash import CODE_HASH as CODE_HASH
    from milepost.epoch.code_hash import PACKAGE as PACKAGE
    from milepost.epoch.code_hash import code_by_name as code_by_name
    from milepost.epoch.code_hash import code_hash_of as code_hash_of
    from milepost.epoch.code_hash import hash_sources as hash_sources
    from milepost.epoch.code_hash import sources_of as sources_of
    from milepost.epoch.dimensions import DimensionInput as DimensionInput
    from milepost.epoch.dimensions import DimensionSnapshot as DimensionSnapshot
    from milepost.epoch.dimensions import pinned as pinned
    from milepost.epoch.dimensions import read_as as read_as
    from milepost.epoch.gate_shares import GateRow as GateRow
    from milepost.epoch.gate_shares import GateRowKind as GateRowKind
    from milepost.epoch.gate_shares import GateShare as GateShare
    from milepost.epoch.gate_shares import gate_shares_of as gate_shares_of
    from milepost.epoch.gate_shares import is_large as is_large
    from milepost.epoch.gate_shares import joined as joined
    from milepost.epoch.gate_shares import judge_partition as judge_partition
    from milepost.epoch.gate_shares import judge_share as judge_share
    from milepost.epoch.gate_shares import judged_here as judged_here
    from milepost.epoch.gate_shares import partition_count as partition_count
    from milepost.epoch.gate_shares import refusal_row as refusal_row
    from milepost.epoch.iso_times import iso_ms as iso_ms
    from milepost.epoch.iso_times import recorded_watermark_us as recorded_watermark_us
    from milepost.epoch.iso_times import watermark_text as watermark_text
    from milepost.epoch.iso_times import watermark_us as watermark_us
    from milepost.epoch.metadata import AcknowledgedSubtask as AcknowledgedSubtask
    from milepost.epoch.metadata import CheckpointMetadata as CheckpointMetadata
    from milepost.epoch.metadata import OperatorSnapshot as OperatorSnapshot
    from milepost.epoch.metadata import OperatorTable as OperatorTable
    from milepost.epoch.metadata import SinkSnapshot as SinkSnapshot
    from milepost.epoch.metadata import SourceSnapshot as SourceSnapshot
    from milepost.epoch.metadata import StateTableSnapshot as StateTableSnapshot
    from milepost.epoch.metadata import decode_metadata as decode_metadata
    from milepost.epoch.plan import NAMED_BAD_NAMES as NAMED_BAD_NAMES
    from milepost.epoch.plan import EpochAlignment as EpochAlignment
    from milepost.epoch.plan import EpochPlan as EpochPlan
    from milepost.epoch.plan import InputRecord as InputRecord
    from milepost.epoch.plan import SourceInput as SourceInput
    from milepost.epoch.plan import are_continued as are_continued
    from milepost.epoch.plan import decode_input_record as decode_input_record
    from milepost.epoch.plan import encode_input_record as encode_input_record
    from milepost.epoch.plan import expected_subtasks as expected_subtasks
    from milepost.epoch.plan import other_tables as other_tables
    from milepost.epoch.plan import source_input as source_input
    from milepost.epoch.plan import split_inputs as split_inputs
    from milepost.epoch.quantities import counted as counted
    from milepost.epoch.quantities import lasting as lasting
    from milepost.epoch.quantities import numbered as numbered
    from milepost.epoch.quantities import observed as observed
    from milepost.epoch.renamed_operators import renames as renames
    from milepost.epoch.renamed_operators import with_names_of as with_names_of
    from milepost.epoch.renamed_operators import with_readers_of as with_readers_of
    from milepost.epoch.skipped_at_start import SkippedAtStart as SkippedAtStart
    from milepost.epoch.spark_answers import SparkAnswers as SparkAnswers
    from milepost.epoch.spark_answers import check_answers as check_answers
    from milepost.epoch.spark_answers import recorded_by as recorded_by
    from milepost.epoch.spark_answers import signed as signed
    from milepost.epoch.subtask_shares import SINK as SINK
    from milepost.epoch.subtask_shares import SOURCE as SOURCE
    from milepost.epoch.subtask_shares import SubtaskShare as SubtaskShare
    from milepost.epoch.subtask_shares import shares_of as shares_of
    from milepost.epoch.summary import summary_of as summary_of
    from milepost.epoch.summary import watermark_of as watermark_of
    from milepost.epoch.traced import OBJECT as OBJECT
    from milepost.epoch.traced import RECORD as RECORD
    from milepost.epoch.traced import EpochTracer as EpochTracer
    from milepost.epoch.traced import RecordPlace as RecordPlace
    from milepost.epoch.traced import RowFilter as RowFilter
    from milepost.epoch.traced import TracedEpoch as TracedEpoch
    from milepost.epoch.traced import TracedSplit as TracedSplit
    from milepost.epoch.traced import is_stamp as is_stamp
    from milepost.epoch.traced import stamp_column as stamp_column
else:
    __getattr__, __dir__ = lazy_exports(__name__)
