"""The quality gate: expectations that can veto an epoch before it is published."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.quality.evidence import Evidence as Evidence
    from milepost.quality.evidence import rows_at as rows_at
    from milepost.quality.gate import check_suite as check_suite
    from milepost.quality.gate import collect_evidence as collect_evidence
    from milepost.quality.gate import columns_of as columns_of
    from milepost.quality.gate import evaluate as evaluate
    from milepost.quality.gate import resolve_suite as resolve_suite
    from milepost.quality.gx import preload as preload
    from milepost.quality.gx import start_loading as start_loading
    from milepost.quality.merged_verdict import decide_verdict as decide_verdict
    from milepost.quality.partial_results import PartialResult as PartialResult
    from milepost.quality.partial_results import Tally as Tally
    from milepost.quality.partial_results import combination_for as combination_for
    from milepost.quality.partial_results import decode_rows as decode_rows
    from milepost.quality.partial_results import encode_rows as encode_rows
    from milepost.quality.partial_results import required_columns as required_columns
    from milepost.quality.partitioning import partition_rows as partition_rows
    from milepost.quality.partitioning import sample_rows as sample_rows
    from milepost.quality.row_rule_results import with_row_rules as with_row_rules
    from milepost.quality.row_rules import RejectedRows as RejectedRows
    from milepost.quality.row_rules import RowRules as RowRules
    from milepost.quality.row_rules import merge_rejected as merge_rejected
    from milepost.quality.row_rules import refused_positions as refused_positions
    from milepost.quality.row_rules import rule_label as rule_label
    from milepost.quality.verdict import ExpectationResult as ExpectationResult
    from milepost.quality.verdict import GateVerdict as GateVerdict
    from milepost.quality.verdict import Verdict as Verdict
    from milepost.quality.verdict import VerdictStatus as VerdictStatus
    from milepost.quality.verdict import current_verdict as current_verdict
    from milepost.quality.veto import NAMED_OBJECTS as NAMED_OBJECTS
    from milepost.quality.veto import VetoedInput as VetoedInput
    from milepost.quality.veto import build_veto as build_veto
    from milepost.quality.veto import decode_veto as decode_veto
else:
    __getattr__, __dir__ = lazy_exports(__name__)
