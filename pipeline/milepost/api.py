"""The stable interface: what code outside of Milepost may import. Everything else may change.

A name is imported when it is first used, so a script that only opens a store does not load the job master.
"""

from typing import TYPE_CHECKING

from milepost.exports import lazy_exports

if TYPE_CHECKING:
    from milepost.codec import to_json as to_json
    from milepost.errors import Busy as Busy
    from milepost.errors import CheckpointError as CheckpointError
    from milepost.errors import CommitConflict as CommitConflict
    from milepost.errors import EnvironmentUnusable as EnvironmentUnusable
    from milepost.errors import Fenced as Fenced
    from milepost.errors import InvalidRequest as InvalidRequest
    from milepost.errors import NotFound as NotFound
    from milepost.errors import PositionExpired as PositionExpired
    from milepost.errors import SourceWentBack as SourceWentBack
    from milepost.errors import StateCorrupt as StateCorrupt
    from milepost.errors import StoreUnavailable as StoreUnavailable
    from milepost.jobmaster import CheckpointDetails as CheckpointDetails
    from milepost.jobmaster import CheckpointReport as CheckpointReport
    from milepost.jobmaster import JobMaster as JobMaster
    from milepost.jobmaster import Session as Session
    from milepost.jobspec.load import LoadedJob as LoadedJob
    from milepost.jobspec.load import load_job as load_job
    from milepost.protocol.records import ObjectStore as ObjectStore
    from milepost.protocol.records import StoreConfig as StoreConfig
    from milepost.spark.driver import spark_runner as spark_runner
    from milepost.storage import open_store as open_store
else:
    __getattr__, __dir__ = lazy_exports(__name__)
