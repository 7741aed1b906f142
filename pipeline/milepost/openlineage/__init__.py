"""OpenLineage events of epochs and table switches. Imported only where OpenLineage is configured."""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.openlineage.client import OpenLineageClient as OpenLineageClient
    from milepost.openlineage.client import RunEvent as RunEvent
    from milepost.openlineage.client import open_client as open_client
    from milepost.openlineage.datasets import JobDatasets as JobDatasets
    from milepost.openlineage.datasets import assertions_of as assertions_of
    from milepost.openlineage.events import LineageEvents as LineageEvents
    from milepost.openlineage.run_ids import parent_dag_run as parent_dag_run
    from milepost.openlineage.settings import LineageSettings as LineageSettings
    from milepost.openlineage.settings import ParentRun as ParentRun
    from milepost.openlineage.settings import is_configured as is_configured
    from milepost.openlineage.settings import is_switched_off as is_switched_off
    from milepost.openlineage.settings import nowhere as nowhere
    from milepost.openlineage.settings import settings_of_environment as settings_of_environment
    from milepost.openlineage.settings import settings_or_none as settings_or_none
    from milepost.openlineage.table_versions import TableVersions as TableVersions
else:
    __getattr__, __dir__ = lazy_exports(__name__)
