"""Delta tables: their location, log, types and retentions, and the errors of the `deltalake` library."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.tables.delta.column_types import PLAIN_TYPES as PLAIN_TYPES
    from milepost.tables.delta.column_types import arrow_type as arrow_type
    from milepost.tables.delta.delta_errors import FAULTS as FAULTS
    from milepost.tables.delta.delta_errors import parse_reason as parse_reason
    from milepost.tables.delta.delta_errors import translated_errors as translated_errors
    from milepost.tables.delta.locations import DeltaLocation as DeltaLocation
    from milepost.tables.delta.locations import readable_location as readable_location
    from milepost.tables.delta.log_objects import LOG as LOG
    from milepost.tables.delta.log_objects import log_key as log_key
    from milepost.tables.delta.log_objects import parse_actions as parse_actions
    from milepost.tables.delta.log_objects import read_commit as read_commit
    from milepost.tables.delta.retentions import FILE_RETENTION as FILE_RETENTION
    from milepost.tables.delta.retentions import LOG_RETENTION as LOG_RETENTION
    from milepost.tables.delta.retentions import duration_ms as duration_ms
    from milepost.tables.delta.retentions import interval as interval
else:
    __getattr__, __dir__ = lazy_exports(__name__)
