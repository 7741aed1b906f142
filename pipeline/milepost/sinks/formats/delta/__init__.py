"""Delta tables, read and committed with the `deltalake` library."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.sinks.formats.delta.delta_errors import FAULTS as FAULTS
    from milepost.sinks.formats.delta.delta_errors import parse_reason as parse_reason
    from milepost.sinks.formats.delta.delta_format import DeltaFormat as DeltaFormat
    from milepost.sinks.formats.delta.delta_location import readable_location as readable_location
    from milepost.sinks.formats.delta.delta_log import LOG as LOG
    from milepost.sinks.formats.delta.delta_log import log_key as log_key
    from milepost.sinks.formats.delta.delta_log import parse_actions as parse_actions
    from milepost.sinks.formats.delta.delta_log import read_commit as read_commit
    from milepost.sinks.formats.delta.delta_types import arrow_type as arrow_type
    from milepost.sinks.formats.delta.refusals import FILE_RETENTION as FILE_RETENTION
    from milepost.sinks.formats.delta.refusals import duration_ms as duration_ms
else:
    __getattr__, __dir__ = lazy_exports(__name__)
