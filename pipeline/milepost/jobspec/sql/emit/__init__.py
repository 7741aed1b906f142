"""Add operators to a job, with the types, keys and modes of their rows."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.jobspec.sql.emit.emitter import Column as Column
    from milepost.jobspec.sql.emit.emitter import Emitter as Emitter
    from milepost.jobspec.sql.emit.emitter import described as described
    from milepost.jobspec.sql.emit.emitter import for_statements as for_statements
    from milepost.jobspec.sql.emit.emitter import shown_text as shown_text
    from milepost.jobspec.sql.emit.types import common_type as common_type
    from milepost.jobspec.sql.emit.types import sql_type as sql_type
else:
    __getattr__, __dir__ = lazy_exports(__name__)
