"""Documents for people, each built once from a report: the terminal and the pages render the same records."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.views.badge import JobBadge as JobBadge
    from milepost.views.badge import grade_meaning as grade_meaning
    from milepost.views.badge import grade_word as grade_word
    from milepost.views.badge import job_badge as job_badge
    from milepost.views.checkpoint import checkpoint_view as checkpoint_view
    from milepost.views.comparison import comparison_view as comparison_view
    from milepost.views.history import act_table as act_table
    from milepost.views.history import act_text as act_text
    from milepost.views.history import checkpoint_table as checkpoint_table
    from milepost.views.history import log_table as log_table
    from milepost.views.incident import incident_sections as incident_sections
    from milepost.views.prices import price_text as price_text
    from milepost.views.progress import progress_text as progress_text
    from milepost.views.status import state_section as state_section
    from milepost.views.status import status_view as status_view
    from milepost.views.table import sample_section as sample_section
    from milepost.views.table import sampled_rows as sampled_rows
    from milepost.views.table import table_view as table_view
    from milepost.views.text import STATES as STATES
    from milepost.views.text import phase_name as phase_name
    from milepost.views.text import printable as printable
    from milepost.views.text import show_bytes as show_bytes
    from milepost.views.text import show_count as show_count
    from milepost.views.text import show_rows as show_rows
    from milepost.views.text import show_time as show_time
    from milepost.views.text import since_text as since_text
    from milepost.views.timelines import TimelineNames as TimelineNames
    from milepost.views.tree import Fact as Fact
    from milepost.views.tree import Fold as Fold
    from milepost.views.tree import Link as Link
    from milepost.views.tree import LinkTarget as LinkTarget
    from milepost.views.tree import Meaning as Meaning
    from milepost.views.tree import Section as Section
    from milepost.views.tree import Table as Table
    from milepost.views.tree import Text as Text
    from milepost.views.tree import View as View
else:
    __getattr__, __dir__ = lazy_exports(__name__)
