"""The runbook has a page for each type of error and each state of a job: what is true then, and what to do."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.runbook.addresses import VARIABLE as VARIABLE
    from milepost.runbook.addresses import address as address
    from milepost.runbook.addresses import page_of as page_of
    from milepost.runbook.pages import page_files as page_files
    from milepost.runbook.pages import read_page as read_page
else:
    __getattr__, __dir__ = lazy_exports(__name__)
