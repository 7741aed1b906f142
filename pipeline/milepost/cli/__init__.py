"""The `milepost` command: thin commands over the JobMaster. Nothing heavy is imported until a command needs it."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.cli.main import app_for as app_for
    from milepost.cli.main import needs_pandas as needs_pandas
    from milepost.cli.main import only_reads as only_reads
else:
    __getattr__, __dir__ = lazy_exports(__name__)
