"""Load a job from a file or a name, and report on its graph."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.jobspec.load.document import MAX_CHARACTERS as MAX_CHARACTERS
    from milepost.jobspec.load.document import Document as Document
    from milepost.jobspec.load.document import Unreadable as Unreadable
    from milepost.jobspec.load.document import read_document as read_document
    from milepost.jobspec.load.lint import json_schema as json_schema
    from milepost.jobspec.load.lint import lint_report as lint_report
    from milepost.jobspec.load.load import CONFIG_FOLDER as CONFIG_FOLDER
    from milepost.jobspec.load.load import LoadedJob as LoadedJob
    from milepost.jobspec.load.load import check_placement as check_placement
    from milepost.jobspec.load.load import find_spec as find_spec
    from milepost.jobspec.load.load import from_spec as from_spec
    from milepost.jobspec.load.load import from_text as from_text
    from milepost.jobspec.load.load import hash_spec as hash_spec
    from milepost.jobspec.load.load import is_spec as is_spec
    from milepost.jobspec.load.load import load_job as load_job
    from milepost.jobspec.load.load import read_spec as read_spec
    from milepost.jobspec.load.load import shown_path as shown_path
    from milepost.jobspec.load.load import spec_files as spec_files
    from milepost.jobspec.load.placement import placement_problems as placement_problems
    from milepost.jobspec.load.spec_json import from_json as from_json
    from milepost.jobspec.load.spec_json import spec_as_json as spec_as_json
    from milepost.jobspec.load.spec_order import sorted_spec as sorted_spec
    from milepost.jobspec.load.sql_text import SqlText as SqlText
    from milepost.jobspec.load.validation import validate_spec as validate_spec
else:
    __getattr__, __dir__ = lazy_exports(__name__)
