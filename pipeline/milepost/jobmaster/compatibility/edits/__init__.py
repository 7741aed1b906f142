"""Decide what edits of SQL statements do to recorded state and tables."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.jobmaster.compatibility.edits.edit_rows import Edit as Edit
    from milepost.jobmaster.compatibility.edits.edit_rows import describe_edit as describe_edit
    from milepost.jobmaster.compatibility.edits.edit_rows import lacks_text as lacks_text
    from milepost.jobmaster.compatibility.edits.edit_rows import statement_edits as statement_edits
    from milepost.jobmaster.compatibility.edits.incomplete import INCOMPLETE as INCOMPLETE
    from milepost.jobmaster.compatibility.edits.incomplete import incomplete_statements as incomplete_statements
    from milepost.jobmaster.compatibility.edits.incomplete import with_incomplete as with_incomplete
    from milepost.jobmaster.compatibility.edits.recompiled import describe_recompiled as describe_recompiled
    from milepost.jobmaster.compatibility.edits.recompiled import recompiled_statements as recompiled_statements
    from milepost.jobmaster.compatibility.edits.refilled_state import without_refilled as without_refilled
    from milepost.jobmaster.compatibility.edits.verdicts import query_edits as query_edits
else:
    __getattr__, __dir__ = lazy_exports(__name__)
